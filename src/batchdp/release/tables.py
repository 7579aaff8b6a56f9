"""The tables of a release as people see them: what they and their rows are called, and where their answers are.

Linear answers are numbered table after table. Where nothing is computed from them, all are shown as they are. Else a
list says what is shown: whole tables of linear answers stay such, all else becomes tables by the answers' names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from batchdp.asking.legend import Legend
from batchdp.derived.expressions import Asked
from batchdp.excerpt import titled
from batchdp.mechanism.reader import Reader
from batchdp.queries.statements import QUERY, Statement, in_column, statements_of, tables_of
from batchdp.workloads.structure import Products

MADE = ("value", "standard_error", "low", "high")
"""The columns that every table has after its group columns."""


class Groups(Protocol):
    """Of the rows of one table."""

    def arrays(self) -> list[NDArray[Any]]:
        """For every group column the group of each row: texts, or numbers; None where a row adds up over it."""

    def texts(self) -> list[list[str]]:
        """The same as texts."""

    def axes(self) -> list[tuple[str, ...]] | None:
        """Of every group column its groups, where rows are all their combinations; None where they are not."""

    def label(self, place: int) -> str:
        """What tells a row apart from the others of its table; nothing where it has no groups."""


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
class NamedRows:
    """The groups of a statement's answers, from their names."""

    statement: Statement

    def arrays(self) -> list[NDArray[Any]]:
        """Texts, and None where a row adds up."""
        one = self.statement
        return [
            np.array([_group(one, own[axis]) for own in one.groups], dtype=object) for axis in range(len(one.columns))
        ]

    def texts(self) -> list[list[str]]:
        """As names have them."""
        return [[own[axis] for own in self.statement.groups] for axis in range(len(self.statement.columns))]

    def axes(self) -> None:
        """Rows are what they are."""

    def label(self, place: int) -> str:
        """The groups, one after the other."""
        return ", ".join(self.statement.groups[place])


def _group(one: Statement, text: str) -> str | None:
    return text if one.columns == (QUERY,) else in_column(text)


@dataclass(frozen=True, eq=False)
class Titles:
    """What the tables of a batch in factors and their rows are called.

    Args:
        workload: the batch.
        column_names: of its columns.
        legend: of its rows; their numbers, if there is none.
    """

    workload: Products
    column_names: tuple[str, ...]
    legend: Legend | None = None

    def headings(self, table: int) -> tuple[str, ...]:
        """The names of a table's group columns, in the order in which its rows vary, the last fastest."""
        if self.legend is not None:
            return tuple(key.heading for key in self.legend.keys_of(self.workload, table))
        return tuple(self.column_names[i] for i in self.workload.tables[table].columns)

    def shape(self, table: int) -> tuple[int, ...]:
        """How many groups every group column has."""
        if self.legend is not None:
            return self.legend.shape(self.workload, table)
        return tuple(self.workload.tables[table].shape)

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
        title = titled(own.name, columns) if self.workload.names is not None else " × ".join(columns) or own.name
        return Table(own.name, columns, tuple(own.shape), answers, title, TitledRows(self, number), number)


@dataclass(frozen=True, eq=False)
class TitledRows:
    """The groups of a table's rows, from a legend or by their numbers."""

    titles: Titles
    table: int

    def arrays(self) -> list[NDArray[Any]]:
        """Titles, or numbers from 0."""
        legend, workload = self.titles.legend, self.titles.workload
        if legend is not None:
            return [titles for _, titles in legend.columns(workload, self.table)]
        shape = workload.tables[self.table].shape
        places = [np.arange(n, dtype=np.int32) for n in shape]
        inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        outer = [prod(shape[:axis]) for axis in range(len(shape))]
        return [np.tile(np.repeat(own, i), o) for own, i, o in zip(places, inner, outer, strict=True)]

    def texts(self) -> list[list[str]]:
        """As texts."""
        return [list(map(str, own.tolist())) for own in self.arrays()]

    def axes(self) -> list[tuple[str, ...]]:
        """The titles, or numbers, of every group column."""
        legend, workload = self.titles.legend, self.titles.workload
        if legend is None:
            return [tuple(map(str, range(n))) for n in workload.tables[self.table].shape]
        return [key.titles for key in legend.keys_of(workload, self.table)]

    def label(self, place: int) -> str:
        """The groups, one after the other."""
        legend, workload = self.titles.legend, self.titles.workload
        shape = self.titles.shape(self.table)
        at = [int(i) for i in np.unravel_index(place, shape)] if shape else []
        if legend is None:
            return ", ".join(map(str, at))
        keys = legend.keys_of(workload, self.table)
        return ", ".join(key.titles[i] for key, i in zip(keys, at, strict=True))


