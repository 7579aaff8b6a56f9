"""The least largest error: give the worst queries more weight until they are no longer the worst.

For Gaussian noise the weights and the strategy are found together, exactly. For Laplace noise the problem is not
convex; equal weights come first, then the Gaussian ones, and a few rounds of reweighting follow. The best strategy
that was seen is returned, baselines included.
"""

from __future__ import annotations

import numpy as np

from batchdp.bounds.largest_error import certify_worst
from batchdp.linalg.matrix import Dense
from batchdp.portfolio.baselines import FEW_CELLS
from batchdp.portfolio.search import Progress
from batchdp.strategies.hierarchical import hierarchical
from batchdp.strategies.low_rank import low_rank
from batchdp.strategies.low_rank.ranks import may_pay
from batchdp.strategies.matrix_mechanism import matrix_mechanism
from batchdp.strategies.noise_on_data import noise_on_data
from batchdp.strategies.noise_on_results import noise_on_results
from batchdp.strategies.p_identity import p_identity
from batchdp.strategies.strategy import Privacy, Strategy
from batchdp.strategies.wavelet import wavelet
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import SMALLEST, Workload

ROUNDS = 6
DEFAULT_SECONDS = 2.0
"""Of a round."""
LEAST_WEIGHT = 1e-3
"""Of the mean: a query that matters little must still be answerable."""
MANY_CELLS = 4096
"""Above this, baselines on single cells are left out: they are only there for small batches."""


def optimize_max(
    workload: Workload, privacy: Privacy, seconds: float | None, seed: int, progress: Progress | None
) -> Strategy:
    """The strategy with the least largest (importance times) variance."""
    worst = certify_worst(workload)
    if privacy == "zcdp":
        reduction = reduce(workload)
        strategy = Strategy.lifted(
            reduction,
            worst.measure,
            method="gaussian",
            privacy="zcdp",
            rounds=worst.rounds,
            status=worst.status,
        )
        return strategy.with_worst_case(worst)
    candidates = _baselines(workload, registered=seconds is None)
    equal = np.full(workload.queries, 1 / workload.queries)
    weights, cancelled = equal, False

    def watch(share: float, doing: str, error: float) -> bool:
        nonlocal cancelled
        cancelled = cancelled or bool(progress and progress((round_ + share) / ROUNDS, doing, error))
        return cancelled

    share_of_time = DEFAULT_SECONDS if seconds is None else seconds / ROUNDS
    for round_ in range(ROUNDS):
        strategy = _weighted(workload, weights, share_of_time, seed, watch)
        candidates.append(strategy)
        if cancelled:
            break
        variances = _importance(workload) * strategy.per_query_variance(epsilon=1.0)
        mean = float(weights @ variances)
        if mean == 0:
            break
        moved = worst.query_weights if round_ == 0 else weights * variances / mean
        weights = np.maximum(moved, LEAST_WEIGHT / len(weights))
        weights /= weights.sum()
    best = min(candidates, key=lambda one: float(np.max(_importance(workload) * one.per_query_variance(epsilon=1.0))))
    return best.with_worst_case(worst)


def _importance(workload: Workload) -> Dense:
    return np.ones(workload.queries) if workload.weights is None else workload.weights


def _weighted(workload: Workload, weights: Dense, seconds: float | None, seed: int, progress: Progress) -> Strategy:
    """The best sum with these weights on top of the workload's own, as a strategy for the workload itself."""
    from batchdp.portfolio import optimize_sum

    heavy = np.maximum(weights, LEAST_WEIGHT / len(weights)) * _importance(workload)
    heavy = np.maximum(heavy / heavy.max(), SMALLEST)
    found = optimize_sum(Workload(workload.matrix, workload.names, heavy), seconds, seed, progress)
    return Strategy(
        workload,
        found.measurement,
        found.reconstruction,
        method=found.method,
        rounds=found.rounds,
        status=found.status,
    )


def _baselines(workload: Workload, *, registered: bool) -> list[Strategy]:
    """Mechanisms that the result must not be worse than; the searching ones only where there is time for them."""
    found = [noise_on_data(workload, merged=True)]
    if workload.cells <= MANY_CELLS:
        found += [noise_on_results(workload), wavelet(workload), hierarchical(workload)]
        found.append(noise_on_results(workload, least_squares=True))
    if registered:
        found.append(p_identity(workload))
        if may_pay(reduce(workload).reduced) or workload.cells <= FEW_CELLS:
            found.append(low_rank(workload))
        if workload.cells <= FEW_CELLS:
            found.append(matrix_mechanism(workload))
    return found
