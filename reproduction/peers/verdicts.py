"""Ahead, equal or behind, a figure at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reproduction.peers.figures import Figure, Task, published
from reproduction.peers.journal import Line
from reproduction.peers.measuring import Found

AHEAD, EQUAL, BEHIND, MISSING = "ahead", "equal", "behind", "not measured"
WITHIN = 1e-3
"""The relative difference up to which two figures are equal."""


@dataclass(frozen=True)
class Verdict:
    """A published figure beside what was found."""

    figure: Figure
    found: Found | None
    why_not: str = ""

    @property
    def ratio(self) -> float:
        """Found over published; below 1 is better."""
        assert self.found is not None
        return self.found.error / self.figure.value

    @property
    def word(self) -> str:
        """Equal is within 0.1 %, or the same to the digits that were published."""
        if self.found is None:
            return MISSING
        difference = self.found.error - self.figure.value
        if abs(difference) <= max(WITHIN * self.figure.value, self.figure.rounding):
            return EQUAL
        return AHEAD if difference < 0 else BEHIND


def verdicts(lines: dict[Task, Line], figures: Iterable[Figure] | None = None) -> list[Verdict]:
    """In the order of the published figures, for those that were tried."""
    return [
        Verdict(figure, lines[figure.task].found, lines[figure.task].status)
        for figure in (published() if figures is None else figures)
        if figure.task in lines
    ]
