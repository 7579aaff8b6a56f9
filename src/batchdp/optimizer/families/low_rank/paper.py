"""Algorithms 1 and 2 of the paper as printed, with the one safeguard that they need.

Formulas (7) and (8) by the inexact augmented Lagrangian

    J(B, L) = ½ tr(BᵀB) + ⟨π, R − B L⟩ + β/2 ‖R − B L‖²_F,   every column of L in the L1 ball.

Where the paper leaves something open:

- It works on R of W = U R, U orthonormal. From π = 0 on, every π is U (Uᵀπ), so Equation (9), Formula (10) and
  the residual are the same with R in place of W and B = U B_R: the same iterates for less work.
- L starts as in the proof of Lemma 3: the right singular vectors, spread over the r rows by a random rotation and
  scaled to sensitivity 1, so that W = B L holds at the start and no row of L is zero.
- Line 12 of Algorithm 2 compares with J at the projected point; at the unprojected U it would never end.
- "Converged" in line 4 of Algorithm 1: J fell by less than 1 %, or ALTERNATIONS were made.

The safeguard: at the printed start β = 1, the ridge in Equation (9) outweighs all but the leading directions. Rows
of L become exactly 0, then so do the columns of B, and neither can ever come back (rank 2 of 60 on WDiscrete
64 × 128). So after each round a zero row of L is re-seeded with a leading right singular vector of R − B L.

The iterates are those of the printed lines, to rounding, for a fraction of their work:

- L is held as its transpose, and a few columns of it go through a whole step while they are in the processor's cache.
- The objective is quadratic, so that the gradient at a combination of two iterates is the same combination of their
  gradients: a step takes one product with β BᵀB, not one for the gradient and one for line 12.
- Few entries of a projected column are not zero, three in a hundred at the paper's own sizes: the product takes those.
- A column's threshold times ω is its multiplier, which changes little from step to step: where it was is where the
  search for the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from batchdp.linalg.l1_ball import project_columns, projected_rows
from batchdp.linalg.matrix import Dense
from batchdp.optimizer.families.low_rank.fast import Progress, first_measure, repaired, revived
from batchdp.text import Outcome
from batchdp.workloads.matrix import Pair

STEPS, ALTERNATIONS = 10, 5
"""Steps of Algorithm 2 in one alternation, which begins where the last one ended, so that few do; and alternations
between B and L in one round at the most."""
MOST_ROUNDS, LARGEST_PENALTY = 400, 1e10
"""Of Algorithm 1, after which it ends, converged or not: β doubles every tenth round, and the ridge in Equation (9) is
then 1e-10 beside the rest."""
CLOSE_ENOUGH = 3e-6
"""The relative residual at which the exact problem (γ = 0) is handed to the repair, which then moves little."""
HEIGHT = 10.0
"""The largest entry of a revived row, as a multiple of 1/r."""
NEARLY = 0.9
"""Of its last multiplier, that a column's next one is guessed not to be below."""
BLOCK_ENTRIES = 49_152
"""Of L, that go through a step at a time."""
FEW = 0.15
"""The share of entries up to which a product with the non-zero ones alone is faster."""


@dataclass(frozen=True)
class Kernels:
    """What the time goes into. `rows` are columns of L, contiguous, whose zeros cost nothing."""

    step: Callable[..., tuple[float, float]]
    """A step of Algorithm 2: `step` below, or the same by other means."""
    product: Callable[[Dense, Dense], Dense]
    """The product rows · matrix."""
    transposed_product: Callable[[Dense, Dense], Dense]
    """The product rowsᵀ · matrix."""


# ── Algorithm 1 ──


def solve(
    R: Dense, rank: int, relaxation: float, seed: int, progress: Progress | None = None, kernels: Kernels | None = None
) -> Pair | None:
    """Algorithm 1: the pair for the reduced workload R, or None if it lost a direction or never came within γ."""
    kernels = kernels or NUMPY
    norm = float(np.linalg.norm(R))
    enough = relaxation if relaxation > 0 else CLOSE_ENOUGH * norm
    L = first_measure(R, rank, np.random.default_rng(seed))
    pi, beta, descent = np.zeros_like(R), 1.0, Descent(rank, R.shape[1], STEPS, kernels)
    B, E = np.zeros((len(R), rank)), R
    outcome, rounds = Outcome.OUT_OF_ROUNDS, 0
    for rounds in range(1, MOST_ROUNDS + 1):
        target, last = beta * R + pi, np.inf
        for _ in range(ALTERNATIONS):  # line 4
            B = best_reconstruct(L, target, beta, kernels)  # Equation (9)
            L = descent.least(B, target, L, beta)  # Formula (10), by Algorithm 2
            E = R - kernels.product(np.ascontiguousarray(L.T), np.ascontiguousarray(B.T)).T
            J = 0.5 * float(np.vdot(B, B)) + float(np.vdot(pi, E)) + 0.5 * beta * float(np.vdot(E, E))
            if last - J < 1e-2 * abs(J):
                break
            last = J
        tau = float(np.linalg.norm(E))  # ‖R − B L‖_F
        if progress is not None and progress(rounds, tau / norm, float(np.vdot(B, B))):
            outcome = Outcome.CANCELLED
            break
        if tau <= enough or beta >= LARGEST_PENALTY:
            outcome = Outcome.CONVERGED if tau <= enough else Outcome.PENALTY_AT_LIMIT
            break
        if rounds % 10 == 0:
            beta *= 2
        pi += beta * E
        L = revived(L, E, HEIGHT)  # the safeguard
    if relaxation > 0 and outcome is Outcome.CONVERGED:
        return Pair(L, B, outcome, rounds)
    return repaired(R, L, B, rounds, outcome) if relaxation == 0 else None


