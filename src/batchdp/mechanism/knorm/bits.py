"""Fair bits, and real numbers of which only some bits are known yet: uniform, exponential, and sums of these.

A uniform number is an interval that can be cut in halves: bits that nobody has looked at are independent of everything
that was decided, so they may be drawn later. Exponential numbers are drawn by comparisons alone, as von Neumann did
(1951).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

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
