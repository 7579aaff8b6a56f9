"""Where an answer stands on an axis: linear where that does, logarithmic where sizes differ too much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from batchdp.linalg.matrix import Dense

CROWDED = 20.0
"""How many times larger than a small answer the largest may be on a linear scale."""


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`; with a `unit`, linear up to about that size and logarithmic beyond (asinh)."""

    low: float
    high: float
    unit: float | None = None

    def position(self, value: float) -> float:
        """From 0 at the low end to 1 at the high end."""
        low, high = self._stretched(self.low), self._stretched(self.high)
        return (self._stretched(value) - low) / (high - low)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers to write along the axis."""
        if self.unit is None:
            step = _round_step((self.high - self.low) / most)
            first = math.ceil(self.low / step - 1e-9)
            found = [k * step for k in range(first, first + 2 * most) if k * step <= self.high + 1e-9 * step]
            return found if len(found) >= 3 else self.ticks(most + 2)  # one alone would not tell the scale
        largest = max(abs(self.low), abs(self.high))
        powers = range(math.ceil(math.log10(self.unit)), math.floor(math.log10(largest)) + 1)
        sizes = [10.0**power for power in powers]
        found = [one for one in (*(-size for size in reversed(sizes)), 0.0, *sizes) if self.low <= one <= self.high]
        return found[:: max(1, math.ceil(len(found) / (most + 2)))]

    def _stretched(self, value: float) -> float:
        return value if self.unit is None else math.asinh(value / self.unit)


def scale_for(values: Dense, half_widths: Dense) -> Scale:
    """An axis on which all intervals fit."""
    low, high = float(np.min(values - half_widths)), float(np.max(values + half_widths))
    sizes = np.abs(values)
    noise, largest = float(np.median(half_widths)), float(sizes.max())
    small = max(float(np.quantile(sizes, 0.25)), noise)
    unit = max(noise, 1e-6 * largest) if 0 < CROWDED * small < largest else None
    if low == high:  # answers that are 0 whatever the data
        low, high = low - 1.0, high + 1.0
    if unit is None:
        if 0 < low < (high - low):
            low = 0.0  # not far away, and people compare with it
        room = 0.02 * (high - low)
        return Scale(low - (room if low else 0.0), high + room)
    below = low / 1.3 if low > unit else low * 1.3 if low < -unit else low - unit
    above = high * 1.15 if high > unit else high + unit
    return Scale(below, above, unit)


def symmetric(half_widths: Dense) -> Scale:
    """An axis for the margins alone, 0 in the middle."""
    widest = float(half_widths.max(initial=0.0)) or 1.0
    return Scale(-1.05 * widest, 1.05 * widest)


def _round_step(size: float) -> float:
    """1, 2 or 5 times a power of ten, not below the size."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size * (1 - 1e-9))
