"""Exponential numbers by comparisons alone, as von Neumann drew them (1951), and their sum."""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.mechanism.knorm.bits import Bits, Uniform, below


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
