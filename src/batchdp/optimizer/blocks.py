"""The portfolio on matrices: blocks and groups of rows, the least sum of squared errors, the least largest one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, column_norms, dense, plain
from batchdp.linalg.product import CellMap
from batchdp.linalg.threads import in_threads, one_thread
from batchdp.optimizer.families import families_for
from batchdp.optimizer.options import Options
from batchdp.optimizer.together import spanning
from batchdp.privacy import LAPLACE, Noise
from batchdp.strategies.account import Account, EndedError, PairSearch, Progress, reduction_price
from batchdp.strategies.blocks import assembled, best_shares, error_of
from batchdp.strategies.bounds.spectral import solve_max
from batchdp.strategies.pair import PairStrategy, complete
from batchdp.text import Outcome, timed
from batchdp.workloads.layers import layers, partitions
from batchdp.workloads.matrix import SMALLEST, MatrixWorkload, Pair
from batchdp.workloads.reduction import Reduction, merge_parallel, reduce

SECONDS = 40.0
"""For all blocks together, where the caller gives none and each would take seconds."""
MANY = 8
"""How many blocks may each take the time that its size asks for."""
MOST_ENTRIES = 1_000_000
"""Queries times cells up to which closed forms are tried on all blocks at once: measurements that span them."""
LEAST_GAIN = 1e-3
"""How much smaller the error of measurements that span blocks must be: they are harder to explain."""

OfBlock = Callable[[MatrixWorkload, Options], PairStrategy]
"""From a block and what is asked of the search to its strategy."""


@one_thread
def optimize_blocks(workload: MatrixWorkload, noise: Noise, options: Options, of_block: OfBlock) -> PairStrategy:
    """The strategies of all blocks as one, or a closed form on the whole if that is better."""
    parts = [part for _, _, part in workload.parts()]
    if options.seconds is None and len(parts) > MANY:
        options = replace(options, seconds=SECONDS)
    objective, progress = options.objective, options.progress
    found = []
    for i, part in enumerate(parts):

        def watch(share: float, trying: str, _: float, i: int = i) -> object:
            assert progress is not None
            # An error of one block says nothing about the batch.
            return progress((i + share) / len(parts), f"block {i + 1} of {len(parts)}: {trying}", float("nan"))

        found.append(of_block(part, options.split(len(parts), None if progress is None else watch)))
    methods = ", ".join(sorted({strategy.method for strategy in found}))
    name = f"{len(found)} blocks: {methods}" if found else "nothing to measure"
    best = assembled(workload, found, noise, method=name, objective=objective)
    if found and workload.queries * workload.cells <= MOST_ENTRIES:
        reduction = reduce(workload)
        closed = [family for family in families_for(noise) if not family.searches and family.worth(reduction)]
        whole = [family.method(workload) for family in closed]
        best = min([best, *whole], key=lambda strategy: error_of(strategy, objective))
    across = spanning(workload, noise, objective, lambda kinds: of_block(kinds, options))
    least = min(across, key=lambda strategy: error_of(strategy, objective), default=best)
    return least if error_of(least, objective) < (1 - LEAST_GAIN) * error_of(best, objective) else best


LARGE = 30_000_000
"""Queries times distinct columns of a matrix from which no search on all of it together is begun."""
MOST_GROUP_ENTRIES = 30_000_000
"""Queries times distinct columns of a group."""
FEWEST_COLUMNS = 64
"""Distinct columns from which groups of rows are tried."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows, and the pair for their merged columns when it is wanted; its ‖B‖²_F with the queries' weights."""

    rows: NDArray[np.int64]
    cells: CellMap
    error: float
    pair: Callable[[], Pair | None]


def is_large(workload: MatrixWorkload) -> bool:
    """Whether a sparse matrix is too large for searches on all of it together."""
    if not sparse.issparse(workload.matrix) or len(workload.blocks) > 1:
        return False
    W = sparse.csr_array(workload.matrix)
    return W.shape[0] * W.shape[1] > LARGE and W.shape[0] * len(merge_parallel(W)[0]) > LARGE


def may_group(workload: MatrixWorkload) -> bool:
    """Whether groups of rows are worth a try beside all searches: a sparse matrix of a few layers."""
    if not sparse.issparse(workload.matrix) or len(workload.blocks) > 1 or workload.cells < FEWEST_COLUMNS:
        return False
    known = layers(sparse.csr_array(workload.matrix))
    return known is not None and 2 <= len(known) < workload.queries


