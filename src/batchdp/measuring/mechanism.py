"""The noise: OpenDP's discrete Laplace and discrete Gaussian samplers on integer vectors, and nothing else.

Nothing here can be seeded. A mechanism refuses to exist unless OpenDP's own privacy map of the exact sensitivity is at
most what will be charged.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from batchdp.errors import PrivacyParameterError
from batchdp.privacy import LAPLACE, Budget, Noise, Privacy, noise_of
from batchdp.progress import Progress

LARGEST_SCALE = 2.0**55
"""Noise beyond this could leave 64 bits."""
ATTEMPTS = 100


@dataclass(frozen=True)
class Mechanism:
    """Adds noise to integer measurements; ε- or ρ-private for vectors that differ by the sensitivity at most."""

    privacy: Privacy
    scale: float
    """Of the discrete Laplace (b) or discrete Gaussian (σ) distribution, in lattice units."""
    sensitivity: int
    budget: float
    """What is charged: ε or ρ."""
    loss: float
    """OpenDP's privacy map of the sensitivity; at most the budget."""
    draw: Callable[[Sequence[int]], list[int]]

    @property
    def variance(self) -> float:
        """Of one measurement's noise, in lattice units squared; on so fine a lattice that of the continuous law."""
        return self.noise.variance_at_one * self.scale**2

    @property
    def noise(self) -> Noise:
        """The kind of noise that `privacy` stands for."""
        return noise_of(self.privacy)

    @property
    def is_slow(self) -> bool:
        """Whether its noise is drawn before the charge, because that takes long and may be interrupted."""
        return False

    def ready(self, progress: Progress | None = None) -> Callable[[Sequence[int]], list[int]]:
        """What adds the noise; where that is slow it is drawn now, to be added once."""
        return self.draw


def mechanism(privacy: Privacy, sensitivity: int, budget: float) -> Mechanism:
    """The least noise that OpenDP certifies for this sensitivity and budget.

    Guarantee: `draw` is `budget`-private (ε, or ρ of zCDP) between any two integer vectors at an L1 distance
    (an L2 distance for zCDP) of at most `sensitivity`.
    """
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or sensitivity < 1:
        raise PrivacyParameterError(f"sensitivity={sensitivity!r} must be a whole number of at least 1")
    noise = noise_of(privacy)
    asked = Budget(noise, budget)
    budget, most = float(asked), asked.certain
    scale = noise.scale(sensitivity, budget)
    for _ in range(ATTEMPTS):
        if not (math.isfinite(scale) and sys.float_info.min <= scale <= LARGEST_SCALE):
            raise PrivacyParameterError(
                f"{noise.unit}={budget!r} asks for noise of scale {scale!r}, outside {sys.float_info.min:.0e} to "
                f"{LARGEST_SCALE:.0e}; raise the budget or lower the public cap"
            )
        measurement = opendp_noise(noise, scale)
        loss = float(measurement.map(sensitivity if noise == LAPLACE else float_above(sensitivity)))
        if loss <= most:
            return Mechanism(privacy, scale, sensitivity, budget, loss, measurement)
        scale = math.nextafter(scale, math.inf)
    raise PrivacyParameterError(f"{noise.unit}={budget!r}: no scale satisfies OpenDP's privacy map; choose another one")


def opendp_noise(noise: Noise, scale: float) -> Any:
    """OpenDP's measurement: adds noise to integer vectors, and has a privacy map of their L1 or L2 distance."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if noise == LAPLACE:
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)


def float_above(number: int) -> float:
    """The least float that is not below a whole number; beyond 2^53 the nearest one may be."""
    nearest = float(number)
    return nearest if int(nearest) >= number else math.nextafter(nearest, math.inf)
