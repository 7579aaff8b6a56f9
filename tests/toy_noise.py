"""A kind of noise in one file: two-sided geometric, by Python's own random source. Once imported it can be drawn.

It is what Laplace noise on whole numbers is; that it comes from elsewhere shows that nothing else need be touched.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import SystemRandom
from typing import Any

import numpy as np

from batchdp import MatrixWorkload, PairStrategy
from batchdp.mechanism.calibrate import least_noise
from batchdp.mechanism.measurement import GroupNoise
from batchdp.mechanism.sample import sample_independent
from batchdp.privacy import NAMED, Noise, Pure


class Geometric(Pure):
    """P(z) ∝ exp(−|z| / scale)."""


GEOMETRIC = Geometric("pure", "geometric", 1, "epsilon", "ε", "geometric", 2.0, 2, 2.0, 3.0, bound_is_tight=False)
NAMED[GEOMETRIC.name] = GEOMETRIC


class GeometricStrategy(PairStrategy):
    """A pair that is measured with it."""

    @property
    def noise(self) -> Noise:
        return GEOMETRIC


def identity(cells: int) -> GeometricStrategy:
    """Every cell, with this noise."""
    return GeometricStrategy(MatrixWorkload(np.eye(cells)), np.eye(cells), np.eye(cells))


@least_noise.register
def _(noise: Geometric, group: Any, factor: int, budget: Fraction) -> GroupNoise:
    moved = group.moved * factor
    scale = float(moved / budget)
    while Fraction(scale) * budget < moved:
        scale = math.nextafter(scale, math.inf)
    loss = float(Fraction(moved) / Fraction(scale))
    while Fraction(loss) < Fraction(moved) / Fraction(scale):
        loss = math.nextafter(loss, math.inf)
    return GroupNoise(moved, scale, loss)


@sample_independent.register
def _(noise: Geometric, scales: Any, sizes: Any, progress: Any = None) -> Any:
    chance = SystemRandom()

    def one(scale: float) -> int:
        return math.floor(-scale * math.log(1 - chance.random()))

    return np.array([one(s) - one(s) for s, n in zip(scales, sizes, strict=True) for _ in range(n)], dtype=np.int64)
