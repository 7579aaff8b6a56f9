"""Fair bits, and real numbers of which only some bits are known yet.

A uniform number is an interval that can be cut in halves: bits that nobody has looked at are independent of everything
that was decided, so they may be drawn later.
"""

from __future__ import annotations

import os
from collections.abc import Callable

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
