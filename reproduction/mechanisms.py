"""The evaluation's mechanisms by the paper's abbreviations, each a function from a task to a strategy."""

from __future__ import annotations

from math import ceil

import numpy as np

from batchdp.linalg.matrix import dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer import optimize
from batchdp.optimizer.families import FAMILIES
from batchdp.optimizer.families.low_rank import low_rank, paper, solve_fast
from batchdp.optimizer.families.low_rank.mechanism import fallback
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload
from batchdp.workloads.reduction import reduce
from reproduction.errors import ReproductionError
from reproduction.points import SEED, Task

AS_REGISTERED = {
    "LM": "noise-on-data",
    "WM": "wavelet",
    "HM": "hierarchical",
    "MM": "matrix-mechanism",
    "p-Identity": "p-identity",
    "Gaussian": "gaussian",
    "bound": "gaussian",  # the optimum under Gaussian noise comes with the bound for all
}
"""The families whose registered function is what the paper, or who came later, evaluates; whoever varies r or γ, as the
paper does for LRM, calls the family's own functions."""


def strategy_for(task: Task) -> PairStrategy:
    """Find the strategy of a task."""
    workload = task.batch.make()
    if task.mechanism in AS_REGISTERED:
        return FAMILIES[AS_REGISTERED[task.mechanism]].method(workload)
    match task.mechanism:
        case "LRM":
            return _low_rank(workload, task.ratio, task.relaxation)
        case "LRM-printed":
            return _as_printed(workload, task.ratio)
        case "optimize":
            return optimize(workload, seed=SEED)
    raise ReproductionError(f"mechanism={task.mechanism!r} is not one of the evaluation's")


def _low_rank(workload: MatrixWorkload, ratio: float, relaxation: float) -> PairStrategy:
    """Formula (7) or (8) by the fast solver; below the rank of W, for the nearest matrix of rank r."""
    k = reduce(workload).rank
    r = max(1, ceil(ratio * k - 1e-9))
    if r < k:
        return _below_the_rank(workload, r)
    return low_rank(workload, r, seed=SEED) if relaxation == 0 else _relaxed(workload, r, relaxation)


@one_thread
def _relaxed(workload: MatrixWorkload, rank: int, relaxation: float) -> PairStrategy:
    """Formula (8) alone; `low_rank` solves the exact problem too and keeps the better pair, which hides what γ does."""
    reduction = reduce(workload, merge=False)  # ‖W − B L‖_F counts every cell
    pair = solve_fast(reduction.reduced, rank, relaxation, SEED)
    if pair is None:
        raise ReproductionError(f"relaxation={relaxation:g} was not reached")
    return PairStrategy.lifted(reduction, pair, method="low-rank", relaxation=relaxation)


def _below_the_rank(workload: MatrixWorkload, rank: int) -> PairStrategy:
    """With r < rank(W) no pair reproduces W; the best pair within reach reproduces the nearest matrix of rank r."""
    W = dense(workload.matrix)
    U, sigma, V = np.linalg.svd(W, full_matrices=False)
    nearest = (U[:, :rank] * sigma[:rank]) @ V[:rank]
    found = low_rank(MatrixWorkload(nearest), rank, seed=SEED)
    tail = float(np.linalg.norm(W - found.reconstruct @ found.measure))
    return PairStrategy(
        workload,
        found.measurement,
        found.reconstruction,
        method="low-rank",
        rounds=found.rounds,
        status=found.status,
        relaxation=tail,
    )


@one_thread
def _as_printed(workload: MatrixWorkload, ratio: float) -> PairStrategy:
    """`low_rank` with `algorithm="paper"`, by compiled kernels."""
    from reproduction.compiled import NUMBA  # nothing else needs Numba, which takes long to import

    reduction = reduce(workload, merge=False)
    r = max(1, ceil(ratio * reduction.rank - 1e-9))
    pair = paper.solve(reduction.reduced, r, 0.0, SEED, kernels=NUMBA)
    return PairStrategy.lifted(reduction, pair or fallback(reduction, r, SEED, None), method="low-rank")