def best_reconstruct(L: Dense, target: Dense, beta: float, kernels: Kernels) -> Dense:
    """Equation (9), B = (β R + π) Lᵀ (β L Lᵀ + I)⁻¹ with target = β R + π, by one Cholesky factorisation."""
    rows = np.ascontiguousarray(L.T)
    both = kernels.transposed_product(rows, np.hstack([rows, target.T]))
    gram, right = beta * both[:, : len(L)], both[:, len(L) :]
    gram[np.diag_indices_from(gram)] += 1.0
    return np.asarray(cho_solve(cho_factor(gram, overwrite_a=True, check_finite=False), right, check_finite=False).T)


# ── Algorithm 2 ──


class Iterate(NamedTuple):
    """A matrix, a column of L a row, and its gradient."""

    point: Dense
    slope: Dense


class Descent:
    """Algorithm 2, accelerated projected gradients for L while B stands still, and what it remembers between calls."""

    def __init__(self, rank: int, columns: int, steps: int, kernels: Kernels) -> None:
        """For an L of this shape, and so many steps a call."""
        self.omega, self._steps, self._kernels = 1.0, steps, kernels
        self._multipliers = np.zeros(columns)
        self._iterates = [Iterate(np.empty((columns, rank)), np.empty((columns, rank))) for _ in range(3)]

    def least(self, B: Dense, target: Dense, start: Dense, beta: float) -> Dense:
        """Minimise β/2 tr(Lᵀ Bᵀ B L) − tr(targetᵀ B L) with target = β R + π (Formula 10) from a start.

        ω starts at a quarter of the last accepted one: the same powers of two, found sooner.
        """
        H, F = beta * (B.T @ B), target.T @ B  # the gradient at L is H L − Fᵀ
        chi, self.omega = start.size * 1e-12, max(1.0, self.omega / 4)
        now = before = self._iterates[0]
        now.point[...] = start.T
        np.subtract(self._kernels.product(now.point, H), F, out=now.slope)
        older, newer = 0.0, 1.0  # δ(t−2), δ(t−1)
        for t in range(1, self._steps + 1):
            after = self._iterates[t % 3]
            alpha = (older - 1) / newer
            while True:
                thresholds = NEARLY / self.omega * self._multipliers
                moved, bent = self._kernels.step(*now, *before, alpha, self.omega, thresholds, H, F, *after)
                self._multipliers = self.omega * thresholds
                if moved < chi * chi:
                    return after.point.copy().T
                if bent <= self.omega * moved * (1 + 1e-12):  # line 12: ⟨D, β BᵀB D⟩ ≤ ω ‖D‖²
                    break
                self.omega *= 2
            before, now = now, after
            older, newer = newer, (1 + sqrt(1 + 4 * newer * newer)) / 2
        return now.point.copy().T


# ── A step of Algorithm 2, by NumPy and SciPy ──


def step(
    now: Dense,
    now_slope: Dense,
    before: Dense,
    before_slope: Dense,
    alpha: float,
    omega: float,
    thresholds: Dense,
    H: Dense,
    F: Dense,
    after: Dense,
    after_slope: Dense,
) -> tuple[float, float]:
    """From S = now + α (now − before) to `after`, its projected U = S − ∇/ω; ‖D‖² and ⟨D, H D⟩ with D = after − S.

    Thresholds are searched from a guess for each column, which they replace. Where L has many non-zero entries, guesses
    are of no use and stay as they are.
    """
    n, r = F.shape
    width = max(16, BLOCK_ENTRIES // r)
    few = _few(now)
    moved = bent = 0.0
    for first in range(0, n, width):
        part = slice(first, first + width)
        S = _combined(now[part], before[part], alpha)
        slope = _combined(now_slope[part], before_slope[part], alpha)
        U = slope * (-1 / omega)
        U += S
        L, rise = after[part], after_slope[part]
        if few:
            kept, thresholds[part] = projected_rows(U, thresholds[part])
            kept.toarray(out=L)
            np.subtract(kept @ H, F[part], out=rise)
        else:
            L[...] = project_columns(U.T).T
            np.subtract(L @ H, F[part], out=rise)
        S -= L
        slope -= rise
        moved += float(np.vdot(S, S))
        bent += float(np.vdot(S, slope))
    return moved, bent


def product(rows: Dense, matrix: Dense) -> Dense:
    """The product rows · matrix."""
    return np.asarray(csr_array(rows) @ matrix if _few(rows) else rows @ matrix)


def transposed_product(rows: Dense, matrix: Dense) -> Dense:
    """The product rowsᵀ · matrix."""
    return np.asarray(csr_array(rows).T @ matrix if _few(rows) else rows.T @ matrix)


def _combined(now: Dense, before: Dense, alpha: float) -> Dense:
    """now + α (now − before)."""
    S = now - before
    S *= alpha
    S += now
    return S


def _few(rows: Dense) -> bool:
    return bool(np.count_nonzero(rows) <= FEW * rows.size)


NUMPY = Kernels(step, product, transposed_product)
