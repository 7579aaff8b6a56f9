"""Limited-memory quasi-Newton steps (L-BFGS) over matrices without negative entries.

SciPy's L-BFGS-B spends more on the bounds than an evaluation takes here. This one does as Bertsekas's two-metric
projection: entries at zero that want to become negative are left out, the others take a quasi-Newton step among
themselves, and the end of the step is cut at zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from batchdp.linalg.descent import Reached
from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.settings import SETTINGS

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
