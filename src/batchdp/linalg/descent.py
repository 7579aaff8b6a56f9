"""Spectral projected gradient over matrices whose columns lie in the unit L1 ball."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy.linalg import LinAlgError

from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense

MEMORY = 8
"""How many past values the non-monotone line search compares with."""
SHORTEST = 1e-8
"""The shortest share of a step that is tried."""
PATIENCE = 50
"""How many rounds may pass without a gain."""

Extra = TypeVar("Extra")
Objective = Callable[[Dense], tuple[float, Dense, Extra]]
"""Value, gradient, and what else the evaluation knows; may raise LinAlgError where it is undefined."""


@dataclass(frozen=True, eq=False)
class Reached:
    """Where a descent ended: the best point that was seen, and what it cost."""

    point: Dense
    value: float
    evaluations: int


@dataclass(frozen=True, eq=False)
class Descended(Reached, Generic[Extra]):
    """The same, with what the evaluation there knew and the last step length, to go on from."""

    extra: Extra
    step: float


def descend(
    objective: Objective[Extra],
    start: Dense,
    rounds: int,
    *,
    step: float | None = None,
    tolerance: float = 1e-9,
    project: Callable[[Dense], Dense] = project_columns,
) -> Descended[Extra]:
    """Barzilai–Borwein steps with a non-monotone line search (Birgin, Martínez, Raydan).

    Ends when the predicted relative decrease of a step is below `tolerance`, or when fifty rounds gained less.
    """
    x = start
    value, g, extra = objective(x)
    best = (x, value, extra)
    evaluations, recent, mark = 1, [value], value
    step = 0.1 / max(float(np.abs(g).max(initial=0.0)), 1e-300) if step is None else step
    for round_ in range(1, rounds + 1):
        d = project(x - step * g) - x
        slope = float(np.vdot(g, d))
        if not slope < -tolerance * abs(value):
            break
        if round_ % PATIENCE == 0:
            if best[1] > mark * (1 - tolerance * PATIENCE):
                break
            mark = best[1]
        share, top = 1.0, max(recent[-MEMORY:])
        while True:
            y = x + share * d
            try:
                v, h, extra = objective(y)
            except LinAlgError:
                v, h = np.inf, g
            evaluations += 1
            if v <= top + 1e-4 * share * slope:
                break
            # The parabola through both values and the slope: long steps are often tried, so refuse them once only.
            bend = v - value - share * slope
            share *= float(np.clip(-slope * share / (2 * bend), 0.1, 0.6)) if np.isfinite(bend) and bend > 0 else 0.4
            if share < SHORTEST:
                return Descended(best[0], best[1], evaluations, best[2], step)
        moved, turned = share * d, h - g
        curvature = float(np.vdot(moved, turned))
        step = min(max(float(np.vdot(moved, moved) / curvature), 1e-12), 1e12) if curvature > 0 else 3 * step
        x, value, g = y, v, h
        recent.append(v)
        if v < best[1]:
            best = (x, v, extra)
    return Descended(best[0], best[1], evaluations, best[2], step)
