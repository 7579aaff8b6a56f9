"""Groups of components that are solved together, and the best strategy for one.

Some columns are split: a query is averaged over them by a measure, or keeps what is left. The components that keep the
same split columns form a group; a record has a class in it, the combination of its orbits in these columns and in
those that are not split. Within a group the functions that add up to 0 on an orbit part from the others by themselves,
with no loss, so that blocks remain that are small. A column on which all tables of the group have the same
factor is solved by itself: the optimum of a product is the product of the optima. So are columns that are tied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.solver import Block, solve, solve_one
from batchdp.optimizer.residual.splits import LOST, GroupTerms, JointView, Left, Where, weighed
from batchdp.strategies.account import FLOPS, UNLIMITED, Account
from batchdp.strategies.residual.columns import ColumnView
from batchdp.strategies.residual.terms import ResidualFactor, kron

Views = Mapping[Where, ColumnView | JointView]

MOST_CLASSES = 4000
"""Combinations of orbits that are solved together."""
MOST_BLOCKS = 3_000_000
MOST_WORK = 5e10
"""Blocks times the cube of the classes, beyond which blocks are not solved together."""
SPANNED = 1e-9
"""How much of a query may be missing from what is measured, relative to its size."""
GROUP_SECONDS = 3e-5
"""Nominal seconds of a group, for each of its tables and columns; measured, as the next is."""
ASSEMBLY_SECONDS = 8e-4
"""Nominal seconds of the matrix of a block whatever its size."""
DIGITS = 12
"""To which weights are told apart."""
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

    def renamed(self, names: Mapping[int, int]) -> Answer:
        """The same for columns that are alike, by their numbers, which are in the same order."""

        def moved(piece: ResidualFactor) -> ResidualFactor:
            spread = tuple((names[i], o) for i, o in piece.spread)
            return ResidualFactor(tuple(names[i] for i in piece.matrix), spread, piece.measure, piece.recover)

        return replace(self, choices=tuple(tuple(map(moved, own)) for own in self.choices))


class TooManyClassesError(Exception):
    """The group's classes are too many to be solved together."""


Likeness = tuple[tuple[bytes, ...], frozenset[tuple[Any, float]]]
"""What groups have in common that are the same but for the names of their columns."""


def likeness(terms: GroupTerms, views: Views) -> tuple[Likeness, list[int]]:
    """What a group is but for the names of its columns; and these, in ascending order."""
    columns = [i for i in views if isinstance(i, int)]
    place = {c: k for k, c in enumerate(columns)}
    told: dict[Any, float] = {}
    for left, weight in terms.items():
        one = tuple(sorted((tuple(place[c] for c in columns_in(w)), views[w].token(kind)) for w, kind in left))
        told[one] = told.get(one, 0.0) + weight
    rounded = frozenset((one, float(f"{weight:.{DIGITS}g}")) for one, weight in told.items())
    return (tuple(view_of(views, c).shape_token for c in columns), rounded), columns


class Memory:
    """The answers for groups: one for all that are the same but for the names of their columns."""

    def __init__(self) -> None:
        self._known: dict[tuple[float, Likeness], tuple[Answer, list[int]]] = {}

    def solve(self, terms: GroupTerms, views: Views, tolerance: float, account: Account) -> Answer:
        """As `solve_group`."""
        alike, columns = likeness(terms, views)
        if (tolerance, alike) not in self._known:
            answer = solve_group(terms, views, tolerance=tolerance, account=account)
            if account.over():  # which may have ended it early
                return answer
            self._known[tolerance, alike] = answer, columns
        answer, own = self._known[tolerance, alike]
        return answer if own == columns else answer.renamed(dict(zip(own, columns, strict=True)))


def solve_group(terms: GroupTerms, views: Views, *, tolerance: float = 1e-3, account: Account = UNLIMITED) -> Answer:
    """The best strategy for the tables of a group; `views` has the columns that the group looks at."""
    account.charge(GROUP_SECONDS * (1 + len(views) + len(terms)))
    terms, apart = separate(terms, views)
    answers = [solve_where(where, kind, views, tolerance, account) for where, kind in apart]
    gone = {c for where, _ in apart for c in columns_in(where)}
    shared = sorted(i for i in views if isinstance(i, int) and views[i].rows is not None and i not in gone)
    rest = _solve_rest(terms, views, shared, tolerance, account)
    answers.append(rest)
    return Answer(
        float(np.prod([one.upper for one in answers])),
        float(np.prod([one.lower for one in answers])),
        tuple(choice for one in answers for choice in one.choices),
        rest.weights,
    )


