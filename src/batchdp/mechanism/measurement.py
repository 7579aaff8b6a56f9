"""What is measured, in whole numbers, as everything that handles it sees it. It knows no data.

A new kind of measurement is a class with these members, a line in `quantise` that says which strategy becomes one, and
functions for `measure` and for `read`, each registered where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from batchdp.privacy import Noise

Integers = NDArray[np.int64]
Dense = NDArray[np.float64]

LARGEST = 2**61
"""Measurements are clamped to this magnitude, which leaves noise its room in 64 bits."""


class NoiseGroup(Protocol):
    """Measurements that are drawn with one noise."""

    @property
    def moved(self) -> int:
        """Δ to the power of the noise's norm, exactly: how much one record can change all of the group together."""

    @property
    def share(self) -> Fraction | float:
        """Of the budget."""

    @property
    def bits(self) -> int:
        """Measuring 1 is about 2^bits."""

    @property
    def columns(self) -> tuple[int, ...]:
        """That are looked at, by their numbers; none where a measurement is of cells."""


class IntegerMeasurement(Protocol):
    """Integer measurements of a batch, in groups that have a noise each, one group after the other."""

    @property
    def noise(self) -> Noise:
        """The kind of noise that sensitivities are for."""

    @property
    def groups(self) -> Any:
        """The groups, each a `NoiseGroup`, to be gone through and counted; some kinds make them when looked at."""

    @property
    def shares(self) -> Sequence[Fraction | float] | Dense:
        """Of the budget, one for every group."""

    @property
    def sizes(self) -> Integers:
        """How many measurements every group has."""

    @property
    def largest_total(self) -> int:
        """The public cap on the number of records that no measurement can overflow at."""

    @property
    def slack(self) -> float:
        """Of every share: room for what privacy maps round up, where many groups add up."""

    def reader(self, scales: Dense) -> Any:
        """How answers are read from measurements with noise of these scales, and how far they can be off."""

    def worst_bias(self, reader: Any) -> tuple[float, str]:
        """The most that an answer is off apart from noise, as a share of its standard error; and which one it is."""


@dataclass(frozen=True)
class GroupNoise:
    """The noise of one group of measurements."""

    moved: int
    """Δ of two neighbours to the power of the noise's norm, exactly; the columns of one unit where a body has them."""
    scale: float
    """λ or σ in lattice steps, or in bodies."""
    loss: float
    """Its ε or ρ, rounded up: OpenDP's privacy map of the sensitivity."""


NOTHING = GroupNoise(0, 0.0, 0.0)
"""Of a group that measures nothing."""


def total_loss(noises: Sequence[GroupNoise]) -> Fraction:
    """What all groups lose, exactly."""
    return sum((Fraction(noise.loss) for noise in noises), Fraction(0))
