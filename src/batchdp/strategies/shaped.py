"""Noise in the shape of the batch (Hardt and Talwar 2010): which measurements share a body.

K is the hull of ± whatever one record can add to the measurements. So noise of density ∝ exp(−ε ‖z‖_K) is ε-private by
itself, whatever the queries' coordinates. Several groups of measurements, each with its body and its share of ε, keep
the dimension small enough to draw from.

**Blocks.** A record has a cell in several blocks at once. Those whose sums of columns are few enough have bodies in
common, which are smaller than bodies of each block with a part of ε; others have bodies of their own. All ways of
putting blocks together that are tried compete.

**Groups.** With E_g the error of group g at the whole ε, shares s_g ∝ E_g^⅓ leave (Σ E_g^⅓)³ in all. Parts are tried in
the order of the singular values, with borders that move as long as that helps, and as queries in the order in which
they are asked. For the least largest error, shares are found by giving the worst queries more weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, Matrix, assemble, dense, plain, row_squares
from batchdp.linalg.threads import one_thread
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import DEFAULT, Group, Sets, Shape, ShapeLimits, joint_columns, rounded, sampled
from batchdp.workloads.matrix import MatrixWorkload
from batchdp.workloads.reduction import Reduction, reduce

__all__ = ["DEFAULT", "Group", "Shape", "ShapeLimits", "shaped"]

METHOD = "shaped"
PILOT = 400
"""Directions in which a candidate is looked at; its error is then right to a few percent."""
PARTS = 10_000
"""Shares of ε are so many parts of it."""
INDEPENDENT = 0.1
"""What must be left of a query, relative, beside those before it, to be one of those that stand for the batch."""
MOST_SKEWED = 2.0**10
"""How many times longer than wide a body may be in the queries' own coordinates."""
JOINT = 2000
"""Sums of columns of several blocks up to which these have bodies in common."""
MOST_BODIES = 12
"""Of all blocks together."""
REWEIGHTED = 300
"""Rounds in which the worst queries are given more weight."""

Coordinates = tuple[Dense, Dense, bool]
"""X and N with R = N X, of which rows of X that follow each other may share a body; and whether X is made of the
queries themselves, so that integers stay integers, and are measured without bias."""
Price = Callable[[Dense], float]
"""From what one record can add to the measurements of a group to the seconds that a draw of its noise takes."""
Sizes = tuple[int, ...]
Border = tuple[int, int]
Blocks = tuple[int, ...]
"""Numbers of blocks whose measurements may share bodies."""


@dataclass(frozen=True, eq=False)
class _Bundle:
    """Blocks whose measurements may share bodies, as a batch of its own."""

    reduction: Reduction
    queries: NDArray[np.intp]
    """Those of the workload that look at these blocks."""
    cells: NDArray[np.intp]
    """Of the workload, that are in these blocks."""
    meetings: Sets
    """By the places of the blocks in this bundle."""

    def columns(self, measure: Dense) -> Dense:
        """What one record can add to measurements of the reduced problem; of one block these are its columns."""
        if len(self.reduction.workload.blocks) == 1:
            return measure
        classes, scales = self.reduction.classes, self.reduction.scales
        ends = np.cumsum(self.reduction.workload.blocks)[:-1]
        parts = zip(np.split(classes, ends), np.split(scales, ends), strict=True)
        return joint_columns([measure[:, own] * scale for own, scale in parts], self.meetings)


@dataclass(frozen=True, eq=False)
class _Part:
    """Measurements that would share a body."""

    measure: Dense
    reconstruct: Dense
    """What of R they are read as."""
    columns: Dense
    """What one record can add to them."""
    round: Dense
    """The same in coordinates in which the body is nearly round."""
    back: Dense
    """From those coordinates to the measurements' own."""
    error: float
    """At the whole ε = 1, by a few directions."""

    def sample(self, directions: int, rng: np.random.Generator) -> tuple[Dense, Dense]:
        """Points of the body's boundary, and how much of it lies in their directions."""
        points, weights = sampled(self.round, directions, rng)
        return np.asarray(points @ self.back.T), weights


Found = tuple[_Bundle, list[_Part]]


