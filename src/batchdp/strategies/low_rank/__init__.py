"""The low-rank mechanism: the paper's own."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import StrategyError
from batchdp.matrix import Dense
from batchdp.reduction import Indices, reduce
from batchdp.strategies.low_rank import fast, paper
from batchdp.strategies.low_rank.program import Pair, Progress, first_measure
from batchdp.strategy import Strategy
from batchdp.threads import one_thread
from batchdp.workload import Workload, as_workload

ALGORITHMS = ("fast", "paper")
PENALTIES = (0.3, 0.03)
"""First β as a multiple of r."""


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
    if not (isinstance(relaxation, (int, float)) and isfinite(relaxation) and relaxation >= 0):
        raise StrategyError(f"relaxation={relaxation!r} must be a finite number of at least 0")
    reduction = reduce(workload, merge=algorithm == "fast")
    R, k = reduction.reduced, reduction.rank
    r = _checked_rank(rank, k, relaxation)
    if k == 0:
        return Strategy.lifted(reduction, np.zeros((0, reduction.columns)), method="low-rank")
    # ‖W − B L‖_F is measured on all cells; a merged column stands for several of them.
    gamma = relaxation / np.sqrt(_heaviest_class(reduction.classes)) if algorithm == "fast" else relaxation
    if workload.weights is not None:
        gamma *= float(np.sqrt(workload.weights.min()))
    pair = (
        paper.solve(R, r, gamma, seed, progress)
        if algorithm == "paper"
        else _fast(R, r, gamma, seed, progress)
    )
    return Strategy.lifted(
        reduction,
        pair.measure,
        pair.reconstruct,
        method="low-rank",
        rounds=pair.rounds,
        status=pair.status,
        relaxation=relaxation,
    )


def _fast(R: Dense, rank: int, gamma: float, seed: int, progress: Progress | None) -> Pair:
    """The better of a quick and a careful schedule: which one that is depends on the workload."""
    best: Pair | None = None
    for penalty in PENALTIES:
        start = first_measure(R, rank, np.random.default_rng(seed))
        bar = np.inf if best is None else best.error
        pair = fast.solve(
            R, start, penalty=penalty * rank, relaxation=gamma, give_up_above=bar, progress=progress
        )
        if pair is not None and pair.error < bar:
            best = pair
        if best is not None and best.status == "cancelled":
            break
    # Both lost a direction for good: the printed algorithm keeps them all.
    return paper.solve(R, rank, gamma, seed, progress) if best is None else best


def _heaviest_class(classes: Indices) -> int:
    return int(np.bincount(classes).max()) if len(classes) else 1


def _checked_rank(rank: int | None, rank_of_workload: int, relaxation: float) -> int:
    if rank is None:
        return max(1, ceil(1.2 * rank_of_workload))
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
        raise StrategyError(f"rank={rank!r} must be a whole number of at least 1")
    if rank < rank_of_workload and relaxation == 0:
        raise StrategyError(
            f"rank={rank} is below the workload's rank {rank_of_workload}: no such pair reproduces it; "
            "raise it, or allow a relaxation"
        )
    return int(rank)
