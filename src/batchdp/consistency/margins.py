"""The total and the one-way margins, which are settled before any other table and then held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchdp.consistency.components import Columns, Parts

Dense = NDArray[np.float64]


def held_margins(noisy: Parts, sets: list[Columns], sizes: tuple[int, ...]) -> dict[Columns, Dense]:
    """The total, at least 0, and of every column the component of the closest non-negative margin with this total."""
    total = max(0.0, float(noisy[()]))
    held: dict[Columns, Dense] = {(): np.array(total)}
    for own in sets:
        if len(own) == 1:
            even = total / sizes[own[0]]
            held[own] = onto_simplex(noisy[own] + even, total) - even
    return held


def onto_simplex(values: Dense, total: float) -> Dense:
    """The closest non-negative values with this total: all are lowered alike, and cut at 0."""
    if total <= 0:
        return np.zeros_like(values)
    return np.asarray(np.maximum(values - lowering(values, total), 0.0))


def lowering(values: Dense, total: float) -> float:
    """By how much."""
    falling = np.sort(values)[::-1]
    lowered = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > lowered)[-1])
    return float(lowered[last])