@dataclass(frozen=True)
class Block:
    """Answers that are shown one after the other: a table of linear answers, or some that are listed.

    Args:
        start: the place of the first among all that are shown.
        size: how many there are.
        linear: the number of the table; None where they are listed.
        listed: the place of the first among those that are listed.
    """

    start: int
    size: int
    linear: int | None
    listed: int = 0


class Layout:
    """Which answers are shown, in which order and in which tables."""

    def __init__(self, reader: Reader, titles: Titles | None, asked: Sequence[Asked[int]]) -> None:
        self._reader, self._titles, self.asked = reader, titles, asked

    @property
    def is_lazy(self) -> bool:
        """Whether every table of linear answers is shown as it is, by a name of its own."""
        return not self.asked and self._titles is not None

    def __len__(self) -> int:
        return len(self.asked) or self._reader.answers

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """The linear answer that is shown at every place of the list; −1 where one is computed."""
        return np.array([one.of if isinstance(one.of, int) else -1 for one in self.asked], dtype=np.int64)

    @cached_property
    def blocks(self) -> list[Block]:
        """What is listed, where anything is: whole tables of linear answers and all else by turns."""
        found: list[Block] = []
        listed = at = 0
        while at < len(self.asked):
            table = self._whole_at(at)
            if table is not None:
                found.append(Block(at, int(self._reader.sizes[table]), table))
                at += found[-1].size
                continue
            if found and found[-1].linear is None:
                found[-1] = Block(found[-1].start, found[-1].size + 1, None, found[-1].listed)
            else:
                found.append(Block(at, 1, None, listed))
            listed, at = listed + 1, at + 1
        return found

    def _whole_at(self, at: int) -> int | None:
        """The table of linear answers that is listed as a whole from here."""
        starts, number = self._reader.starts, int(self._numbers[at])
        if self._titles is None or number < 0:
            return None
        table = int(np.searchsorted(starts, number, side="right")) - 1
        size = int(starts[table + 1] - starts[table])
        if starts[table] != number or at + size > len(self.asked):
            return None
        same = np.array_equal(self._numbers[at : at + size], np.arange(number, number + size))
        return table if same else None

    @cached_property
    def listed(self) -> tuple[NDArray[np.int64], list[Asked[int]]]:
        """What is shown and no part of a whole table: its places, and what it is."""
        own = [block for block in self.blocks if block.linear is None]
        places = [np.arange(block.start, block.start + block.size) for block in own]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *places]).astype(np.int64)
        return found, [self.asked[i] for i in found.tolist()]

    def block_at(self, place: int) -> Block:
        """The one that an answer is in."""
        if self.asked:
            return self.blocks[bisect_right(self.blocks, place, key=lambda block: block.start) - 1]
        starts = self._reader.starts
        table = int(np.searchsorted(starts, place, side="right")) - 1
        return Block(int(starts[table]), int(starts[table + 1] - starts[table]), table)

    def each_block(self) -> Iterator[Block]:
        """All of them, in order."""
        if self.asked:
            yield from self.blocks
            return
        for table, (start, end) in enumerate(pairwise(self._reader.starts.tolist())):
            yield Block(start, end - start, table)

    def name(self, block: Block, place: int) -> str:
        """Of an answer, by its place in the block."""
        if self.asked:
            return self.asked[block.start + place].name
        return self.linear_name(block.linear or 0, place)

    def linear_name(self, table: int, place: int) -> str:
        """Of a linear answer, by its table and its place in it."""
        if self._reader.names is not None:
            return self._reader.names[place]
        assert self._titles is not None
        return self._titles.name(table, place)

    def tables(self, *, together: bool = False) -> Sequence[Table]:
        """One a statement or table of linear answers.

        Args:
            together: all single answers that have no table as one table, the first: what people look at.
        """
        if self._titles is not None and not self.asked:
            return LinearTables(self._titles, self._reader)
        if not self.asked:
            names: Sequence[str] = self._reader.names or ()
            found = tables_of(names) if together else statements_of(names)
            return [_named(one, np.arange(len(names))) for one in found]
        places, own = self.listed
        alone = self._titles is not None  # beside tables, a single answer is one of its own
        names = [one.name for one in own]
        listed = [_named(one, places) for one in (tables_of(names) if together else statements_of(names, alone=alone))]
        titles = self._titles
        listed += [
            titles.table(block.linear, range(block.start, block.start + block.size))
            for block in self.blocks
            if block.linear is not None and titles is not None
        ]
        return sorted(listed, key=lambda one: (not (together and one.single), one.answers[0]))


def _named(one: Statement, places: NDArray[np.int64]) -> Table:
    """A table of answers that are listed, by their names."""
    answers = places[list(one.answers)].tolist()
    shape = (len(answers),) if one.columns else ()
    title, single = titled(one.name, one.columns), one.columns == (QUERY,)
    return Table(one.name, one.columns, shape, answers, title, NamedRows(one), single=single)


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
