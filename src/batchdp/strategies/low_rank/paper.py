"""Algorithms 1 and 2 of the paper as printed, with the one safeguard that they need.

Formulas (7) and (8) by the inexact augmented Lagrangian

    J(B, L) = ½ tr(BᵀB) + ⟨π, R − B L⟩ + β/2 ‖R − B L‖²_F,   every column of L in the L1 ball.

Where the paper leaves something open:

- It works on R of W = U R, U orthonormal. From π = 0 on, every π is U (Uᵀπ), so Equation (9), Formula (10) and
  the residual are the same with R in place of W and B = U B_R: the same iterates for less work.
- L starts as in the proof of Lemma 3: the right singular vectors, spread over the r rows by a random rotation and
  scaled to sensitivity 1, so that W = B L holds at the start and no row of L is zero.
- Line 12 of Algorithm 2 compares with J at the projected point; at the unprojected U it would never end.
- "Converged" in line 4 of Algorithm 1: J fell by less than 1 %, or `alternations` were made.

The safeguard: at the printed start β = 1, the ridge in Equation (9) outweighs all but the leading directions. Rows
of L become exactly 0, then so do the columns of B, and neither can ever come back (rank 2 of 60 on WDiscrete
64 × 128). So after each round a zero row of L is re-seeded with a leading right singular vector of R − B L.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from batchdp.linalg.matrix import Dense
from batchdp.outcome import Outcome
from batchdp.strategies.low_rank.nesterov import Descent, kernels
from batchdp.strategies.low_rank.program import Progress, first_measure, repaired, revived
from batchdp.strategies.low_rank.settings import SETTINGS, Settings
from batchdp.workloads.pair import Pair


def solve(
    R: Dense,
    rank: int,
    relaxation: float,
    seed: int,
    progress: Progress | None = None,
    settings: Settings = SETTINGS,
) -> Pair | None:
    """Algorithm 1: the pair for the reduced workload R, or None if it lost a direction or never came within γ."""
    schedule = settings.as_printed
    norm = float(np.linalg.norm(R))
    enough = relaxation if relaxation > 0 else schedule.close_enough * norm
    L = first_measure(R, rank, np.random.default_rng(seed))
    pi, beta, descent = np.zeros_like(R), 1.0, Descent(rank, R.shape[1], schedule.steps)
    B, E = np.zeros((len(R), rank)), R
    outcome, rounds = Outcome.OUT_OF_ROUNDS, 0
    for rounds in range(1, schedule.most_rounds + 1):
        target, last = beta * R + pi, np.inf
        for _ in range(schedule.alternations):
            B = ridge(L, target, beta)
            L = descent.least(B, target, L, beta)
            E = R - kernels().product(np.ascontiguousarray(L.T), np.ascontiguousarray(B.T)).T
            J = 0.5 * float(np.vdot(B, B)) + float(np.vdot(pi, E)) + 0.5 * beta * float(np.vdot(E, E))
            if last - J < schedule.decrease * abs(J):
                break
            last = J
        tau = float(np.linalg.norm(E))
        if progress is not None and progress(rounds, tau / norm, float(np.vdot(B, B))):
            outcome = Outcome.CANCELLED
            break
        if tau <= enough or beta >= schedule.largest_penalty:
            outcome = Outcome.CONVERGED if tau <= enough else Outcome.PENALTY_AT_LIMIT
            break
        if rounds % 10 == 0:
            beta *= 2
        pi += beta * E
        L = revived(L, E, schedule.height)
    if relaxation > 0 and outcome is Outcome.CONVERGED:
        return Pair(L, B, outcome, rounds)
    return repaired(R, L, B, rounds, outcome) if relaxation == 0 else None


def ridge(L: Dense, target: Dense, beta: float) -> Dense:
    """Equation (9): the best B, by one Cholesky factorisation."""
    rows = np.ascontiguousarray(L.T)
    both = kernels().transposed_product(rows, np.hstack([rows, target.T]))
    gram, right = beta * both[:, : len(L)], both[:, len(L) :]
    gram[np.diag_indices_from(gram)] += 1.0
    return np.asarray(cho_solve(cho_factor(gram, overwrite_a=True, check_finite=False), right, check_finite=False).T)
