"""The convex bound: no factorisation W = B L with column L2 norms at most 1 has a smaller ‖B‖²_F.

With P = B Bᵀ the best such factorisation of the reduced workload R minimises tr P subject to
q_j = R_jᵀ P⁻¹ R_j ≤ 1 for every column. Its dual has one number a column: every v ≥ 0 gives the valid lower
bound (tr (R diag(v) Rᵀ)^½)² / Σv, and P = (R diag(v) Rᵀ)^½ made feasible gives an upper one. They meet where
q_j = 1 wherever v_j > 0. An L1 norm is at least the L2 norm, so the bound holds for Laplace strategies too.

How it is solved, and why that is quick:

- With u = log v, u ← u + a log q. The Jacobian of log q is −S/2 with S row-stochastic and similar to a
  positive semi-definite matrix, so every 0 < a < 4 contracts; a = 1 is the textbook fixed point. a = 3 with
  Anderson extrapolation takes several times fewer rounds.
- The lower bound is flat at the optimum but tr P · max q is not. `_tighten` moves P⁻¹ to where the active
  columns have exactly q_j = 1, so that a gap of 1e-2 becomes 1e-3 or less for the price of one more round.
- Columns whose v vanished leave the working set; every bound that is reported was checked on all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, cho_factor, cho_solve, cholesky, qr, solve_triangular

from batchdp.bounds.anderson import Anderson
from batchdp.matrix import Dense
from batchdp.reduction import reduce
from batchdp.workload import Workload

STEP = 3.0
"""a, the exponent of v ← v q^a."""
MEMORY = 8
"""Rounds that the extrapolation looks back on."""
LARGEST_MOVE = 3.0
"""Of log v in one round, upwards; twice that downwards."""
LOWEST = -46.0
"""log v relative to the mean: v = 1e-20 is as good as 0."""
LARGEST_ACTIVE_SET = 6000
"""`_tighten` holds a square matrix of this size."""
SMALLEST_WORKING_SET = 256
"""Below this, dropping columns buys nothing."""

Status = Literal["optimal", "out of rounds", "stalled", "cancelled"]
Progress = Callable[[int, float, float], object]
Candidate = tuple[float, Dense]
"""An upper bound and K with L = K R."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """How the search for the bound ended; bounds are on ‖B‖²_F Δ², weighted by the queries' importance."""

    lower_bound: float
    """No factorisation is below."""
    upper_bound: float
    """‖B‖²_F of the factorisation R = B L with `measure` as L."""
    measure: Dense
    """L for the reduced workload, columns of L2 norm at most 1."""
    weights: Dense
    """v: how much each class of cells matters; the lower bound can be recomputed from it alone."""
    rounds: int
    status: Status

    @property
    def gap(self) -> float:
        """The relative duality gap, upper / lower − 1."""
        if self.lower_bound > 0:
            return max(0.0, self.upper_bound / self.lower_bound - 1)
        return 0.0 if self.upper_bound == 0 else np.inf


def _summed(found: list[Certificate]) -> Certificate:
    worst = max(found, key=lambda one: one.gap, default=None)
    return Certificate(
        lower_bound=sum(one.lower_bound for one in found),
        upper_bound=sum(one.upper_bound for one in found),
        measure=block_diag(*(one.measure for one in found)),
        weights=np.concatenate([one.weights * (one.lower_bound / one.weights.sum()) for one in found] or [np.zeros(1)]),
        rounds=sum(one.rounds for one in found),
        status=worst.status if worst is not None else "optimal",
    )


def certify(workload: Workload, *, tolerance: float = 1e-3, max_rounds: int = 500) -> Certificate:
    """The convex bound for a workload, to a relative duality gap of `tolerance` or `max_rounds` rounds.

    Over several blocks it is the sum of theirs: a strategy for all queries answers those of every block.
    """
    if len(workload.blocks) > 1:
        found = [certify(part, tolerance=tolerance, max_rounds=max_rounds) for _, _, part in workload.parts()]
        return _summed(found)
    return solve(reduce(workload).reduced, tolerance=tolerance, max_rounds=max_rounds)


