"""Groups of components that are solved together, and the best strategy for one.

Some columns are split: a query is averaged over them by a measure, or keeps what is left. The components that keep the
same split columns form a group; a record has a class in it, the combination of its orbits in these columns and in
those that are not split. Within a group the functions that add up to 0 on an orbit part from the others by themselves,
with no loss, so that blocks remain that are small. A column on which all tables of the group have the same
factor is solved by itself: the optimum of a product is the product of the optima.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.solver import Block, solve, solve_one
from batchdp.strategies.account import FLOPS, UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, ColumnView, without_rounding
from batchdp.strategies.residual.terms import ResidualFactor, kron

Kinds = tuple[tuple[int, int], ...]
"""The columns that a table looks at, each with the number of its factor, from 1."""
TableWeights = dict[Kinds, float]
"""Tables without their repetitions, each with its weight."""

MOST_CLASSES = 4000
"""Combinations of orbits that are solved together."""
MOST_BLOCKS = 3_000_000
MOST_WORK = 5e10
"""Blocks times the cube of the classes, beyond which blocks are not solved together."""
SPANNED = 1e-9
"""How much of a query may be missing from what is measured, relative to its size."""
LOST = (
    "the tables' weights or factors are of so different sizes that some queries would be lost in rounding; "
    "give weights closer to one another, or rescale the factors"
)
GROUP_SECONDS = 3e-5
"""Nominal seconds of a group, for each of its tables and columns; measured, as the next is."""
ASSEMBLY_SECONDS = 8e-4
"""Nominal seconds of the matrix of a block whatever its size."""
SMALLEST_MATRIX = 1000
"""Classes of a single block from which the solver for one matrix is the quicker one."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The best strategy found for a group at the whole budget: its error at ρ = ½, what none is below, its pieces."""

    upper: float
    lower: float
    choices: tuple[tuple[ResidualFactor, ...], ...]
    """A part of the strategy is one piece of every list."""
    weights: Dense | None = None
    """On the classes that were solved together."""


class TooManyClassesError(Exception):
    """The group's classes are too many to be solved together."""


def group_terms(
    terms: TableWeights,
    columns: Sequence[Column],
    measures: Mapping[int, Dense],
    nudged: Mapping[tuple[int, int], float] | None = None,
) -> Iterator[tuple[tuple[int, ...], TableWeights]]:
    """The groups, each by the split columns that it keeps, and its tables with their weights.

    `nudged` multiplies the squared averages of some factors, by column and factor.
    """
    means = {i: [_mean(F, mu) for F in columns[i].rows] for i, mu in measures.items()}
    for (i, kind), factor in (nudged or {}).items():
        means[i][kind] *= factor
    groups: dict[tuple[int, ...], TableWeights] = {}
    for kinds, weight in terms.items():
        split = [(i, kind) for i, kind in kinds if i in measures]
        for keep in product((False, True), repeat=len(split)):
            kept = tuple(i for (i, _), there in zip(split, keep, strict=True) if there)
            averaged = [means[i][kind] for (i, kind), there in zip(split, keep, strict=True) if not there]
            own = tuple((i, kind) for i, kind in kinds if i not in measures or i in kept)
            into = groups.setdefault(kept, {})
            into[own] = into.get(own, 0.0) + _weighed(weight, averaged)
    return iter(groups.items())


def _mean(F: Dense, measure: Dense) -> float:
    """The squared norm of a factor's average."""
    return float(np.square(without_rounding((F @ measure)[:, None], np.abs(F).max(axis=1))).sum())


def _weighed(weight: float, factors: Iterable[float]) -> float:
    """The weight times all factors: 0 where one of them is 0, and nowhere else."""
    known = list(factors)
    found = weight * prod(known)
    if found == 0 and weight > 0 and all(known):
        raise StrategyError(LOST)
    return found


def solve_group(
    terms: TableWeights, views: Mapping[int, ColumnView], *, tolerance: float = 1e-3, account: Account = UNLIMITED
) -> Answer:
    """The best strategy for the tables of a group; `views` has the columns that the group looks at."""
    account.charge(GROUP_SECONDS * (1 + len(views) + len(terms)))
    terms, apart = separate(terms, views)
    answers = [solve_column(i, {kind: 1.0}, views[i], tolerance, account) for i, kind in apart]
    shared = sorted(i for i, own in views.items() if own.rows is not None and i not in dict(apart))
    rest = _solve_rest(terms, views, shared, tolerance, account)
    answers.append(rest)
    return Answer(
        float(np.prod([one.upper for one in answers])),
        float(np.prod([one.lower for one in answers])),
        tuple(choice for one in answers for choice in one.choices),
        rest.weights,
    )


