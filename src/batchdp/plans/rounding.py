"""Round numbers for people."""

from __future__ import annotations

import math

NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


def rounded_up(value: float) -> float:
    """Two digits, never less: less would not be accurate enough."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / step * (1 - 1e-12)) * step


def rounded(value: float) -> float:
    """A round number near this one."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return min((nice * power for nice in NICE), key=lambda nice: abs(nice - value))
