"""The low-rank mechanism: the paper's own."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from batchdp.checks import finite, whole
from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.strategies.low_rank import fast, paper, working_set
from batchdp.strategies.low_rank.program import Pair, Progress, completed, first_measure
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.reduction import Reduction, reduce
from batchdp.workloads.workload import Workload, as_workload

ALGORITHMS = ("fast", "paper")
PENALTIES = (0.03, 0.3)
"""First β as a multiple of r: the low one is nearly always better, the other one quicker."""


@one_thread
def low_rank(
    workload: Workload | ArrayLike | Any,
    rank: int | None = None,
    relaxation: float = 0.0,
    algorithm: Literal["fast", "paper"] = "fast",
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Strategy:
    """Minimise ‖B‖²_F subject to W = B L and columns of L of L1 norm at most 1 (Formula 7).

    Args:
        workload: W.
        rank: r, the number of measurements; ceil(1.2 rank(W)) if left out, and at least rank(W) unless relaxed.
        relaxation: γ. Above 0, ‖W − B L‖_F may be up to γ (Formula 8); the strategy then carries the structural
            error, and asks for a bound on Σ x² when it reports an expected error.
        algorithm: "fast", or "paper" for Algorithms 1 and 2 as printed, without merging columns.
        seed: of the random rotation of the start.
        progress: called with (round, relative residual, ‖B‖²_F); a true answer ends the search early.
    """
    workload = as_workload(workload)
    if algorithm not in ALGORITHMS:
        raise StrategyError(f'algorithm={algorithm!r} must be "fast" or "paper"')
    relaxation = finite("relaxation", relaxation, least=0)
    seed = whole("seed", seed, 0)
    # ‖W − B L‖_F counts every cell, so a relaxed problem keeps them all.
    reduction = reduce(workload, merge=algorithm == "fast" and relaxation == 0)
    R, k = reduction.reduced, reduction.rank
    r = _checked_rank(rank, k, relaxation)
    if k == 0:
        return Strategy.lifted(reduction, np.zeros((0, reduction.columns)), method="low-rank")
    # The lightest query's residual counts least in the weighted problem, and as much as any in ‖W − B L‖_F.
    gamma = relaxation if workload.weights is None else relaxation * float(np.sqrt(workload.weights.min()))
    solve = paper.solve if algorithm == "paper" else solve_fast
    pair = solve(R, r, gamma, seed, progress)
    if relaxation > 0 and r >= k:
        exact = solve(R, r, 0.0, seed, progress)  # within γ too, and sometimes better
        pair = exact if pair is None or (exact is not None and exact.error < pair.error) else pair
    if pair is None and relaxation > 0 and r < k:
        raise StrategyError(f"relaxation={relaxation!r} was not reached with rank={r}; raise one of the two")
    if pair is None or (algorithm == "fast" and relaxation == 0 and pair.status != "converged"):
        pair = _fallback(reduction, r, seed, pair)
    return Strategy.lifted(
        reduction,
        pair.measure,
        pair.reconstruct,
        method="low-rank",
        rounds=pair.rounds,
        status=pair.status,
        relaxation=relaxation,
    )


def _fallback(reduction: Reduction, rank: int, seed: int, found: Pair | None) -> Pair:
    """What is left of a run that was cancelled early or lost a direction for good: the best pair that is at hand.

    The start is exact (Lemma 3), and so are the queries themselves where there are measurements enough for them.
    """
    R = reduction.reduced
    start = completed(R, first_measure(R, rank, np.random.default_rng(seed)), status="fell back to its start")
    queries = None
    if reduction.workload.queries <= rank:
        queries = completed(R, reduction.merged_workload(), status="fell back to the queries")
    return min((pair for pair in (found, start, queries) if pair is not None), key=lambda pair: pair.error)


def solve_fast(
    R: Dense,
    rank: int,
    relaxation: float,
    seed: int,
    progress: Progress | None = None,
    give_up_above: float = np.inf,
) -> Pair | None:
    """By a careful schedule; by a quick one too where that costs little or the careful one fails.

    None if neither can come below `give_up_above` in ‖B‖²_F.
    """
    best: Pair | None = None
    cancelled = False

    def watch(round_: int, residual: float, size: float) -> bool:
        nonlocal cancelled
        cancelled = bool(progress and progress(round_, residual, size))
        return cancelled

    for penalty in PENALTIES:
        bar = give_up_above if best is None else best.error
        beta = penalty * rank
        if relaxation == 0 and working_set.pays(R.shape[1], len(R), rank):
            pair = working_set.solve(R, rank, penalty=beta, seed=seed, give_up_above=bar, progress=watch)
        else:
            start = first_measure(R, rank, np.random.default_rng(seed))
            pair = fast.solve(R, start, penalty=beta, relaxation=relaxation, give_up_above=bar, progress=watch)
        best = pair if pair is not None and pair.error < bar else best
        done = best is not None and best.status == "converged"
        if cancelled or (done and R.size > fast.SMALL):
            break
    return best


def _checked_rank(rank: int | None, rank_of_workload: int, relaxation: float) -> int:
    if rank is None:
        return max(1, ceil(1.2 * rank_of_workload))
    rank = whole("rank", rank, 1)
    if rank < rank_of_workload and relaxation == 0:
        raise StrategyError(
            f"rank={rank} is below the workload's rank {rank_of_workload}: no such pair reproduces it; "
            "raise it, or allow a relaxation"
        )
    return rank