def columns_in(where: Where) -> tuple[int, ...]:
    """The columns of what a factor is left on."""
    return where if isinstance(where, tuple) else (where,)


def separate(terms: GroupTerms, views: Views) -> tuple[GroupTerms, list[tuple[Where, int]]]:
    """The columns on which all tables have the same factor, but for a multiple; and the tables without them.

    Columns that are tied are taken together, if no table looks at them in another way.
    """
    apart: dict[Where, tuple[int, dict[int, float]]] = {}
    used: dict[Where, set[int]] = {where: set() for where in views}
    times: dict[Where, int] = dict.fromkeys(views, 0)
    for left in terms:
        for where, kind in left:
            used[where].add(kind)
            times[where] += 1
    tied = {c for where in views if isinstance(where, tuple) and times[where] for c in where}
    for where, own in views.items():
        if isinstance(where, tuple):
            there = used[where]
            if times[where] < len(terms) or not there:  # then some look at them in another way, or none at all
                continue
        else:
            there = used[where] | ({0} if times[where] < len(terms) else set())
            if where in tied or (there == {0} and own.rows is None):
                continue
        ratios = _alike(own, there)
        if ratios is not None:
            apart[where] = min(there), ratios
    rest: GroupTerms = {}
    for kinds, weight in terms.items():
        table = dict(kinds)
        scaled = weighed(weight, (ratios[table.get(where, 0)] for where, (_, ratios) in apart.items()))
        left = tuple((where, kind) for where, kind in kinds if where not in apart)
        rest[left] = rest.get(left, 0.0) + scaled
    return rest, [(where, kind) for where, (kind, _) in apart.items()]


def _alike(own: ColumnView | JointView, kinds: set[int]) -> dict[int, float] | None:
    """Every factor as a multiple of the first, if they are."""
    first, *others = sorted(kinds)
    ratios = {first: 1.0}
    if not others:
        return ratios
    one = own.gram(first)
    size = float(np.abs(one).max(initial=0.0))
    for kind in others:
        two = own.gram(kind)
        ratio = float(np.abs(two).max()) / size if size else 0.0
        if size == 0 or np.abs(two - ratio * one).max() > 1e-13 * ratio * size:
            return None
        ratios[kind] = ratio
    return ratios


def solve_where(where: Where, kind: int, views: Views, tolerance: float, account: Account) -> Answer:
    """The best strategy for one factor on a column, or on columns that are tied."""
    if not isinstance(where, tuple):
        return solve_column(where, {kind: 1.0}, view_of(views, where), tolerance, account)
    return _solve_rest({((where, kind),): 1.0}, views, list(where), tolerance, account)


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


def alone(i: int, weights: Mapping[int, float]) -> GroupTerms:
    """Tables of one column, by factor."""
    return {((i, kind),) if kind else (): weight for kind, weight in weights.items()}


def _solve_rest(
    terms: GroupTerms, views: Views, shared: list[int], tolerance: float, account: Account, start: Dense | None = None
) -> Answer:
    """Blocks, each by the spreads that it keeps, solved together over the classes of the shared columns."""
    classes = prod(view_of(views, i).classes for i in shared)
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
        _check_spanned(own, views, one)
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


def blocks_of(terms: GroupTerms, views: Views, shared: list[int]) -> dict[Key, dict[Left, float]]:
    """For every block the factors of its matrix columns, with the weight of each combination of them."""
    found: dict[Key, dict[Left, float]] = {}
    for kinds, weight in terms.items():
        asked = {c for where, _ in kinds for c in columns_in(where)}
        beside: Left = tuple((i, 0) for i in shared if i not in asked)
        options: list[list[tuple[Where, int, float]]] = []  # column, orbit (−1: none), factor
        for i, kind in kinds:
            own = views[i]
            if isinstance(own, JointView):  # whose columns have no orbits of several values
                options.append([(i, -1, 1.0)])
                continue
            plain = 1.0 if own.rows is not None else float(own.mean[kind])
            options.append([(i, -1, plain)] * (plain > 0))
            options[-1] += [(i, int(o), float(own.spread[kind, o])) for o in np.flatnonzero(own.spread[kind] > 0)]
        for choice in product(*options):
            key = tuple((i, o) for i, o, _ in choice if isinstance(i, int) and o >= 0)
            spreading = {i for i, _ in key}
            into = found.setdefault(key, {})
            matrix = (one for one in (*kinds, *beside) if one[0] not in spreading and views[one[0]].rows is not None)
            left: Left = tuple(sorted(matrix, key=lambda one: columns_in(one[0])))
            into[left] = into.get(left, 0.0) + weighed(weight, (factor for _, _, factor in choice))
        if len(found) > MOST_BLOCKS:
            raise TooManyClassesError(f"more than {MOST_BLOCKS:,} blocks")
    return found