def shaped(
    workload: MatrixWorkload,
    limits: ShapeLimits = DEFAULT,
    *,
    objective: Objective = "sum",
    seed: int = 0,
    price: Price | None = None,
) -> PairStrategy:
    """The strategy with noise in the shape of the batch that has the least simulated error, within the limits.

    A StrategyError says why there is none. Nothing here is random but for the seed.
    """
    problem: StrategyError | None = None
    best: tuple[float, list[Found], float] | None = None
    for bundles in _ways(workload, limits):
        try:
            found, seconds = _search_all(bundles, limits, seed, price)
        except StrategyError as refused:
            problem = refused
            continue
        error = _together([part for _, parts in found for part in parts])
        if best is None or error < best[0]:
            best = error, found, seconds
    if best is None:
        assert problem is not None
        raise problem
    return _strategy(workload, best[1], limits, objective, seed, best[2])


def _ways(workload: MatrixWorkload, limits: ShapeLimits) -> Iterator[list[_Bundle]]:
    """Ways to put blocks together that are worth a try: as many as fit, then each by itself."""
    if len(workload.blocks) == 1:
        yield [_bundle(workload, (0,))]
        return
    starts = np.cumsum((0, *workload.blocks[:-1])).tolist()
    alone: dict[int, _Bundle] = {}
    for _, cells, _ in workload.parts():
        block = starts.index(cells.start)
        alone[block] = _bundle(workload, (block,))
        _check(alone[block].reduction, limits)
    columns = {block: len(_multiples(own.reduction)) for block, own in alone.items()}

    def fits(blocks: Blocks) -> bool:
        sums = (prod(1 + columns[b] for b in met if b in blocks) for met in workload.meetings)
        rank = sum(alone[b].reduction.rank for b in blocks)
        return rank <= limits.rank and sum(sums) <= min(JOINT, limits.columns)

    together: list[Blocks] = []
    for block in sorted(alone, key=lambda b: (columns[b], b)):
        place = next((i for i, own in enumerate(together) if fits((*own, block))), None)
        if place is None:
            together.append((block,))
        else:
            together[place] = tuple(sorted((*together[place], block)))
    if any(len(own) > 1 for own in together):
        yield [alone[own[0]] if len(own) == 1 else _bundle(workload, own) for own in together]
    yield list(alone.values())


def _search_all(
    bundles: list[_Bundle], limits: ShapeLimits, seed: int, price: Price | None
) -> tuple[list[Found], float]:
    """The best groups of every bundle, and the seconds that a draw of all of them takes."""
    rank = sum(one.reduction.rank for one in bundles)
    if rank < 2:
        raise StrategyError(f"a batch of rank {rank} has no shape but Laplace noise")
    if len(bundles) > MOST_BODIES:
        raise StrategyError(f"{len(bundles)} blocks of cells are more than {MOST_BODIES} bodies")
    found, seconds = [], 0.0
    for bundle in bundles:
        _check(bundle.reduction, limits)
        parts, more = _search(bundle, replace(limits, seconds=max(limits.seconds - seconds, 1e-9)), seed, price)
        found.append((bundle, parts))
        seconds += more
    return found, seconds


def _bundle(workload: MatrixWorkload, blocks: Blocks) -> _Bundle:
    """Some blocks as a batch of its own; all of it where there is one block."""
    if len(workload.blocks) == 1:
        reduction, meetings = reduce(workload), workload.meetings
        queries, cells = np.arange(workload.queries), np.arange(workload.cells)
    else:
        starts = np.cumsum((0, *workload.blocks))
        cells = np.concatenate([np.arange(starts[b], starts[b + 1]) for b in blocks])
        W = sparse.csc_array(plain(workload.matrix))[:, cells]
        queries = np.flatnonzero(row_squares(sparse.csr_array(W)))
        weights = None if workload.weights is None else workload.weights[queries]
        kept = {tuple(place for place, b in enumerate(blocks) if b in met) for met in workload.meetings} - {()}
        meetings = tuple(sorted(met for met in kept if not any(set(met) < set(other) for other in kept)))
        own = MatrixWorkload(
            sparse.csr_array(W)[queries].toarray(),
            weights=weights,
            blocks=[workload.blocks[b] for b in blocks],
            meetings=meetings,
        )
        reduction = reduce(own)
    asked = row_squares(reduction.workload.matrix) > 0  # of a query of nothing U has rounding errors
    reduction = replace(reduction, rows=dense(reduction.rows) * asked[:, None])
    return _Bundle(reduction, queries, cells, meetings)