def separate(terms: TableWeights, views: Mapping[int, ColumnView]) -> tuple[TableWeights, list[tuple[int, int]]]:
    """The columns on which all tables have the same factor, but for a multiple; and the tables without them."""
    apart: dict[int, tuple[int, dict[int, float]]] = {}
    used: dict[int, set[int]] = {i: set() for i in views}
    times: dict[int, int] = dict.fromkeys(views, 0)
    for kinds in terms:
        for i, kind in kinds:
            used[i].add(kind)
            times[i] += 1
    for i, own in views.items():
        there = used[i] | ({0} if times[i] < len(terms) else set())
        if there == {0} and own.rows is None:
            continue
        ratios = own.alike(there)
        if ratios is not None:
            apart[i] = min(there), ratios
    rest: TableWeights = {}
    for kinds, weight in terms.items():
        table = dict(kinds)
        scaled = _weighed(weight, (ratios[table.get(i, 0)] for i, (_, ratios) in apart.items()))
        left = tuple((i, kind) for i, kind in kinds if i not in apart)
        rest[left] = rest.get(left, 0.0) + scaled
    return rest, [(i, kind) for i, (kind, _) in apart.items()]


def solve_column(
    i: int,
    weights: Mapping[int, float],
    own: ColumnView,
    tolerance: float,
    account: Account = UNLIMITED,
    start: Dense | None = None,
) -> Answer:
    """The best strategy for factors on one column, each with its weight; `start` has weights of its classes."""
    return _solve_rest(alone(i, weights), {i: own}, [i] * (own.rows is not None), tolerance, account, start)


def alone(i: int, weights: Mapping[int, float]) -> TableWeights:
    """Tables of one column, by factor."""
    return {((i, kind),) if kind else (): weight for kind, weight in weights.items()}


def _solve_rest(
    terms: TableWeights,
    views: Mapping[int, ColumnView],
    shared: list[int],
    tolerance: float,
    account: Account,
    start: Dense | None = None,
) -> Answer:
    """Blocks, each by the spreads that it keeps, solved together over the classes of the shared columns."""
    classes = prod(views[i].classes for i in shared)
    if len(shared) > 1 and classes > MOST_CLASSES:
        raise TooManyClassesError(f"{classes:,} classes")
    found = blocks_of(terms, views, shared)
    if len(shared) > 0 and len(found) > 1 and len(found) * classes**3 > MOST_WORK:
        raise TooManyClassesError(f"{len(found):,} blocks of {classes:,} classes")
    if not shared:
        return _closed_form(found, views)
    made = [assemble(key, own, views, shared) for key, own in found.items()]
    account.charge(sum(map(assembly_price, made)))
    for one, own in zip(made, found.values(), strict=True):
        _check_spanned(own, [_rows(views[i]) for i in one.matrix], one.R)
    made = [one for one in made if len(one.R)]
    if not made:  # nothing is left of any query
        return Answer(0.0, 0.0, ((),))
    if len(made) == 1 and classes >= SMALLEST_MATRIX and len(made[0].matrix) == len(shared):
        answer = solve_one(made[0].block.R, tolerance, account)
    else:
        answer = solve([one.block for one in made], classes, tolerance=tolerance, account=account, start=start)
    pieces = []
    for one, K, inverse in zip(made, answer.measure, answer.recover, strict=True):
        root = np.sqrt(one.times)
        pieces.append(
            ResidualFactor(one.matrix, one.key, root * (K @ one.R), one.centred @ (one.pseudo @ inverse) / root)
        )
    return Answer(answer.upper, answer.lower, (tuple(pieces),), answer.weights)


Key = tuple[tuple[int, int], ...]
"""The spreads that a block keeps: column and orbit."""


def blocks_of(
    terms: TableWeights, views: Mapping[int, ColumnView], shared: list[int]
) -> dict[Key, dict[tuple[int, ...], float]]:
    """For every block the factors of its matrix columns, with the weight of each combination of them."""
    found: dict[Key, dict[tuple[int, ...], float]] = {}
    for kinds, weight in terms.items():
        there = dict(kinds)
        options: list[list[tuple[int, int, float]]] = []  # column, orbit (−1: none), factor
        for i, kind in kinds:
            own = views[i]
            plain = 1.0 if own.rows is not None else float(own.mean[kind])
            options.append([(i, -1, plain)] * (plain > 0))
            options[-1] += [(i, int(o), float(own.spread[kind, o])) for o in np.flatnonzero(own.spread[kind] > 0)]
        for choice in product(*options):
            key = tuple((i, o) for i, o, _ in choice if o >= 0)
            spreading = {i for i, _ in key}
            into = found.setdefault(key, {})
            own_kinds = tuple(there.get(i, 0) for i in shared if i not in spreading)
            into[own_kinds] = into.get(own_kinds, 0.0) + _weighed(weight, (factor for _, _, factor in choice))
        if len(found) > MOST_BLOCKS:
            raise TooManyClassesError(f"more than {MOST_BLOCKS:,} blocks")
    return found