def solve(R: Dense, *, tolerance: float = 1e-3, max_rounds: int = 500, progress: Progress | None = None) -> Certificate:
    """Minimise ‖B‖²_F over R = B L with columns of L of L2 norm at most 1; R has full row rank.

    `progress(round, lower bound, upper bound)` may return True to cancel; the best so far is returned.
    """
    k, p = R.shape
    scale = float(np.abs(R).max(initial=0.0))
    if scale == 0:
        return Certificate(0.0, 0.0, np.zeros((0, p)), np.ones(p), 0, "optimal")
    R = R / scale
    columns = np.arange(p)  # the working set
    u = np.zeros(p)
    memory = Anderson(MEMORY, first=2 / STEP)  # a = 2 is the best single step: exact along v itself
    lower, upper, K = 0.0, np.inf, np.eye(k)
    best: tuple[Dense, Dense] | None = None  # u and log q where the lower bound was largest
    dual = np.ones(p)
    credit, rejected, rounds = 0.0, 0, 0
    status: Status = "out of rounds"

    for rounds in range(1, max_rounds + 1):
        Rw = R if columns.size == p else R[:, columns]
        l, U = root(Rw, np.exp(u))
        Y = U.T @ Rw
        q = np.einsum("ij,ij->j", Y, Y / l[:, None])
        c = l.sum() / np.exp(u).sum()  # scale v so that Σv = tr P, where the bound is tr P itself
        l, q, u = l * c, q / c, u + 2 * np.log(c)
        bound = float(l.sum())

        if bound < lower * (1 - 1e-9) and best is not None and rejected < 8:
            rejected += 1  # the extrapolation overshot: back to the best point, one safe step, forget the past
            memory.forget()
            u = best[0] + best[1]
            continue
        rejected = 0
        log_q = np.log(np.maximum(q, 1e-12))
        best = (u, log_q)
        if bound > lower:
            lower, dual = bound, np.zeros(p)
            dual[columns] = np.exp(u)

        candidate: Candidate = (bound * float(q.max()), U.T / np.sqrt(l)[:, None])
        credit += 4 * k * k * columns.size + 20 * k**3
        active = np.flatnonzero((np.exp(u) > 1e-2 * bound / columns.size) | (q > 1))
        price = 2 * k * active.size**2 + active.size**3 / 3 + 3 * k**3
        if candidate[0] < 2 * bound and price <= credit and active.size <= LARGEST_ACTIVE_SET:
            credit = 0.0
            candidate = min(candidate, _tighten(l, U, Y, q, active) or candidate, key=lambda pair: pair[0])
        violators = np.zeros(0, dtype=np.int64)
        if candidate[0] < upper:
            if columns.size == p:
                upper, K = candidate
            elif candidate[0] <= lower * (1 + tolerance) or rounds == max_rounds:
                upper, K, violators = _check_all(R, candidate, (upper, K), columns)
        if progress is not None and progress(rounds, lower * scale**2, upper * scale**2):
            status = "cancelled"
            break
        if upper <= lower * (1 + tolerance):
            status = "optimal"
            break

        if violators.size:
            order = np.argsort(np.concatenate([columns, violators]), kind="stable")
            fresh = np.full(violators.size, np.log(1e-2 * bound / columns.size))
            columns = np.concatenate([columns, violators])[order]
            u, best = np.concatenate([u, fresh])[order], None
            memory.forget()
            continue
        step = memory.step(u, STEP * log_q)
        if np.abs(step).max() < 1e-13:
            status = "stalled"
            break
        u = np.maximum(u + np.clip(step, -2 * LARGEST_MOVE, LARGEST_MOVE), np.log(bound / p) + LOWEST)
        gone = (u < np.log(bound / p) - 9) & (log_q < -0.01)
        if columns.size - gone.sum() >= SMALLEST_WORKING_SET and gone.sum() > 0.3 * columns.size:
            columns, u, best = columns[~gone], u[~gone], (best[0][~gone], best[1][~gone])
            memory.restrict(~gone)

    if not np.isfinite(upper):  # never checked on all columns: any K is a factorisation once it is scaled
        l, U = root(R[:, columns], np.exp(u))
        upper, K, _ = _check_all(R, (np.inf, U.T / np.sqrt(l)[:, None]), (np.inf, K), columns)
    L = K @ R
    L /= float(np.sqrt(np.einsum("ij,ij->j", L, L).max()))
    return Certificate(lower * scale**2, upper * scale**2, L, dual, rounds, status)


def root(R: Dense, v: Dense) -> tuple[Dense, Dense]:
    """Eigenvalues l (all positive) and eigenvectors U of P = (R diag(v) Rᵀ)^½."""
    squares, U = np.linalg.eigh((R * v) @ R.T)
    if squares[0] > 1e-11 * squares[-1]:
        return np.sqrt(squares), U
    # A graded spectrum must not be squared: take singular values, through one QR of all columns.
    triangle = qr((R * np.sqrt(v)).T, mode="r", check_finite=False)[0][: R.shape[0]]
    U, l, _ = np.linalg.svd(triangle.T, full_matrices=False)
    if l.size < R.shape[0]:  # fewer working columns than rows: complete the basis
        U, l = np.linalg.qr(U, mode="complete")[0], np.pad(l, (0, R.shape[0] - l.size))
    return np.maximum(l, 1e-14 * l[0]), U


def _tighten(l: Dense, U: Dense, Y: Dense, q: Dense, active: NDArray[np.int64]) -> Candidate | None:
    """The candidate after moving P⁻¹ to where every active column has q_j = 1 exactly.

    With L = P^-½ R take P'⁻¹ = P^-½ (I − L_A diag(w) L_Aᵀ) P^-½: q is linear in P⁻¹, so w solves
    (L_Aᵀ L_A)^(squared entries) w = q_A − 1. What is left over (other columns, the ridge) is scaled away.
    """
    L = Y / np.sqrt(l)[:, None]
    A = L[:, active]
    H = A.T @ A
    H *= H
    H[np.diag_indices_from(H)] += 1e-6
    try:
        w = cho_solve(cho_factor(H, lower=True, overwrite_a=True, check_finite=False), q[active] - 1.0)
        T = np.eye(l.size) - (A * w) @ A.T
        C = cholesky(T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    largest = float(np.square(C.T @ L).sum(axis=0).max())
    inverse = solve_triangular(C, np.diag(np.sqrt(l)), lower=True, check_finite=False)
    return float(np.square(inverse).sum()) * largest, C.T @ (U.T / np.sqrt(l)[:, None])


def _check_all(
    R: Dense, candidate: Candidate, known: Candidate, columns: NDArray[np.int64]
) -> tuple[float, Dense, NDArray[np.int64]]:
    """The better of known and the candidate checked on all columns, and which of these violate it."""
    K = candidate[1]
    norms = np.square(K @ R).sum(axis=0)
    upper = float(np.square(np.linalg.inv(K)).sum() * norms.max())
    outside = np.ones(R.shape[1], dtype=bool)
    outside[columns] = False
    violators = np.flatnonzero(outside & (norms > norms[columns].max() * (1 + 1e-6)))
    return (upper, K, violators) if upper < known[0] else (*known, violators)
