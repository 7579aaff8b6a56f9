"""The convex bound on the worst query: the least possible largest ‖B_i‖² with column L2 norms of L at most 1.

Its dual has one number a query (w) and one a class of cells (v): for all w, v ≥ 0 with sum 1,

    ‖ diag(w)^½ W diag(v)^½ ‖_*² ≤ min max_i ‖B_i‖²          (the nuclear norm)

The w are the importance weights for which the best weighted sum is also the best worst query. Both are found in one
loop: with W = U R and P the Gaussian optimum's matrix for w and v,

    log w ← log w + a log(U_i P U_iᵀ / l),   log v ← log v + a log(R_jᵀ P⁻¹ R_j / l),   l = the nuclear norm,

extrapolated as in `convex`. The upper bound is max_i U_i P U_iᵀ · max_j R_jᵀ P⁻¹ R_j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr, solve_triangular

from batchdp.bounds.convex import Progress
from batchdp.bounds.ellipsoid import root
from batchdp.bounds.optimality import OptimalityBound, Optimum
from batchdp.linalg.fixed_point import FixedPoint, Pace
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import one_thread
from batchdp.outcome import Outcome
from batchdp.workloads.pair import Pair
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import MatrixWorkload, as_workload

PACE = Pace(exponent=2.0, first=0.5, safe=0.5, largest_move=2.0)
"""For both weights."""
LOWEST = -25.0
"""The least logarithm of a weight relative to the mean, for a query or column that does not matter."""


def certify_worst(
    workload: MatrixWorkload | ArrayLike | Any, *, tolerance: float = 1e-3, max_rounds: int = 500
) -> OptimalityBound:
    """The bound for a workload, to a relative duality gap of `tolerance` or `max_rounds` rounds."""
    reduction = reduce(as_workload(workload))
    return solve_max(dense(reduction.rows), reduction.reduced, tolerance=tolerance, max_rounds=max_rounds).bound


@one_thread
def solve_max(
    U: Dense, R: Dense, *, tolerance: float = 1e-3, max_rounds: int = 500, progress: Progress | None = None
) -> Optimum:
    """Minimise the largest ‖(U B)_i‖² over R = B L with columns of L of L2 norm at most 1."""
    (m, k), p = U.shape, R.shape[1]
    scale = float(np.abs(R).max(initial=0.0))
    if scale == 0:
        return _optimum(np.zeros((k, p)), np.zeros((0, k)), (0.0, 0.0), np.ones(p), np.full(m, 1 / m))
    R = R / scale
    sizes = np.repeat([m, p], [m, p])
    loop = FixedPoint(-np.log(sizes), PACE)  # log w, then log v
    lower, upper, K = 0.0, np.inf, np.eye(k)
    w, v = np.full(m, 1 / m), np.full(p, 1 / p)
    rounds, outcome = 0, Outcome.OUT_OF_ROUNDS
    for rounds in range(1, max_rounds + 1):
        x = loop.u.copy()
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
        if not loop.accept(total**2, x, np.concatenate([rows, columns]) / total):
            continue
        if total**2 > lower:
            lower, w, v = total**2, np.exp(x[:m]), np.exp(x[m:])
        if progress is not None and progress(rounds, lower * scale**2, upper * scale**2):
            outcome = Outcome.CANCELLED
            break
        if upper <= lower * (1 + tolerance):
            outcome = Outcome.OPTIMAL
            break
        loop.move(LOWEST - np.log(sizes))
    return _optimum(R * scale, K, (lower * scale**2, upper * scale**2), v, w, rounds, outcome)


def _optimum(
    R: Dense,
    K: Dense,
    between: tuple[float, float],
    v: Dense,
    w: Dense,
    rounds: int = 0,
    outcome: Outcome = Outcome.OPTIMAL,
) -> Optimum:
    """The bounds and the pair L = K R, scaled to sensitivity 1."""
    L = K @ R
    L /= float(np.sqrt(np.square(L).sum(axis=0).max(initial=0.0))) or 1.0
    bound = OptimalityBound("max", *between, weights=v, query_weights=w, rounds=rounds, outcome=outcome)
    return Optimum(bound, Pair(L, R @ np.linalg.pinv(L), outcome, rounds))