def _closed_form(found: Mapping[Key, Mapping[tuple[int, ...], float]], views: Mapping[int, ColumnView]) -> Answer:
    """Blocks of one number each: shares ∝ the roots of their errors."""
    freedom = {key: _freedom(key, views) for key in found}
    roots = {key: np.sqrt(sum(own.values()) * freedom[key][0] * freedom[key][1]) for key, own in found.items()}
    total = float(sum(roots.values()))
    pieces = []
    for key, root in roots.items():
        if sum(found[key].values()) > 0:
            scale = np.sqrt(root / total / freedom[key][1])
            pieces.append(ResidualFactor((), key, np.array([[scale]]), np.array([[1 / scale]])))
    return Answer(total**2, total**2, (tuple(pieces),))


def _freedom(key: Key, views: Mapping[int, ColumnView]) -> tuple[float, float]:
    """Of the spreads: dimensions, and the squared column norm of their projection."""
    counts = [int(views[i].counts[o]) for i, o in key]
    return float(prod(n - 1 for n in counts)), prod((1 - 1 / n for n in counts), start=1.0)


@dataclass(frozen=True, eq=False)
class AssembledBlock:
    """A block with what its measurement is made of."""

    key: Key
    matrix: tuple[int, ...]
    R: Dense
    """Independent rows whose Gram matrix is the queries'."""
    pseudo: Dense
    """R⁺."""
    centred: Dense
    times: float
    norm: float
    block: Block


def assemble(
    key: Key, own: Mapping[tuple[int, ...], float], views: Mapping[int, ColumnView], shared: list[int]
) -> AssembledBlock:
    """A block's matrix from the factors of its matrix columns."""
    times, norm = _freedom(key, views)
    spreading = dict(key)
    matrix = tuple(i for i in shared if i not in spreading)
    shape = [views[i].classes for i in matrix]
    rows: list[Dense] = [np.zeros((0, int(np.prod(shape))))]
    for kinds, weight in own.items():
        factors = [np.asarray(_rows(views[i])[kind]) for i, kind in zip(matrix, kinds, strict=True)]
        rows.append(np.sqrt(weight) * kron(factors))
        if sum(map(len, rows)) > 2 * rows[0].shape[1] + 64:
            rows = [rows[0], np.asarray(np.linalg.qr(np.concatenate(rows), mode="r"))]
    _, sigma, Vt = np.linalg.svd(np.concatenate(rows), full_matrices=False)
    rank = int(np.sum(sigma > sigma[0] * 1e-12 * max(1, len(sigma)) ** 0.5)) if sigma.size and sigma[0] > 0 else 0
    R, pseudo = sigma[:rank, None] * Vt[:rank], Vt[:rank].T / sigma[:rank]
    centred = kron(np.eye(own.classes) if own.centre is None else own.centre for own in map(views.__getitem__, matrix))
    classes = np.indices([views[i].classes for i in shared]).reshape(len(shared), -1)
    column = np.zeros(classes.shape[1], dtype=np.int64)
    for place, i in enumerate(shared):
        column = column if i in spreading else column * views[i].classes + classes[place]
    for place, i in enumerate(shared):
        column = np.where(classes[place] == spreading[i], column, -1) if i in spreading else column
    return AssembledBlock(key, matrix, R, pseudo, centred, times, norm, Block(np.sqrt(times * norm) * R, column))


def assembly_price(one: AssembledBlock) -> float:
    """What a block's matrix takes: the singular values of its rows."""
    return float(ASSEMBLY_SECONDS + 20.0 * len(one.R) * one.R.shape[1] ** 2 / FLOPS)


def _rows(own: ColumnView) -> tuple[Dense, ...]:
    assert own.rows is not None
    return own.rows


def _check_spanned(own: Mapping[tuple[int, ...], float], rows: list[tuple[Dense, ...]], R: Dense) -> None:
    """Every query must be a combination of what is measured, however little its table weighs beside the others."""
    basis = R / np.linalg.norm(R, axis=1, keepdims=True)  # at right angles, as a singular value decomposition has them
    for kinds in (kinds for kinds, weight in own.items() if weight > 0):
        Z = kron(factors[kind] for factors, kind in zip(rows, kinds, strict=True))
        sizes = np.linalg.norm(Z, axis=1)
        misses = np.linalg.norm(Z - (Z @ basis.T) @ basis, axis=1)
        if np.any(misses > SPANNED * sizes + 1e-13 * sizes.max(initial=0.0)):
            raise StrategyError(LOST)
