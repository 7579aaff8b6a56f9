"""Exact counts: the only types that hold them. Whoever imports this module sees data, so nothing that plans may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class CellCounts:
    """How many records fall in each cell, then the sums of steps between cells where amounts are measured."""

    counts: NDArray[Any]
    """Whole numbers: of 64 bits, or Python's own."""


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Records by their codes, each a number of times."""

    codes: NDArray[np.integer]
    """Record × column, every code in range."""
    times: Integers | None = None
    """How often each occurs; once if left out."""

    @cached_property
    def total(self) -> int:
        """How many records there are."""
        return len(self.codes) if self.times is None else int(self.times.sum(dtype=object))

    def seen_by(self, columns: tuple[int, ...]) -> Records:
        """What a measurement of some columns looks at: the records themselves."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class Tallies:
    """Records that were counted table by table, each as its own combinations."""

    tables: Mapping[tuple[int, ...], Records]
    """By the columns of the table, whose codes alone mean something."""

    @cached_property
    def total(self) -> int:
        """How many records there are: as many in every table."""
        return max((own.total for own in self.tables.values()), default=0)

    def seen_by(self, columns: tuple[int, ...]) -> Records:
        """The table of the fewest columns that has these."""
        fitting = [own for own in self.tables if set(columns) <= set(own)]
        return self.tables[min(fitting, key=lambda own: (len(own), own))]


@dataclass(frozen=True, eq=False, repr=False)
class TextCounts:
    """Values of texts as the data has them, and how many units have each; the values are as secret as the counts."""

    texts: list[str]
    counts: Integers


Counts = CellCounts | Records | Tallies
