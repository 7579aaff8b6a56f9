"""The convex bound on the worst query: the least possible largest ‖B_i‖² with column L2 norms of L at most 1.

Its dual has one number a query (w) and one a class of cells (v): for all w, v ≥ 0 with sum 1,

    ‖ diag(w)^½ W diag(v)^½ ‖_*² ≤ min max_i ‖B_i‖²          (the nuclear norm)

The w are the importance weights for which the best weighted sum is also the best worst query. Both are found in one
loop: with W = U R and P the Gaussian optimum's matrix for w and v,

    log w ← log w + a log(U_i P U_iᵀ / l),   log v ← log v + a log(R_jᵀ P⁻¹ R_j / l),   l = the nuclear norm,

extrapolated as in `convex`. The upper bound is max_i U_i P U_iᵀ · max_j R_jᵀ P⁻¹ R_j.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from batchdp.bounds.anderson import Anderson
from batchdp.bounds.convex import MEMORY, Progress, Status
from batchdp.bounds.ellipsoid import root
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import one_thread
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import Workload

STEP = 2.0
LARGEST_MOVE = 2.0
LOWEST = -25.0
"""log of a weight relative to the mean: a query or column that does not matter."""


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Bounds on the largest ‖B_i‖² Δ², each query's times its importance, and the pair that reaches the upper."""

    lower_bound: float
    upper_bound: float
    measure: Dense
    """L for the reduced workload, columns of L2 norm at most 1."""
    query_weights: Dense
    """w: how much each query matters to the worst case; they sum to 1."""
    rounds: int
    status: Status

    @property
    def gap(self) -> float:
        """The relative duality gap, upper / lower − 1."""
        return max(0.0, self.upper_bound / self.lower_bound - 1) if self.lower_bound > 0 else 0.0


def certify_worst(workload: Workload, *, tolerance: float = 1e-3, max_rounds: int = 500) -> WorstCase:
    """The bound for a workload, to a relative duality gap of `tolerance` or `max_rounds` rounds."""
    reduction = reduce(workload)
    return solve_max(dense(reduction.rows), reduction.reduced, tolerance=tolerance, max_rounds=max_rounds)


@one_thread
def solve_max(
    U: Dense, R: Dense, *, tolerance: float = 1e-3, max_rounds: int = 500, progress: Progress | None = None
) -> WorstCase:
    """Minimise the largest ‖(U B)_i‖² over R = B L with columns of L of L2 norm at most 1."""
    (m, k), p = U.shape, R.shape[1]
    scale = float(np.abs(R).max(initial=0.0))
    if scale == 0:
        return WorstCase(0.0, 0.0, np.zeros((0, p)), np.full(m, 1 / m), 0, "optimal")
    R = R / scale
    memory = Anderson(MEMORY, first=0.5)
    sizes = np.repeat([m, p], [m, p])
    x = -np.log(sizes)  # log w, then log v
    lower, upper, K = 0.0, np.inf, np.eye(k)
    w = np.full(m, 1 / m)
    best: tuple[Dense, Dense] | None = None
    rejected, rounds = 0, 0
    status: Status = "out of rounds"
    for rounds in range(1, max_rounds + 1):
        x[:m] -= np.logaddexp.reduce(x[:m])
        x[m:] -= np.logaddexp.reduce(x[m:])
        C = qr(np.exp(x[:m] / 2)[:, None] * U, mode="r", check_finite=False)[0][:k]  # CᵀC = Uᵀ diag(w) U
        weighted = C @ R
        l, E = root(weighted, np.exp(x[m:]))
        T = solve_triangular(C, E * np.sqrt(l), check_finite=False)  # P = T Tᵀ
        rows = np.square(U @ T).sum(axis=1)
        columns = np.square((E / np.sqrt(l)).T @ weighted).sum(axis=0)
        total = float(l.sum())
        if rows.max() * columns.max() < upper:
            upper = float(rows.max() * columns.max())
            K = (E / np.sqrt(l)).T @ C
        if total**2 < lower * (1 - 1e-9) and best is not None and rejected < 8:
            rejected += 1  # the extrapolation overshot: back to the best point, one safe step
            memory.forget()
            x = best[0] + 0.5 * best[1]
            continue
        rejected = 0
        if total**2 > lower:
            lower, w = total**2, np.exp(x[:m])
        if progress is not None and progress(rounds, lower * scale**2, upper * scale**2):
            status = "cancelled"
            break
        if upper <= lower * (1 + tolerance):
            status = "optimal"
            break
        log_q = np.log(np.maximum(np.concatenate([rows, columns]) / total, 1e-12))
        best = (x.copy(), log_q)
        step = np.clip(memory.step(x, STEP * log_q), -2 * LARGEST_MOVE, LARGEST_MOVE)
        x = np.maximum(x + step, LOWEST - np.log(sizes))
    L = K @ R
    L /= float(np.sqrt(np.square(L).sum(axis=0).max()))
    return WorstCase(lower * scale**2, upper * scale**2, L, w, rounds, status)
