"""The least largest error: give the worst queries more weight until they are no longer the worst.

For Gaussian noise the weights and the strategy are found together, exactly. For Laplace noise the problem is not
convex; equal weights come first, then the Gaussian ones, and a few rounds of reweighting follow. The best strategy
that was seen is returned, baselines included.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from batchdp.bounds.largest_error import solve_max
from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, dense
from batchdp.portfolio.options import Options
from batchdp.portfolio.sums import optimize_sum
from batchdp.privacy import LAPLACE, Noise
from batchdp.strategies import families_for
from batchdp.strategies.account import Progress
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.reduction import Reduction, reduce
from batchdp.workloads.workload import SMALLEST, MatrixWorkload

ROUNDS = 6
"""How often the queries are weighed anew under Laplace noise."""
DEFAULT_SECONDS = 2.0
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
        cancelled = cancelled or bool(progress and progress((round_ + share) / ROUNDS, doing, error))
        return cancelled

    share_of_time = DEFAULT_SECONDS if seconds is None else seconds / ROUNDS
    for round_ in range(ROUNDS):
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
