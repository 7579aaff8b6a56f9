"""The tables of a release as people see them: what they and their rows are called, and where their answers are.

Linear answers are numbered table after table. Where nothing is computed from them, all are shown as they are. Else a
list says what is shown: whole tables of linear answers, and what is computed from them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.mechanism.reader import Reader
from batchdp.queries.expressions import Asked
from batchdp.queries.query import QUERY, Statement, in_column, statements_of, tables_of
from batchdp.text import full_title
from batchdp.workloads.encode import AskedTables, Legend
from batchdp.workloads.encode.tables import Run
from batchdp.workloads.kronecker import KroneckerWorkload

MADE = ("value", "standard_error", "low", "high")
"""The columns that every table has after its group columns."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Of the rows of one table.

    Args:
        titles: of every column its groups, where rows are all their combinations, the last column fastest; numbers from
            0 where groups have no names.
        statement: whose answers the rows are, where they are told apart by their names.
    """

    titles: tuple[Sequence[str] | range, ...] = ()
    statement: Statement | None = None

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.titles))

    def arrays(self) -> list[NDArray[Any]]:
        """For every group column the group of each row: texts, or numbers; None where a row adds up over it."""
        if self.statement is not None:
            read = str if self.statement.columns == (QUERY,) else in_column
            return [np.array([read(text) for text in own], dtype=object) for own in self.texts()]
        found = []
        for axis, own in enumerate(self.titles):
            values = np.arange(len(own), dtype=np.int32) if isinstance(own, range) else np.array(own, dtype=object)
            inner, outer = prod(self._shape[axis + 1 :]), prod(self._shape[:axis])
            found.append(np.tile(np.repeat(values, inner), outer))
        return found

    def texts(self) -> list[list[str]]:
        """The same as texts, in the words of names."""
        if (one := self.statement) is not None:
            return [[own[axis] for own in one.groups] for axis in range(len(one.columns))]
        return [list(map(str, own.tolist())) for own in self.arrays()]

    def axes(self) -> list[tuple[str, ...]] | None:
        """Of every group column its groups, where rows are all their combinations; None where they are not."""
        return None if self.statement is not None else [tuple(map(str, own)) for own in self.titles]

    def label(self, place: int) -> str:
        """What tells a row apart from the others of its table; nothing where it has no groups."""
        if self.statement is not None:
            return ", ".join(self.statement.groups[place])
        at = np.unravel_index(place, self._shape) if self.titles else ()
        return ", ".join(str(own[int(i)]) for own, i in zip(self.titles, at, strict=True))


@dataclass(frozen=True)
class Table:
    """Some of the answers of a release.

    Args:
        name: of the table.
        columns: the names of its group columns.
        shape: of its answers as an array.
        answers: which of the release's answers are its, row after row.
        title: for people.
        groups: of its rows.
        linear: the number of the table of linear answers that it is, if it is one.
        single: whether its answers have nothing in common but the release.
    """

    name: str
    columns: tuple[str, ...]
    shape: tuple[int, ...]
    answers: Sequence[int]
    title: str
    groups: Groups
    linear: int | None = None
    single: bool = False

    @property
    def queries(self) -> int:
        """How many answers it has."""
        return len(self.answers)

    def labels(self, places: Sequence[int]) -> list[str]:
        """What tells some of its answers apart, a text each."""
        return [self.groups.label(k) or self.title for k in places]

    def __repr__(self) -> str:
        return f"Table({self.name!r}, columns={self.columns}, shape={self.shape})"


@dataclass(frozen=True, eq=False)
class Titles:
    """What the tables of a batch in factors and their rows are called.

    Args:
        workload: the batch.
        column_names: of its columns.
        legend: of its rows; their numbers, if there is none.
    """

    workload: KroneckerWorkload
    column_names: tuple[str, ...]
    legend: Legend | None = None

    def headings(self, table: int) -> tuple[str, ...]:
        """The names of a table's group columns, in the order in which its rows vary, the last fastest."""
        if self.legend is not None:
            return tuple(key.heading for key in self.legend.keys_of(self.workload, table))
        axes = map(self.workload.looked_at, self.workload.factors_of(table))
        return tuple(" & ".join(self.column_names[i] for i in looked) for looked in axes)

    def name(self, table: int, place: int) -> str:
        """Of an answer: its table's, and its groups as SQL's are called, or their numbers."""
        own = self.workload.tables[table]
        if self.legend is not None:
            groups = self.legend.row(self.workload, table, place)
            return f"{own.name}[{groups}]" if groups else own.name
        at = ",".join(str(int(i)) for i in np.unravel_index(place, own.shape)) if own.shape else ""
        return f"{own.name} {at}".rstrip()

    def table(self, number: int, answers: Sequence[int]) -> Table:
        """A table of linear answers, which are shown at these places."""
        own, columns = self.workload.tables[number], self.headings(number)
        title = full_title(own.name, columns) if self.workload.names is not None else " × ".join(columns) or own.name
        axes: tuple[Sequence[str] | range, ...] = tuple(map(range, own.shape))
        if self.legend is not None:
            axes = tuple(key.titles for key in self.legend.keys_of(self.workload, number))
        return Table(own.name, columns, tuple(own.shape), answers, title, Groups(axes), number)

    def computed(self, run: Run, answers: Sequence[int]) -> Table:
        """A table of derived answers, which are shown at these places."""
        assert self.legend is not None
        keys = [self.legend.keys[k] for k in run.keys]
        columns, axes = tuple(key.heading for key in keys), tuple(key.titles for key in keys)
        title = full_title(run.name, columns)
        return Table(run.name, columns, tuple(map(len, axes)), answers, title, Groups(axes))