@one_thread
def by_rows(workload: MatrixWorkload) -> PairStrategy | None:
    """The best groups of rows, or all rows as one where these are not better; None where no family takes them."""
    W = sparse.csr_array(plain(workload.matrix) if workload.weights is None else plain(workload.weighted))
    known: dict[bytes, _Group | None] = {}

    def solved(rows: NDArray[np.int64]) -> _Group | None:
        key = rows.tobytes()
        if key not in known:
            known[key] = _solved(W, rows)
        return known[key]

    if W.nnz == 0:
        return None
    best: list[_Group] | None = None
    least = np.inf
    for every in ([np.arange(W.shape[0])], *partitions(W)):
        rows = [own for own in every if W[own].nnz]  # queries of nothing need no measurement
        groups = [one for one in map(solved, rows) if one is not None]
        if len(groups) == len(rows) and (total := _total(groups)) < least:
            best, least = groups, total
    return None if best is None else _assembled(workload, best)


def _solved(W: sparse.csr_array, rows: NDArray[np.int64]) -> _Group | None:
    own = sparse.csr_array(W[rows])
    kept, classes, scales = merge_parallel(own)
    merged = sparse.csr_array(sparse.csc_array(own)[:, kept])
    if merged.shape[0] * merged.shape[1] > MOST_GROUP_ENTRIES:
        return None
    found = [one for one in (family.on_sparse(merged) for family in families_for(LAPLACE)) if one is not None]
    if not found:
        return None
    error, pair = min(found, key=lambda one: one[0])
    return _Group(rows, CellMap(classes, scales, len(kept)), error, pair)


def _meetings(groups: list[_Group]) -> list[list[int]]:
    """The sets of groups that some cell is in at once."""
    there = np.stack([group.cells.factors != 0 for group in groups])
    return [np.flatnonzero(column).tolist() for column in np.unique(there, axis=1).T if column.any()]


def _total(groups: list[_Group]) -> float:
    errors = np.array([group.error for group in groups])
    shares = best_shares(LAPLACE, errors, _meetings(groups), of_sum=True)
    return float((errors / shares**2).sum())


def _assembled(workload: MatrixWorkload, groups: list[_Group]) -> PairStrategy | None:
    pairs = [group.pair() for group in groups]
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(groups):
        return None
    shares = best_shares(LAPLACE, np.array([group.error for group in groups]), _meetings(groups), of_sum=True)
    roots = np.ones(workload.queries) if workload.weights is None else np.sqrt(workload.weights)
    measurements = []
    B = np.zeros((workload.queries, sum(pair.measure.shape[0] for pair in known)))
    start = 0
    for group, pair, share in zip(groups, known, shares, strict=True):
        scale = float(share) / float(column_norms(pair.measure, 1).max())
        L = sparse.csr_array(plain(pair.measure)) @ group.cells.matrix()
        measurements.append(sparse.csr_array(L * scale))
        own: Dense = dense(pair.reconstruct) / (scale * roots[group.rows])[:, None]
        B[group.rows, start : start + own.shape[1]] = own
        start += own.shape[1]
    return PairStrategy(
        workload,
        sparse.csr_array(sparse.vstack(measurements)),
        B,
        method=f"{len(groups)} groups of queries: p-identity" if len(groups) > 1 else "p-identity",
        status=Outcome.BEST_OF_STARTS,
    )


CLASSES = tuple(a * 10.0**b for b in (-1, 0, 1, 2, 3) for a in (1, 2, 3, 5, 7))
"""The classes of budget: `seconds` is rounded down to one of these."""
NOMINAL_SHARE = 0.8
"""The share of the caller's seconds that is planned with: the account is an estimate of the time of one core."""


@one_thread
def optimize_sum(workload: MatrixWorkload, seconds: float | None, seed: int, progress: Progress | None) -> PairStrategy:
    """The best of all families with Laplace noise, for one block of cells."""
    reduction = reduce(workload)
    if reduction.rank == 0:
        nothing = Pair(np.zeros((0, reduction.columns)), np.zeros((0, 0)))
        return PairStrategy.lifted(reduction, nothing, method="nothing to measure")
    scale = np.sqrt(reduction.columns) / float(np.linalg.norm(reduction.reduced))
    R = reduction.reduced * scale
    account = Account(_nominal(R, seconds), progress)
    search = PairSearch(R, account, scale, thorough=seconds is None)
    if seconds is not None:
        account.charge(reduction_price(workload.queries, reduction.columns))
    with suppress(EndedError):
        _run_families(search, reduction, seed)
    try:
        return PairStrategy.lifted(reduction, search.end(), method=search.method)
    except StrategyError:  # queries or weights of so different sizes that rounding drowns some of them
        return _best_that_holds(workload)