def _multiples(reduction: Reduction) -> Dense:
    """The different columns of cells, as classes and sizes of multiples."""
    touched = reduction.scales != 0
    return np.unique(np.stack([reduction.classes, np.abs(reduction.scales)])[:, touched], axis=1).T


def _check(reduction: Reduction, limits: ShapeLimits) -> None:
    k = reduction.rank
    if k > limits.rank * limits.groups:
        raise StrategyError(
            f"rank {k} is above {limits.groups} groups of {limits.rank}; raise the limits, or ask for less"
        )
    columns = len(_multiples(reduction))
    if columns > limits.columns:
        raise StrategyError(
            f"{columns} different columns are more than {limits.columns}; raise the limit, or ask for less"
        )


@one_thread
def _search(bundle: _Bundle, limits: ShapeLimits, seed: int, price: Price | None) -> tuple[list[_Part], float]:
    """The best groups of all that are tried, and the seconds of a draw; smaller ones where it would take too long."""
    reduction = bundle.reduction
    ways = [_parts_of(*turned, bundle, seed) for turned in _coordinates(reduction, limits)]
    most, seconds = min(limits.rank, reduction.rank), np.inf
    while most >= 1 and (groups := ceil(reduction.rank / most)) <= limits.groups:
        sizes = tuple(map(len, np.array_split(range(reduction.rank), groups)))
        parts = min((_moved(sizes, most, part) for part in ways), key=_together)
        seconds = 0.0 if price is None else sum(price(part.columns) for part in parts)
        if seconds <= limits.seconds:
            return parts, seconds
        most = max(len(part.measure) for part in parts) - 1
    raise StrategyError(f"a draw would take {seconds:.3g} seconds, more than {limits.seconds:g}; raise the limit")


def _together(parts: list[_Part]) -> float:
    return float(sum(np.cbrt(part.error) for part in parts) ** 3)


def _coordinates(reduction: Reduction, limits: ShapeLimits) -> list[Coordinates]:
    """Along the singular values, and the queries; for a single body they do not matter, so the exact ones will do."""
    spectrum, queries = (reduction.reduced, np.eye(reduction.rank), False), _by_queries(reduction)
    if queries is None:
        return [spectrum]
    return [queries] if reduction.rank <= limits.rank else [spectrum, queries]


def _parts_of(every: Dense, back: Dense, exact: bool, bundle: _Bundle, seed: int) -> Callable[[Border], _Part]:
    """From the first and the last of consecutive coordinates to their part, which is looked at once."""

    @cache
    def part(border: Border) -> _Part:
        X, N = every[slice(*border)], back[:, slice(*border)]
        columns = bundle.columns(X)
        L, C = rounded(columns)
        error = _error(*sampled(L, PILOT, np.random.default_rng(seed)), N @ C)
        if exact and np.linalg.cond(C) <= MOST_SKEWED:
            size = np.ldexp(1.0, -int(np.frexp(np.abs(X).max())[1]))  # none may vanish beside another on the lattice
            return _Part(X * size, N / size, columns * size, L, C * size, error)
        measure = L if columns is X else np.asarray(np.linalg.solve(C, X), np.float64)
        return _Part(measure, np.asarray(N @ C), L, L, np.eye(len(L)), error)

    return part


def _error(points: Dense, weights: Dense, reconstruct: Dense) -> float:
    k = points.shape[1]
    return float(k * (k + 1) * (weights @ np.square(points @ reconstruct.T).sum(axis=1)))


