"""Values beside the released ones, made from these alone: free of charge. Answers and intervals stay as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.release.tables import Table
from batchdp.text import Shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.release import Release

Read = Callable[[int], Dense]
"""The values of a table, by its number."""


def unused(heading: str, taken: Iterable[str]) -> str:
    """The heading, with a "_" more where a column has it already."""
    known = set(taken)
    while heading in known:
        heading += "_"
    return heading


@dataclass(frozen=True, eq=False)
class Beside(Shown, ABC):
    """Another value for every answer of a release.

    Args:
        release: what was released.
        read: the values of a table of linear answers, by its number; derived ones are computed from these.
    """

    heading: ClassVar[str]
    """Of the column that they are shown in."""
    meaning: ClassVar[str]
    """What that column has, for whoever reads it."""

    release: Release = field(repr=False)
    read: Read = field(repr=False)

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these answers: sentences for files, pages and the terminal."""

    @cached_property
    def values(self) -> Dense:
        """The values, in the order of `release.answers`."""
        return np.concatenate([np.zeros(0), *(own for _, own in self.release.evaluated(self.read))])

    @property
    def raw(self) -> Dense:
        """The noisy answers as they were released."""
        return self.release.values

    @property
    def tables(self) -> Sequence[Table]:
        """As those of the release."""
        return self.release.tables

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the answers."""
        return self.release.names

    def each(self) -> Iterator[float]:
        """The values one by one, in the order of the release's answers."""
        for _, own in self.release.evaluated(self.read):
            yield from own.tolist()

    def array(self, table: int) -> Dense:
        """The values of a table, by its number, as an array of the table's shape."""
        one = self.tables[self.release.checked_table(table)]
        return self.of_table(one).reshape(one.shape)

    def of_table(self, table: Table) -> Dense:
        """The values of a table, in one dimension."""
        if table.linear is not None:
            return self.read(table.linear).reshape(-1)
        return self.values[np.asarray(table.answers, dtype=np.int64)]

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value and raw, which is the noisy answer."""
        frame = self.release.table(*columns, name=name)
        groups = frame.iloc[:, :-4].copy()  # without intervals, which are those of the noisy answers
        raw = unused("raw", groups.columns)
        groups["value"] = self.array(self.release.find(*columns, name=name)).reshape(-1)
        groups[raw] = frame["value"].to_numpy()
        return groups

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Dense:
        """The values, for what takes arrays."""
        return np.array(self.values, dtype=dtype)
