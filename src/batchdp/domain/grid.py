"""The values that a summed column can have: a first one, and steps of one size from it, all exact."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

MOST_STEPS = 2**62
SMALLEST_STEP = 1e-30

Number = int | float


@dataclass(frozen=True)
class Grid:
    """low, low + step, …, low + steps · step. A value is the number of its step, from 0."""

    low: Fraction
    step: Fraction
    steps: int

    @property
    def high(self) -> Fraction:
        """The last value."""
        return self.low + self.steps * self.step

    def value(self, place: int) -> Fraction:
        """The value of a step."""
        return self.low + place * self.step

    def first(self, value: Number, *, after: bool) -> int:
        """The first step at a value, or after it; below 0 or beyond `steps` where the value lies outside."""
        place = (written(value) - self.low) / self.step
        return place.__floor__() + 1 if after else place.__ceil__()


def written(number: Number) -> Fraction:
    """A number as it is written: 0.1 is a tenth, and not the float next to it."""
    return Fraction(Decimal(repr(number)))


def grid_of(low: Number, high: Number, step: Number) -> Grid:
    """The grid between two ends; a `ValueError` says what is wrong with the step."""
    if step <= 0:
        raise ValueError(f"step={step} must be above 0; give the smallest amount that matters, like 0.01")
    if step < SMALLEST_STEP:
        raise ValueError(f"step={step} is below {SMALLEST_STEP:g}; declare the column in a smaller unit")
    first, size = written(low), written(step)
    steps = (written(high) - first) / size
    if steps > MOST_STEPS:
        raise ValueError(
            f"step={step} cuts the range from {low} to {high} into more than 2^62 steps; give a larger one"
        )
    if steps.denominator != 1:
        last = first + steps.__floor__() * size
        raise ValueError(
            f"step={step} does not divide the range from {low} to {high}; end it at {float(last):.15g}, or choose "
            "another step"
        )
    return Grid(first, size, int(steps))
