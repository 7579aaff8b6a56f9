"""The family's function: Formula (7) or (8) for one number of measurements."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import StrategyError, check_finite, check_whole
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.families.low_rank import fast, paper
from batchdp.optimizer.families.low_rank.fast import Progress, first_measure
from batchdp.optimizer.families.low_rank.settings import SETTINGS, Settings
from batchdp.progress import Outcome
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.pair import PairStrategy, complete
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import Reduction, reduce

ALGORITHMS = ("fast", "paper")


@one_thread
def low_rank(
    workload: MatrixWorkload | ArrayLike | Any,
    rank: int | None = None,
    relaxation: float = 0.0,
    algorithm: Literal["fast", "paper"] = "fast",
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> PairStrategy:
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
    if len(workload.blocks) > 1 and rank is None and relaxation == 0:
        # A rank or a relaxation of the caller's is one for the whole matrix.
        return block_by_block(low_rank)(workload, algorithm=algorithm, seed=seed, progress=progress)
    if algorithm not in ALGORITHMS:
        raise StrategyError(f'algorithm={algorithm!r} must be "fast" or "paper"')
    relaxation = check_finite("relaxation", relaxation, least=0)
    seed = check_whole("seed", seed, 0)
    # ‖W − B L‖_F counts every cell, so a relaxed problem keeps them all.
    reduction = reduce(workload, merge=algorithm == "fast" and relaxation == 0)
    R, k = reduction.reduced, reduction.rank
    r = _checked_rank(rank, k, relaxation)
    if k == 0:
        nothing = Pair(np.zeros((0, reduction.columns)), np.zeros((0, 0)))
        return PairStrategy.lifted(reduction, nothing, method="low-rank")
    # The lightest query's residual counts least in the weighted problem, and as much as any in ‖W − B L‖_F.
    gamma = relaxation if workload.weights is None else relaxation * float(np.sqrt(workload.weights.min()))
    solve = paper.solve if algorithm == "paper" else solve_fast
    pair = solve(R, r, gamma, seed, progress)
    if relaxation > 0 and r >= k:
        exact = solve(R, r, 0.0, seed, progress)  # within γ too, and sometimes better
        pair = exact if pair is None or (exact is not None and exact.error < pair.error) else pair
    if pair is None and relaxation > 0 and r < k:
        raise StrategyError(f"relaxation={relaxation!r} was not reached with rank={r}; raise one of the two")
    if pair is None or (algorithm == "fast" and relaxation == 0 and pair.outcome is not Outcome.CONVERGED):
        pair = fallback(reduction, r, seed, pair)
    return PairStrategy.lifted(reduction, pair, method="low-rank", relaxation=relaxation)


def fallback(reduction: Reduction, rank: int, seed: int, found: Pair | None) -> Pair:
    """What is left of a run that was cancelled early or lost a direction for good: the best pair that is at hand.

    The start is exact (Lemma 3), and so are the queries themselves where there are measurements enough for them.
    """
    R = reduction.reduced
    start = complete(R, first_measure(R, rank, np.random.default_rng(seed)), outcome=Outcome.START)
    queries = None
    if reduction.workload.queries <= rank:
        queries = complete(R, reduction.merged_workload(), outcome=Outcome.QUERIES)
    return min((pair for pair in (found, start, queries) if pair is not None), key=lambda pair: pair.error)


def solve_fast(
    R: Dense,
    rank: int,
    relaxation: float,
    seed: int,
    progress: Progress | None = None,
    give_up_above: float = np.inf,
    settings: Settings = SETTINGS,
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

    for penalty in settings.penalties:
        bar = give_up_above if best is None else best.error
        beta = penalty * rank
        rules = fast.Rules(beta, settings.slow, relaxation=relaxation, give_up_above=bar, settings=settings)
        if relaxation == 0 and fast.pays(R.shape[1], len(R), rank, settings):
            pair = fast.solve_working_set(R, rank, rules, seed=seed, progress=watch)
        else:
            start = first_measure(R, rank, np.random.default_rng(seed))
            pair = fast.solve(R, start, rules, progress=watch)
        best = pair if pair is not None and pair.error < bar else best
        done = best is not None and best.outcome is Outcome.CONVERGED
        if cancelled or (done and R.size > settings.small):
            break
    return best


def _checked_rank(rank: int | None, rank_of_workload: int, relaxation: float) -> int:
    if rank is None:
        return max(1, ceil(1.2 * rank_of_workload))
    rank = check_whole("rank", rank, 1)
    if rank < rank_of_workload and relaxation == 0:
        raise StrategyError(
            f"rank={rank} is below the workload's rank {rank_of_workload}: no such pair reproduces it; "
            "raise it, or allow a relaxation"
        )
    return rank
