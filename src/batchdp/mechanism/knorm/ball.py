"""Uniform points of the unit ball, from a cube of uniform numbers, without trying the ball's corners of the cube.

Take k uniform numbers of [−1, 1] in pairs. Of a pair that lies in the unit disc, t = u² + v² is uniform in [0, 1], and
the direction is independent of it. Sorted, 0 = t₀ < t₁ < … < t_m, the differences tᵢ − tᵢ₋₁ are uniform in the simplex
{s ≥ 0, Σ s ≤ 1}, and m uniform directions with such squared radii are a uniform point of the ball of 2 m dimensions. So

    xᵢ = (uᵢ, vᵢ) √(1 − tᵢ₋₁ / tᵢ),

and a number that is left over, where k is odd, stays as it is: the point is then uniform in ball × [−1, 1], which holds
the ball of k dimensions too. What is accepted of a cube is 1 / 1.27^m, not the ball's vanishing part.

A cell of the cube, of which `bits` bits are known, becomes a box that holds the point whatever the other bits are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt, pi

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense

Source = Callable[[int], bytes]
"""So many bytes of fair bits: the operating system's, except in tests."""
START = 64
"""Bits that a number starts with. No distribution depends on it."""


class Bits:
    """Bits from the operating system, as they are asked for: nothing is seeded, kept or shared between processes."""

    def __init__(self, source: Source | None = None, start: int = START) -> None:
        self.source: Source = os.urandom if source is None else source
        self.start = start

    def take(self, count: int) -> int:
        """A uniform whole number of `count` bits."""
        return int.from_bytes(self.source((count + 7) // 8), "big") >> -count % 8


class Uniform:
    """A number in [value, value + 1] / 2^bits, uniform there."""

    __slots__ = ("bits", "value")

    def __init__(self, stream: Bits) -> None:
        self.bits = stream.start
        self.value = stream.take(stream.start)

    def refine(self, stream: Bits, bits: int) -> None:
        """To so many bits, if it has fewer."""
        if bits > self.bits:
            more = bits - self.bits
            self.value, self.bits = self.value << more | stream.take(more), bits


def below(one: Uniform, other: Uniform, stream: Bits) -> bool:
    """Whether one number is below another: both are refined until their intervals do not meet inside."""
    bits = max(one.bits, other.bits)
    while True:
        one.refine(stream, bits)
        other.refine(stream, bits)
        if one.value != other.value:
            return one.value < other.value
        bits *= 2


@dataclass(frozen=True)
class Exponential:
    """whole + fraction, with density exp(−t)."""

    whole: int
    fraction: Uniform


def exponential(stream: Bits) -> Exponential:
    """Drawn exactly.

    The run x > u₂ > u₃ > … of uniform numbers that starts with x has an odd length with probability
    1 − x + x²/2 − … = exp(−x). If it is even, which has probability 1/e whatever went before, one is added and x is
    drawn again: the whole part is m with probability e⁻ᵐ (1 − 1/e).
    """
    whole = 0
    while True:
        first = last = Uniform(stream)
        odd = True
        while below(following := Uniform(stream), last, stream):
            last, odd = following, not odd
        if odd:
            return Exponential(whole, first)
        whole += 1


class Gamma:
    """The sum of `shape` exponential numbers, as an interval that can be refined."""

    def __init__(self, shape: int, stream: Bits) -> None:
        self.parts = [exponential(stream) for _ in range(shape)]

    def interval(self, stream: Bits, bits: int) -> tuple[int, int]:
        """Its ends in units of 2^-bits, with at least so many bits of every part known."""
        low = 0
        for part in self.parts:
            part.fraction.refine(stream, bits)
            low += (part.whole << bits) + (part.fraction.value >> part.fraction.bits - bits)
        return low, low + len(self.parts)


ERROR = 2.0**-30
"""How far a coordinate of `nearly` can be from the truth; see there."""
DISC = 2.0**-40
"""Beyond which, outside the unit disc, a float is so too."""


@dataclass(frozen=True)
class Box:
    """All points whose coordinates are within `radius` of `centre`, in units of 2^-bits."""

    centre: list[int]
    radius: int
    bits: int


def box(cell: list[int], bits: int) -> Box | bool:
    """Where the point of a cell is; False where no number of the cell makes one, True where some might not.

    A number of the cell is in [value, value + 1] · 2^(1 − bits) − 1. All divisions and roots are rounded outward.
    """
    one = 1 << bits
    ends = [(2 * value - one, 2 * value - one + 2) for value in cell]
    discs = []
    for u, v in zip(ends[0::2], ends[1::2], strict=False):
        low, high = (sum(pick(a * a, b * b) for a, b in (u, v)) for pick in (min, max))
        if low >= one * one:
            return False
        discs.append((low, high, u, v))
    discs.sort(key=lambda disc: disc[0])
    found: list[tuple[int, int]] = []
    below, above = 0, 0
    for low, high, *pair in discs:
        if high > one * one or low < above:
            return True
        factor = (
            isqrt(((low - above) * one * one) // low) if above else one,
            isqrt(-((below - high) * one * one // high)) + 1 if above else one,
        )
        # The ends of a number have one sign: a cell does not contain 0 but at its end.
        found += [(a * factor[a < 0], b * factor[b > 0]) for a, b in pair]
        below, above = low, high
    found += [(a * one, b * one) for a, b in ends[len(ends) // 2 * 2 :]]
    return Box([a + b for a, b in found], max(b - a for a, b in found), 2 * bits + 1)


def in_no_disc(cells: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of many cells of 64 bits have a pair outside of its disc, as `nearly` says."""
    outside = np.zeros(len(cells), dtype=bool)
    for u, v in zip(cells.T[0::2], cells.T[1::2], strict=False):
        t = np.square(u * 2.0**-63 - 1.0)
        t += np.square(v * 2.0**-63 - 1.0)
        outside |= t > 1 + DISC
    return outside


def nearly(cells: NDArray[np.uint64]) -> tuple[Dense, NDArray[np.bool_], NDArray[np.bool_]]:
    """The points of many cells of 64 bits in floats; which of them are in no disc, and which are in doubt.

    Bounds, for a cell that is not in doubt. A number u is off by at most 2⁻⁵² (conversion) + 2⁻⁵³ (− 1) + 2⁻⁶³ (the
    cell itself) ≤ 2⁻⁵¹; t by at most 2 (|u| + |v|) 2⁻⁵¹ + 2⁻¹⁰⁰ + 2⁻⁵¹ t ≤ 2⁻⁴⁸, which is far below `DISC`. Where no
    difference is below 2⁻³⁰, the order is right, tᵢ ≥ 2⁻³⁰ behind the first, √(tᵢ − tᵢ₋₁) is off by at most
    2⁻⁴⁷ / 2⁻¹⁵ = 2⁻³², (u, v) / √t by at most 2⁻⁵¹ / 2⁻¹⁵ + 2⁻⁴⁹ / 2⁻¹⁵ ≤ 2⁻³³, and a few roundings add 2⁻⁵⁰ each:
    together less than 2⁻³⁰ = `ERROR`.
    """
    count, rank = cells.shape
    u = cells.astype(np.float64) * 2.0**-63 - 1.0
    pairs = u[:, : rank // 2 * 2].reshape(count, rank // 2, 2)
    t = np.square(pairs).sum(axis=2)
    order = np.argsort(t, axis=1)
    t = np.take_along_axis(t, order, axis=1)
    gaps = np.diff(t, axis=1)
    doubtful = np.any(gaps < ERROR, axis=1)
    factor = np.ones_like(t)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor[:, 1:] = np.sqrt(gaps / t[:, 1:])
    points = np.take_along_axis(pairs, order[:, :, None], axis=1) * factor[:, :, None]
    outside = np.any(t > 1 + DISC, axis=1)
    found = np.hstack([points.reshape(count, rank // 2 * 2), u[:, rank // 2 * 2 :]])
    return found, np.asarray(outside), np.asarray(doubtful)


def cube_share(rank: int) -> float:
    """How much of the cube becomes points of the ball."""
    from scipy.special import gammaln

    even = rank // 2 * 2
    volume = [n / 2 * np.log(pi) - gammaln(n / 2 + 1) for n in (even, rank)]
    return float((pi / 4) ** (rank // 2) * np.exp(volume[1] - volume[0]) / 2 ** (rank - even))
