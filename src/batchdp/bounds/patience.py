"""When it pays to tighten the upper bound of the convex search, which may cost more than a round."""

from __future__ import annotations

import numpy as np

LARGEST_ACTIVE_SET = 10_000
"""Columns up to which tightening is tried: it holds a square matrix of this size."""


class Patience:
    """When to tighten: often where that costs less than a round, else when it is likely to be for the last time."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._credit = self._cost = self._price = 0.0

    def ends(self, k: int, columns: int, active: int, gap: float) -> bool:
        """Whether to do so after a round on so many columns that left such a gap."""
        self._cost = 4.0 * k * k * columns + 20.0 * k**3
        self._price = 2.0 * k * active**2 + active**3 / 3 + 3.0 * k**3
        self._credit += self._cost
        # It gains about a digit, so that one who is further off had better go on.
        reluctance = 1 + self._halvings(gap / 10) if self._price > self._cost else 1.0
        return gap < 1 and active <= LARGEST_ACTIVE_SET and self._price * reluctance <= self._credit

    def renew(self, gap: float) -> None:
        """Start over after a try that left such a gap; a round about halves it."""
        self._credit = min(0.0, self._price - self._cost * self._halvings(gap)) if self._price > self._cost else 0.0

    def lose(self) -> None:
        """Do so after the next round."""
        self._credit = np.inf

    def _halvings(self, gap: float) -> float:
        return float(np.log2(max(1.0, gap / self._tolerance)))