def _closed_form(found: Mapping[Key, Mapping[Left, float]], views: Views) -> Answer:
    """Blocks of one number each: shares ∝ the roots of their errors."""
    free = {key: freedom(key, views) for key in found}
    roots = {key: np.sqrt(sum(own.values()) * free[key][0] * free[key][1]) for key, own in found.items()}
    total = float(sum(roots.values()))
    pieces = []
    for key, root in roots.items():
        if sum(found[key].values()) > 0:
            scale = np.sqrt(root / total / free[key][1])
            pieces.append(ResidualFactor((), key, np.array([[scale]]), np.array([[1 / scale]])))
    return Answer(total**2, total**2, (tuple(pieces),))


def freedom(key: Key, views: Views) -> tuple[float, float]:
    """Of the spreads: dimensions, and the squared column norm of their projection."""
    counts = [int(view_of(views, i).counts[o]) for i, o in key]
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


def assemble(key: Key, own: Mapping[Left, float], views: Views, shared: list[int]) -> AssembledBlock:
    """A block's matrix from the factors of its matrix columns."""
    times, norm = freedom(key, views)
    spreading = dict(key)
    matrix = tuple(i for i in shared if i not in spreading)
    sizes = {i: view_of(views, i).classes for i in shared}
    rows: list[Dense] = [np.zeros((0, prod(sizes[i] for i in matrix)))]
    for left, weight in own.items():
        rows.append(np.sqrt(weight) * _queries(left, views))
        if sum(map(len, rows)) > 2 * rows[0].shape[1] + 64:
            rows = [rows[0], np.asarray(np.linalg.qr(np.concatenate(rows), mode="r"))]
    _, sigma, Vt = np.linalg.svd(np.concatenate(rows), full_matrices=False)
    rank = int(np.sum(sigma > sigma[0] * 1e-12 * max(1, len(sigma)) ** 0.5)) if sigma.size and sigma[0] > 0 else 0
    R, pseudo = sigma[:rank, None] * Vt[:rank], Vt[:rank].T / sigma[:rank]
    centres = ((view_of(views, i).centre, sizes[i]) for i in matrix)
    centred = kron(np.eye(n) if centre is None else centre for centre, n in centres)
    classes = np.indices([sizes[i] for i in shared]).reshape(len(shared), -1)
    column = np.zeros(classes.shape[1], dtype=np.int64)
    for place, i in enumerate(shared):
        column = column if i in spreading else column * sizes[i] + classes[place]
    for place, i in enumerate(shared):
        column = np.where(classes[place] == spreading[i], column, -1) if i in spreading else column
    return AssembledBlock(key, matrix, R, pseudo, centred, times, norm, Block(np.sqrt(times * norm) * R, column))


def assembly_price(one: AssembledBlock) -> float:
    """What a block's matrix takes: the singular values of its rows."""
    return float(ASSEMBLY_SECONDS + 20.0 * len(one.R) * one.R.shape[1] ** 2 / FLOPS)


def view_of(views: Views, i: int) -> ColumnView:
    """Of a column."""
    own = views[i]
    assert isinstance(own, ColumnView)
    return own


def _queries(left: Left, views: Views) -> Dense:
    """What is left of a table on matrix columns: query × combination of their classes, in the order of the columns."""
    factors = []
    for where, kind in left:
        rows = views[where].rows
        assert rows is not None
        factors.append(np.asarray(rows[kind]))
    found, order = kron(factors), [c for where, _ in left for c in columns_in(where)]
    if order == sorted(order):
        return found
    wide = found.reshape(-1, *(view_of(views, c).classes for c in order))
    return wide.transpose(0, *(1 + np.argsort(order))).reshape(found.shape)


def _check_spanned(own: Mapping[Left, float], views: Views, block: AssembledBlock) -> None:
    """Every query must be a combination of what is measured, however little its table weighs beside the others."""
    R = block.R
    basis = R / np.linalg.norm(R, axis=1, keepdims=True)  # at right angles, as a singular value decomposition has them
    for left in (left for left, weight in own.items() if weight > 0):
        Z = _queries(left, views)
        sizes = np.linalg.norm(Z, axis=1)
        misses = np.linalg.norm(Z - (Z @ basis.T) @ basis, axis=1)
        if np.any(misses > SPANNED * sizes + 1e-13 * sizes.max(initial=0.0)):
            raise StrategyError(LOST)