@dataclass(frozen=True)
class Block:
    """Answers that are shown one after the other: a table of linear answers, or some that are listed.

    Args:
        start: the place of the first among all that are shown.
        size: how many there are.
        linear: the number of the table; None where they are listed.
        listed: the place of the first among those that are listed.
        run: what they are computed by, one for each of its groups, where that is known.
    """

    start: int
    size: int
    linear: int | None
    listed: int = 0
    run: Run | None = None

    @property
    def places(self) -> range:
        """Of its answers among all that are shown."""
        return range(self.start, self.start + self.size)

    @property
    def among_listed(self) -> slice:
        """Of its answers among those that are listed."""
        return slice(self.listed, self.listed + self.size)


class Layout:
    """Which answers are shown, in which order and in which tables."""

    def __init__(self, reader: Reader, titles: Titles | None, asked: Sequence[Asked[int]]) -> None:
        self._reader, self.titles, self._asked = reader, titles, asked

    @property
    def is_lazy(self) -> bool:
        """Whether every table of linear answers is shown as it is, by a name of its own."""
        return not self._asked and self.titles is not None

    def __len__(self) -> int:
        return len(self._asked) or self._reader.answers

    @cached_property
    def blocks(self) -> list[Block]:
        """What is listed, where anything is: whole tables of linear answers, and all else."""
        if not isinstance(self._asked, AskedTables):
            return [Block(0, len(self._asked), None)] if self._asked else []
        found: list[Block] = []
        at = listed = 0
        for run in self._asked.runs:
            own = [Block(0, int(self._reader.sizes[t]), t) for t in run.tables]
            if run.of is not None:
                own.append(Block(0, prod(self._asked.shape(run)), None, listed, run))
                listed += own[-1].size
            for block in own:
                found.append(replace(block, start=at))
                at += block.size
        return found

    @cached_property
    def listed(self) -> tuple[NDArray[np.int64], list[Asked[int]]]:
        """What is shown and no part of a whole table: its places, and what it is."""
        places = [block.places for block in self.blocks if block.linear is None]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *map(np.asarray, places)]).astype(np.int64)
        return found, [self._asked[i] for i in found.tolist()]

    @cached_property
    def _starts(self) -> list[int]:
        return [block.start for block in self.blocks]

    def block_at(self, place: int) -> Block:
        """The one that an answer is in."""
        if self._asked:
            return self.blocks[bisect_right(self._starts, place) - 1]
        starts = self._reader.starts
        table = int(np.searchsorted(starts, place, side="right")) - 1
        return Block(int(starts[table]), int(starts[table + 1] - starts[table]), table)

    def each_block(self) -> Iterator[Block]:
        """All of them, in order."""
        if self._asked:
            yield from self.blocks
            return
        for table, (start, end) in enumerate(pairwise(self._reader.starts.tolist())):
            yield Block(start, end - start, table)

    def number(self, block: Block, place: int) -> int | None:
        """Of the linear answer that is shown at a place of a block; None where it is a derived one."""
        if block.linear is not None:
            return int(self._reader.starts[block.linear]) + place
        of = self.listed[1][block.listed + place].of
        return of if isinstance(of, int) else None

    def is_derived(self, place: int) -> bool:
        """Whether the answer that is shown at a place is computed from others."""
        if not self._asked:
            return False
        block = self.block_at(place)
        return self.number(block, place - block.start) is None

    def name(self, block: Block, place: int) -> str:
        """Of an answer, by its place in the block."""
        if block.linear is None:
            return self.listed[1][block.listed + place].name
        return self.linear_name(block.linear, place)

    def linear_name(self, table: int, place: int) -> str:
        """Of a linear answer, by its table and its place in it."""
        if self._reader.names is not None:
            return self._reader.names[place]
        assert self.titles is not None
        return self.titles.name(table, place)

    def tables(self, *, together: bool = False) -> Sequence[Table]:
        """One a statement or table of linear answers.

        Args:
            together: all single answers that have no table as one table, the first: what people look at.
        """
        if self.is_lazy and self.titles is not None:
            return LinearTables(self.titles, self._reader)
        if not isinstance(self._asked, AskedTables):
            names = [one.name for one in self._asked] or self._reader.names or ()
            return [_named(one) for one in (tables_of(names) if together else statements_of(names))]
        assert self.titles is not None
        return [self._table(block, self.titles) for block in self.blocks]

    def _table(self, block: Block, titles: Titles) -> Table:
        if block.run is not None:
            return titles.computed(block.run, block.places)
        assert block.linear is not None
        return titles.table(block.linear, block.places)


def _named(one: Statement) -> Table:
    title, single = full_title(one.name, one.columns), one.columns == (QUERY,)
    return Table(one.name, one.columns, one.shape, one.answers, title, Groups(statement=one), single=single)


class LinearTables(Sequence[Table]):
    """All tables of linear answers, each made when it is asked for."""

    def __init__(self, titles: Titles, reader: Reader) -> None:
        self._titles, self._reader = titles, reader

    def __len__(self) -> int:
        return len(self._reader.sizes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        t, starts = range(len(self))[index], self._reader.starts
        return self._titles.table(t, range(int(starts[t]), int(starts[t + 1])))


def headings(columns: Sequence[str]) -> list[str]:
    """What a table calls its group columns: their names, with a "_" more where a name is taken."""
    found: list[str] = []
    for column in columns:
        name = column
        while name in MADE or name in found or (name != column and name in columns):
            name += "_"
        found.append(name)
    return found
