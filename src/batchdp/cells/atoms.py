"""The atoms of a column: the pieces of its values that no query tells apart. They come from the queries alone.

Every record has one atom in every column, numbered from 0. The last atom is always NULL. Records that the domain says
to drop have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from batchdp.domain.columns import Grid
from batchdp.queries.conditions import Cut, Place, Value


@dataclass(frozen=True)
class ListedAtoms:
    """Groups of declared values, then anything else, then NULL.

    Atom i < len(groups) holds the values of group i, atom len(groups) holds every other value that is not NULL, and
    atom len(groups) + 1 holds NULL.
    """

    column: str
    kind: Literal["text", "integer", "boolean"]
    groups: tuple[tuple[Value, ...], ...]
    declared: tuple[Value, ...] | None
    """Where given, records with any other value, or NULL, are dropped. Always contains every value in `groups`."""

    @property
    def size(self) -> int:
        """How many atoms there are."""
        return len(self.groups) + 2


@dataclass(frozen=True)
class LineAtoms:
    """The stretches between cuts of a line of numbers or days, then NULL (and NaN).

    Atom i ≤ len(cuts) holds the values after cut i − 1 and before cut i; the first and the last stretch are open-ended.
    Atom len(cuts) + 1 holds NULL.
    """

    column: str
    kind: Literal["number", "date"]
    cuts: tuple[Cut, ...]
    """In ascending order. Those of dates are all before a day."""
    declared: tuple[Place, Place] | None
    """Where given, records outside these two (both included), or NULL, are dropped."""
    whole: bool = False
    """Where records are dropped, those that are not whole numbers are dropped as well."""

    @property
    def size(self) -> int:
        """How many atoms there are."""
        return len(self.cuts) + 2


@dataclass(frozen=True)
class Stretch:
    """Values between two cuts, and the atoms that stand for them; None where there is no such record."""

    first: int
    last: int
    """Steps of the grid; no step where the last is before the first."""
    low: int | None
    high: int | None
    """The atoms of the stretch's two ends; of a single step, both are one."""
    beside: int | None
    """The atom of values that are not on the grid."""


@dataclass(frozen=True)
class AmountAtoms:
    """A column of amounts on a grid: the two ends of every stretch between cuts, what is not on the grid, then NULL.

    Every COUNT and SUM is affine in a value within a stretch, so that a record there is a mixture of records at its two
    ends. In engines it has the atom of the lower end, and the number of its step.
    """

    column: str
    grid: Grid
    ends: tuple[Place, Place]
    """As declared: values beyond them are not on the grid, unless they are clipped."""
    cuts: tuple[Cut, ...]
    """In ascending order, among them those before the lower end and after the upper one."""
    dropping: bool
    """Whether records that are not on the grid are dropped."""
    whole: bool
    """Whether values between the steps are not on the grid; if not, they are rounded to the nearest step."""
    clip: bool
    """Whether values beyond the ends count as these."""
    summed: bool
    """Whether a query sums the column by the ends of its stretches."""
    kind: Literal["number"] = "number"

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """One for every pair of neighbouring cuts, the outer ones open-ended."""
        found: list[Stretch] = []
        atom = 0
        bottom, top = Cut(self.ends[0]), Cut(self.ends[1], after=True)
        for i in range(len(self.cuts) + 1):
            start = self.cuts[i - 1] if i else None
            end = self.cuts[i] if i < len(self.cuts) else None
            inside = start is not None and end is not None and bottom <= start and end <= top
            first, last = (self._first(start), self._first(end) - 1) if inside and start and end else (0, -1)
            low = high = beside = None
            if first <= last:
                low, high = atom, atom + (first < last)
                atom = high + 1
            # Between the cuts before and after a value there is nothing else.
            wide = start is None or end is None or start.value < end.value
            if not self.dropping and wide and (self.whole if inside else not self.clip):
                beside = atom
                atom += 1
            found.append(Stretch(first, last, low, high, beside))
        return tuple(found)

    def _first(self, cut: Cut) -> int:
        return self.grid.first(cut.value, after=cut.after)

    @cached_property
    def size(self) -> int:
        """How many atoms there are."""
        named = [atom for one in self.stretches for atom in (one.high, one.beside) if atom is not None]
        return max(named, default=-1) + 2


Atoms = ListedAtoms | LineAtoms | AmountAtoms
