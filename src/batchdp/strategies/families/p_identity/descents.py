"""Descents of p-Identity: quasi-Newton steps without negative entries, then with what that form holds fixed.

SciPy's L-BFGS-B spends more on the bounds than an evaluation takes here. `minimise` does as Bertsekas's two-metric
projection: entries at zero that want to become negative are left out, the others take a quasi-Newton step among
themselves, and the end of the step is cut at zero. `polish_shared` frees the diagonal and the signs and costs O(k p n)
a round; `polish_dense` frees every entry of L and costs O(n³). Both project columns onto the L1 ball, which sets
entries to zero exactly where quasi-Newton steps only creep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.descent import Descended, Reached, descend
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.problem import Products, error, reconstruct
from batchdp.strategies.families.p_identity.settings import SETTINGS, Settings

SHORTEST = 1e-8
"""The shortest share of a step that is tried: half the digits, below which a change of the value is rounding."""

Objective = Callable[[Dense], tuple[float, Dense]]
"""Value and gradient; may raise LinAlgError where it is undefined."""


def minimise(
    objective: Objective,
    start: Dense,
    rounds: int,
    *,
    tolerance: float = 1e-9,
    memory: int = SETTINGS.memory,
) -> Reached:
    """Descend from a start; ends when a step gains less than `tolerance` of the value.

    `memory` is how many past steps the curvature is learnt from.
    """
    x = np.maximum(start, 0.0)
    value, g = objective(x)
    evaluations = 1
    past: deque[tuple[Dense, Dense]] = deque(maxlen=memory)
    for _ in range(rounds):
        d = _direction(g, (x > 0) | (g < 0), past)
        share = 1.0 if past else 0.1 * float(x.max(initial=0.0)) / max(float(np.abs(d).max(initial=0.0)), 1e-300)
        while share >= SHORTEST:
            y = x + share * d
            np.maximum(y, 0.0, out=y)
            moved = y - x
            slope = float(np.vdot(g, moved))
            if not slope < 0:  # cut at zero, the step may point uphill
                share = 0.0
                break
            try:
                v, h = objective(y)
            except LinAlgError:
                v, h = np.inf, g
            evaluations += 1
            if v <= value + 1e-4 * slope:
                break
            # The minimum of the parabola through what is known, if that is not absurd.
            share *= float(np.clip(-slope / (2 * (v - value - slope)), 0.1, 0.5))
        if share < SHORTEST:
            if not past:
                break
            past.clear()
            continue
        turned = h - g
        if np.vdot(moved, turned) > 1e-10 * np.vdot(moved, moved):
            past.append((moved, turned))
        gain = value - v
        x, value, g = y, v, h
        if gain <= tolerance * abs(value):
            break
    return Reached(x, value, evaluations)


def _direction(g: Dense, free: NDArray[np.bool_], past: deque[tuple[Dense, Dense]]) -> Dense:
    """The quasi-Newton step among the free entries: the two-loop recursion with every step cut down to them."""
    d = np.where(free, -g, 0.0)
    kept = []
    for moved, turned in past:
        s = moved * free
        curvature = float(np.vdot(s, turned))
        if curvature > 1e-10 * float(np.vdot(s, s)):
            kept.append((s, turned, curvature))
    coefficients = []
    for s, y, curvature in reversed(kept):
        coefficients.append(float(np.vdot(s, d)) / curvature)
        d -= coefficients[-1] * y
    d *= free
    if kept:
        y = kept[-1][1] * free
        d *= kept[-1][2] / float(np.vdot(y, y))
    for (s, y, curvature), coefficient in zip(kept, reversed(coefficients), strict=True):
        d += (coefficient - float(np.vdot(y, d)) / curvature) * s
    return d


def polish_shared(R: Products, packed: Dense, rounds: int, settings: Settings = SETTINGS) -> Descended[None]:
    """The packed strategy with d and the signs of Θ free; its value is ‖B‖²_F."""

    def evaluate(packed: Dense) -> tuple[float, Dense, None]:
        e = 1 / packed[0]
        P = packed[1:] * e
        value, by_P, by_e = error(R, P, e)
        gradient = np.empty_like(packed)
        gradient[0] = -2 * e * (np.einsum("ij,ij->j", P, by_P) + e * by_e)
        np.multiply(by_P, 2 * e, out=gradient[1:])
        return value, gradient, None

    def project(packed: Dense) -> Dense:
        projected = project_columns(packed)
        np.maximum(projected[0], settings.smallest_diagonal, out=projected[0])
        return projected

    return descend(evaluate, packed, rounds, project=project)


def wants_more(R: Dense, packed: Dense, settings: Settings = SETTINGS) -> bool:
    """Whether measuring columns together as [diag(d); Θ] does not would gain anything to speak of.

    With Z = (LᵀL)⁻¹ Rᵀ, entry (i, j) of the derivative by L is −2 d_i ⟨z_i, z_j⟩ in the rows of the diagonal. A column
    spends its budget well if no entry is larger than that of its own row, and those add up to the error.
    """
    B = reconstruct(R, packed)
    if B is None:
        return False
    d = packed[0]
    Z = B[:, : len(d)] / d
    G = np.abs(Z.T @ Z) * d[:, None]
    own = np.diag(G)
    return float((G.max(axis=0) - own).sum()) > settings.least_gain * float(own.sum())


def polish_dense(R: Dense, measure: Dense, rounds: int) -> Descended[None]:
    """L with every entry free, of full column rank; its value is ‖B‖²_F."""

    def error(L: Dense) -> tuple[float, Dense, None]:
        Z = cho_solve(cho_factor(L.T @ L, lower=True, check_finite=False), R.T, check_finite=False)
        return float(np.vdot(Z, R.T)), -2 * (L @ Z) @ Z.T, None

    return descend(error, measure, rounds)
