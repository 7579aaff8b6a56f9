"""Formula (7) solved well: the paper's augmented Lagrangian with B eliminated.

For fixed L, multiplier π and penalty β, the best B is a ridge regression. With R̃ = R + π/β and
Z = R̃ (LᵀL + I/β)⁻¹ it leaves ⟨Z, R̃⟩ to be minimised over the column L1 balls, with gradient −2 L ZᵀZ, best
B = Z Lᵀ, next multiplier Z and residual R − B L = (Z − π)/β. Three things make it work where the printed schedule
stalls: β starts low and grows slowly (starting high freezes a poor solution), rows of L that died are revived, and
the end is repaired exactly.
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.descent import descend
from batchdp.linalg.matrix import Dense
from batchdp.strategies.low_rank.program import Pair, Progress, repaired, revived

CLOSE_ENOUGH = 1e-5
"""The relative residual at which the exact problem (γ = 0) is handed to the repair."""
LARGEST_PENALTY = 1e7
HEIGHT = 30.0
"""Of a revived row's largest entry, as a multiple of 1/r."""
SMALL = 16_384
"""Entries of L up to which single precision saves nothing."""
ROUGH = 1e-3
"""The relative residual down to which single precision serves."""
STEPS = 10
"""Projected gradient steps a round."""
SLOW = 1.1
"""Growth of β whenever the residual stops shrinking."""


class Form(Protocol):
    """How a matrix of variables stands for L."""

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """⟨Z, R̃⟩, its gradient in the variables, and Z."""

    def measure(self, variables: Dense) -> Dense:
        """L."""

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """The variables with what died brought back from the residual; the same object if nothing did."""


class Full:
    """Every entry of L is a variable; r × r systems."""

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """By the ridge regression for B."""
        L = variables
        G = L @ L.T
        G[np.diag_indices_from(G)] += 1 / penalty
        C = cho_solve(cho_factor(G, lower=True, check_finite=False), L @ target.T, check_finite=False)
        Z = C.T @ L
        np.subtract(target, Z, out=Z)
        Z *= penalty
        C *= -2.0
        return float(np.vdot(Z, target)), C @ Z, Z

    def measure(self, variables: Dense) -> Dense:
        """The variables themselves."""
        return variables

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """Zero rows re-seeded."""
        return revived(variables, residual, HEIGHT)


class WithSingles:
    """L = [diag(d); Θ], the variables being the rows d, Θ, where d may vanish: only outlying columns keep theirs.

    Lies between p-Identity, where every column has its own measurement, and low rank, where none has.
    """

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """By Woodbury, with p × p systems for p rows of Θ."""
        d, T = variables[0], variables[1:]
        e = 1 / np.sqrt(d * d + 1 / penalty)
        P, C = T * e, target * e
        K = P @ P.T
        K[np.diag_indices_from(K)] += 1
        X = C - cho_solve(cho_factor(K, lower=True, check_finite=False), P @ C.T, check_finite=False).T @ P
        Z = X * e
        gradient = np.empty_like(variables)
        gradient[0] = -2 * d * np.einsum("ij,ij->j", Z, Z)
        gradient[1:] = -2 * (T @ Z.T) @ Z
        return float(np.vdot(X, C)), gradient, Z

    def measure(self, variables: Dense) -> Dense:
        """L without its zero rows."""
        d, T = variables[0], variables[1:]
        return np.vstack([np.diag(d)[d > 0], T[np.abs(T).sum(axis=1) > 0]])

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """Nothing: d keeps every direction alive while it matters."""
        return variables


def solve(
    R: Dense,
    start: Dense,
    *,
    form: Form | None = None,
    penalty: float,
    growth: float = SLOW,
    max_rounds: int = 250,
    relaxation: float = 0.0,
    give_up_above: float = np.inf,
    progress: Progress | None = None,
) -> Pair | None:
    """The pair found from a start, or None if it was given up, lost a direction or never came within γ.

    Args:
        R: the reduced workload.
        start: of the variables of `form`, columns of L1 norm at most 1.
        penalty: the first β, for R scaled to ‖R‖²_F = its number of columns.
        growth: of β.
        relaxation: γ; the run ends as soon as ‖R − B L‖_F is at most this, and the pair is not repaired.
        give_up_above: a run is hopeless whose ‖B‖² is above this near the end, or several times this before: from a
            low β it first grows with the residual's decline, and then falls to half and less.
        progress: told of every round, may cancel.
    """
    form = Full() if form is None else form
    norm = float(np.linalg.norm(R))
    scale = float(np.sqrt(R.shape[1])) / norm
    enough = relaxation / norm if relaxation > 0 else CLOSE_ENOUGH
    beta, last = penalty, np.inf
    step: float | None = None
    single = start.size > SMALL
    scaled, M = (_rounded(R * scale), _rounded(start)) if single else (R * scale, start)
    pi = Z = np.zeros_like(scaled)
    status, rounds = "out of rounds", 0
    for rounds in range(1, max_rounds + 1):
        target = scaled + pi / beta
        tolerance = 1e-6 if single else 1e-14
        try:
            found = descend(lambda M: form.evaluate(target, M, beta), M, STEPS, step=step, tolerance=tolerance)  # noqa: B023
        except LinAlgError:  # L lost rank while β is already large
            if not single:
                return None
            single, scaled, M, pi = False, R * scale, M.astype(np.float64), pi.astype(np.float64)
            continue
        M, Z, step = found.point, found.extra, found.step
        E = (Z - pi) / beta
        residual = float(np.linalg.norm(E)) / norm / scale
        size = (found.value - float(np.vdot(Z, Z)) / beta) / scale**2  # ‖B‖²_F
        if progress is not None and progress(rounds, residual, size):
            status = "cancelled"
            break
        if rounds >= 5 and size > give_up_above * (1.02 if residual < 0.001 else 2.0 if residual < 0.01 else 5.0):
            return None
        if residual <= enough and not single:
            status = "converged"
            break
        pi = Z
        if rounds < 0.7 * max_rounds:
            alive = form.revived(M, E)
            step = step if alive is M else None
            M = alive
        if residual > 0.9 * last:
            # Once the residual is small the vertices no longer move: hurry.
            beta *= growth if residual > 1e-2 else growth**2 if residual > 1e-3 else growth**4
        last = residual
        if beta > LARGEST_PENALTY:
            status = "penalty at its limit"  # L lost rank, or a residual that rounding keeps: the repair will tell
            break
        if single and residual <= max(ROUGH, enough):
            single, scaled, M, pi = False, R * scale, M.astype(np.float64), pi.astype(np.float64)
    L = form.measure(M).astype(np.float64)
    B = Z.astype(np.float64) @ L.T / scale
    if relaxation > 0 and status == "converged":
        return Pair(L, B, rounds, status)
    return repaired(R, L, B, rounds, status) if relaxation == 0 else None


def _rounded(matrix: Dense) -> Dense:
    """In single precision, whatever the type says: half the time, and far from the end nothing is lost."""
    return cast(Dense, matrix.astype(np.float32))
