"""Bounds from the singular values of W alone: quick, and the paper's analysis rests on them; and what relaxing W costs.

The paper calls the singular values λ_k of W its eigenvalues. All figures are total expected squared error
under ε-differential privacy, ignoring importance weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr, solve_triangular
from scipy.special import gammaln

from batchdp.errors import WorkloadError
from batchdp.linalg.fixed_point import FixedPoint, Pace
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import one_thread
from batchdp.strategies.bounds.convex import OptimalityBound, Optimum, Progress
from batchdp.strategies.bounds.ellipsoid import root
from batchdp.text import Outcome
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import reduce

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


def singular_values(workload: MatrixWorkload | ArrayLike | Any) -> Dense:
    """The non-zero singular values of W, largest first."""
    W = dense(as_workload(workload).matrix)
    sigma = np.linalg.svd(W, compute_uv=False)
    return np.asarray(sigma[sigma > sigma[0] * max(W.shape) * np.finfo(float).eps])


def svd_lower_bound(workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0) -> float:
    """2 (Σ λ_k)² / (n ε²): no factorisation of W is below; the convex bound with all cells alike."""
    workload = as_workload(workload)
    return 2 * float(singular_values(workload).sum()) ** 2 / (workload.cells * epsilon**2)


def lemma_3_upper_bound(workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0) -> float:
    """2 r Σ λ_k² / ε²: what B = √r U Σ, L = V / √r reaches at the most, r being the rank.

    The paper prints r Σ λ_k² / ε², without the factor 2 of the Laplace variance. Its proof also says that
    every column of V has L2 norm 1; V has orthonormal rows, so a column's norm is at most 1, which suffices.
    """
    squares = singular_values(workload) ** 2
    return 2 * len(squares) * float(squares.sum()) / epsilon**2


def lemma_4_lower_bound(
    workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0, constant: float = 1.0
) -> float:
    """constant · r³ vol^(2/r) / ε²: Hardt and Talwar's order of growth for any ε-private mechanism.

    Their theorem has an unnamed absolute constant, so this shows how a workload scales; it certifies nothing.
    vol is the volume of the hull of ± the columns of Uᵀ W. The paper takes it to be (2^r / r!) Π λ_k, which
    holds when V is a coordinate projection but not in general: for one query that sums n cells the printed
    bound is of order 4n, while Laplace noise answers it with error 2. Here vol is bounded from below by the
    cross-polytope on r columns of W chosen by pivoted QR, (2^r / r!) |det|, which is valid always.
    """
    W = dense(as_workload(workload).matrix)
    r = len(singular_values(workload))
    if r == 0:
        return 0.0
    R = qr(W, mode="r", pivoting=True)[0]
    return constant * _volume_term(np.abs(np.diag(R))[:r]) / epsilon**2


def lemma_4_as_printed(
    workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0, constant: float = 1.0
) -> float:
    """constant · ((2^r / r!) Π λ_k)^(2/r) r³ / ε², for comparison with the paper; not a bound in general."""
    sigma = singular_values(workload)
    return constant * _volume_term(sigma) / epsilon**2 if len(sigma) else 0.0


def theorem_2_ratio(workload: MatrixWorkload | ArrayLike | Any) -> float:
    """C² r / 8 with C = λ_1 / λ_r: Lemma 3's bound is at most this many times Lemma 4's as printed.

    The paper prints (C / 4)² r; Lemma 3's missing factor 2 doubles it. It needs rank r > 5, and it speaks of
    the printed Lemma 4 with constant 1, so it says how fast the two grow apart rather than how far apart
    they are.
    """
    sigma = singular_values(workload)
    if len(sigma) <= 5:
        raise WorkloadError(f"workload has rank {len(sigma)}; Theorem 2 speaks of ranks above 5")
    return float((sigma[0] / sigma[-1]) ** 2 * len(sigma) / 8)


def _volume_term(lengths: Dense) -> float:
    """((2^r / r!) Π lengths)^(2/r) r³, by logarithms so that nothing overflows."""
    r = len(lengths)
    log_volume = r * np.log(2) - gammaln(r + 1) + np.log(lengths).sum()
    return float(np.exp(2 / r * log_volume) * r**3)


def structural_error_bound(relaxation: float, squared_counts: float) -> float:
    """γ² Σ x_i²: the most that ‖W − B L‖_F ≤ γ adds to the total squared error (Theorem 3).

    The paper prints γ Σ x_i² in the theorem; its own proof gives ‖W − B L‖²_F Σ x_i², that is γ².
    """
    return float(np.square(relaxation) * squared_counts)