def _moved(sizes: Sizes, most: int, part: Callable[[Border], _Part]) -> list[_Part]:
    """The parts of these sizes, with borders moved by one while that helps."""

    def parts(sizes: Sizes) -> list[_Part]:
        ends = np.cumsum(sizes).tolist()
        return [part((end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    best = parts(sizes)
    while True:
        moves = [
            tuple(size + step * ((place == border) - (place == border + 1)) for place, size in enumerate(sizes))
            for border in range(len(sizes) - 1)
            for step in (1, -1)
        ]
        tried = [(_together(parts(one)), one) for one in moves if min(one) >= 1 and max(one) <= most]
        if not tried or min(tried)[0] >= _together(best):
            return best
        sizes = min(tried)[1]
        best = parts(sizes)


def _by_queries(reduction: Reduction) -> Coordinates | None:
    """The first queries that are independent enough to stand for all; None where there are too few."""
    U = dense(reduction.rows)
    chosen: list[int] = []
    Q = np.zeros((0, U.shape[1]))
    for i, row in enumerate(U):
        rest = row - (row @ Q.T) @ Q
        length = float(np.linalg.norm(rest))
        if length > INDEPENDENT * float(np.linalg.norm(row)) > 0:
            chosen.append(i)
            Q = np.vstack([Q, rest / length])
            if len(chosen) == U.shape[1]:
                break
    else:
        return None
    weights = reduction.workload.weights
    N = np.linalg.inv(U[chosen]) * (1.0 if weights is None else np.sqrt(weights[chosen]))
    return reduction.merged_workload()[chosen], np.asarray(N), True


def _strategy(
    workload: MatrixWorkload, found: list[Found], limits: ShapeLimits, objective: Objective, seed: int, seconds: float
) -> PairStrategy:
    """With fresh directions, more of them: a candidate that was chosen for its error is worse than it seemed."""
    rng = np.random.default_rng([seed, 1])
    parts = [part for _, own in found for part in own]
    samples = [part.sample(limits.directions, rng) for part in parts]
    errors = np.array([_error(*sample, part.reconstruct) for sample, part in zip(samples, parts, strict=True)])
    several = (workload.blocks, workload.meetings) if len(workload.blocks) > 1 else ((), ())

    def shape(shares: Sequence[Fraction]) -> Shape:
        groups = (Group(share, *sample) for share, sample in zip(shares, samples, strict=True))
        return Shape(tuple(groups), seconds, *several)

    L, B = _lifted(workload, found)
    made = PairStrategy(workload, L, B, method=METHOD, shape=shape(_in_parts(np.cbrt(errors))))
    if objective == "sum" or len(parts) == 1:
        return made
    assert made.shape is not None
    reads = [dense(made.reconstruction)[:, own] for own, _ in made.shape.parts]
    whole = [replace(group, share=Fraction(1)).covariance for group in made.shape.groups]
    variances = np.stack([np.einsum("ij,ij->i", B @ C, B) for B, C in zip(reads, whole, strict=True)], axis=1)
    weighed = variances if workload.weights is None else variances * workload.weights[:, None]
    return replace(made, shape=shape(_in_parts(_least_largest(weighed))))


def _lifted(workload: MatrixWorkload, found: list[Found]) -> tuple[Matrix, Matrix]:
    """L and B of all bundles, on all cells and for all queries."""
    lifted = []
    for bundle, parts in found:
        measure, reconstruct = (np.vstack([p.measure for p in parts]), np.hstack([p.reconstruct for p in parts]))
        reduction = bundle.reduction
        lifted.append((bundle, reduction.lift_measure(measure), reduction.lift_reconstruct(reconstruct)))
    if len(workload.blocks) == 1:
        return lifted[0][1:]
    ends = np.cumsum([L.shape[0] for _, L, _ in lifted])
    own = np.split(np.arange(ends[-1]), ends[:-1])
    every = ((plain(L), rows, bundle.cells) for (bundle, L, _), rows in zip(lifted, own, strict=True))
    back = ((plain(B), bundle.queries, rows) for (bundle, _, B), rows in zip(lifted, own, strict=True))
    return assemble(every, (ends[-1], workload.cells)), assemble(back, (workload.queries, ends[-1]))


def _in_parts(sizes: Dense) -> list[Fraction]:
    """Shares that go with sizes, in whole parts of ε that are 1 in all."""
    parts = [max(1, int(part)) for part in np.floor(PARTS * sizes / sizes.sum())]
    parts[int(np.argmax(parts))] += PARTS - sum(parts)
    return [Fraction(part, PARTS) for part in parts]


def _least_largest(variances: Dense) -> Dense:
    """Shares s with the least largest Σ_g v_ig / s_g² over queries i: the worst queries are given more weight."""
    weights, best = np.full(len(variances), 1.0), (np.inf, np.ones(variances.shape[1]))
    for _ in range(REWEIGHTED):
        roots = np.cbrt(np.maximum(weights @ variances, 1e-12 * float(np.sum(weights @ variances))))
        shares = roots / roots.sum()
        own = variances @ shares**-2.0
        best = min(best, (float(own.max()), shares), key=lambda one: one[0])
        weights = weights * (own / own.max()) ** 0.5 + 1e-12
        weights /= weights.max()
    return best[1]
