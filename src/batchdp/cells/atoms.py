"""The atoms of a column: the pieces of its values that no query tells apart. They come from the queries alone.

Every record has one atom in every column, numbered from 0. The last atom is always NULL. Records that the domain says
to drop have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


Atoms = ListedAtoms | LineAtoms