def _run_families(search: PairSearch, reduction: Reduction, seed: int) -> None:
    """Closed forms first, then work where an estimate says it can pay."""
    members = families_for(LAPLACE)
    for family in members:
        with timed(f"tried {family.name} on merged cells"):
            for pair in family.on_columns(search.R):
                search.offer_pair(family.name, pair)
    best = search.error / search.scale**2
    named: list[tuple[str, Dense]] = []
    for family in members:
        with timed(f"tried {family.name} over cells"):
            measures = family.over_cells(reduction, best, thorough=search.thorough)
            named += ((family.name, measure) for measure in measures)
    exact = in_threads(lambda one: complete(search.R, one[1]), named, entries=search.R.size)
    for (name, _), found in zip(named, exact, strict=True):
        search.keep(name, found)
    if reduction.columns == 1:
        return
    for family in members:
        with timed(f"refined by {family.name}"):
            family.refine(search)
    parts = [family.part(search.R) for family in members]
    for i, family in enumerate(members):
        with timed(f"searched in {family.name}"):
            family.search(search, reduction, seed, parts[i] / sum(parts[i:]) if parts[i] else 0.0)


def _best_that_holds(workload: MatrixWorkload) -> PairStrategy:
    """The best of the closed forms that reproduce the workload to its last digit."""
    found = []
    for family in families_for(LAPLACE):
        for variant in () if family.searches else family.variants():
            with suppress(StrategyError):
                found.append(variant(workload))
    if not found:
        raise StrategyError("no closed form reproduces the workload; rescale queries whose coefficients differ in size")
    return min(found, key=lambda one: one.expected_squared_error(epsilon=1.0))


def _nominal(R: Dense, seconds: float | None) -> float:
    """The budget in nominal seconds."""
    if seconds is not None:
        return NOMINAL_SHARE * max((c for c in CLASSES if c <= seconds), default=CLASSES[0])
    return sum(family.nominal_seconds(R) for family in families_for(LAPLACE))


TURNS = 6
"""How often the queries are weighed anew under Laplace noise."""
TURN_SECONDS = 2.0
"""What a round takes where the caller sets no time."""
LEAST_WEIGHT = 1e-3
"""The least weight of a query relative to the mean: one that matters little must still be answerable."""


def optimize_max(workload: MatrixWorkload, noise: Noise, options: Options) -> PairStrategy:
    """The strategy with the least largest (importance times) variance, for one block of cells."""
    reduction = reduce(workload)
    worst = solve_max(dense(reduction.rows), reduction.reduced, tolerance=options.tolerance)
    if noise.bound_is_tight:  # the convex optimum is a strategy of this noise
        return PairStrategy.lifted(reduction, worst.pair, method=noise.name.lower(), noise=noise, proven=(worst.bound,))
    candidates = _registered(reduction, thorough=options.seconds is None)
    assert worst.bound.query_weights is not None
    candidates += _reweighted(workload, worst.bound.query_weights, options)
    best = min(candidates, key=lambda one: one.largest_variance(**noise.reference.arguments))
    return replace(best, proven=(worst.bound,))


def _reweighted(workload: MatrixWorkload, worst: Dense, options: Options) -> list[PairStrategy]:
    """The best sums under equal weights, under those of the convex optimum, and under a few that follow from these."""
    progress, seconds = options.progress, options.seconds
    weights, cancelled, found = np.full(workload.queries, 1 / workload.queries), False, []

    def watch(share: float, doing: str, error: float) -> bool:
        nonlocal cancelled
        cancelled = cancelled or bool(progress and progress((round_ + share) / TURNS, doing, error))
        return cancelled

    share_of_time = TURN_SECONDS if seconds is None else seconds / TURNS
    for round_ in range(TURNS):
        strategy = _weighted(workload, weights, share_of_time, options.seed, watch)
        found.append(strategy)
        if cancelled:
            break
        variances = _importance(workload) * strategy.per_query_variance(epsilon=1.0)
        mean = float(weights @ variances)
        if mean == 0:
            break
        moved = worst if round_ == 0 else weights * variances / mean
        weights = np.maximum(moved, LEAST_WEIGHT / len(weights))
        weights /= weights.sum()
    return found


def _importance(workload: MatrixWorkload) -> Dense:
    return np.ones(workload.queries) if workload.weights is None else workload.weights


def _weighted(
    workload: MatrixWorkload, weights: Dense, seconds: float | None, seed: int, progress: Progress
) -> PairStrategy:
    """The best sum with these weights on top of the workload's own, as a strategy for the workload itself."""
    heavy = np.maximum(weights, LEAST_WEIGHT / len(weights)) * _importance(workload)
    heavy = np.maximum(heavy / heavy.max(), SMALLEST)
    found = optimize_sum(MatrixWorkload(workload.matrix, workload.names, heavy), seconds, seed, progress)
    return replace(found, workload=workload, proven=())  # which would be about other weights


def _registered(reduction: Reduction, *, thorough: bool) -> list[PairStrategy]:
    """What the result must not be worse than: every family that can win here, the searching ones if there is time."""
    found = []
    for family in families_for(LAPLACE):
        if family.worth(reduction) and (thorough or not family.searches):
            for variant in family.variants():
                with suppress(StrategyError):  # queries of so different sizes that rounding drowns some of them
                    found.append(variant(reduction.workload))
    return found
