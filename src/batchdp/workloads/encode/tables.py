"""What rows of tables are called, how answers are shown, and one query on atoms: a product of rows, or one array."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from batchdp.errors import QueryError, WorkloadError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.queries.expressions import Asked, Combination, Crossing, Moments, read_expression, write_expression
from batchdp.queries.query import Query
from batchdp.workloads.encode.atoms import Atoms
from batchdp.workloads.encode.classes import Classes, TooManyClassesError, classes_of
from batchdp.workloads.kronecker import KroneckerWorkload


@dataclass(frozen=True)
class Key:
    """A group column: its heading, and the titles of its groups in their order."""

    heading: str
    titles: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Legend:
    """The group columns of every table of a batch.

    Args:
        keys: all group columns.
        kinds: for every kind of axis the numbers of its keys, the last varying fastest; an axis of one row that is
            not grouped by anything has none.
        axes: the kind of every axis, as `KroneckerWorkload.columns` lists them.
        asked: a fingerprint of what the tables' values stand for, which their numbers do not show.
    """

    keys: tuple[Key, ...]
    kinds: tuple[tuple[int, ...], ...]
    axes: Indices
    asked: str

    def __post_init__(self) -> None:
        self.axes.flags.writeable = False

    def numbers_of(self, batch: KroneckerWorkload, table: int) -> tuple[int, ...]:
        """The numbers of the group columns of a table, in the order of its axes."""
        own = self.axes[batch.starts[table] : batch.starts[table + 1]].tolist()
        return tuple(k for kind in own for k in self.kinds[kind])

    def keys_of(self, batch: KroneckerWorkload, table: int) -> list[Key]:
        """The group columns of a table, in the order of its axes."""
        return [self.keys[k] for k in self.numbers_of(batch, table)]

    def row(self, batch: KroneckerWorkload, table: int, place: int) -> str:
        """What one of a table's rows is called: column=group, …; nothing where it has no group columns."""
        return self.called(self.numbers_of(batch, table), place)

    def called(self, keys: Sequence[int], place: int) -> str:
        """What one of the combinations of some group columns is called, the last column fastest."""
        own = [self.keys[k] for k in keys]
        at = np.unravel_index(place, [len(key.titles) for key in own]) if own else ()
        return ", ".join(f"{key.heading}={key.titles[int(i)]}" for key, i in zip(own, at, strict=True))

    def header(self) -> dict[str, Any]:
        """For files and digests, beside the array of axes."""
        keys = [[key.heading, key.titles] for key in self.keys]
        return {"keys": keys, "kinds": self.kinds, "asked": self.asked}

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        told = json.dumps(self.header()).encode()
        return hashlib.sha256(told + np.ascontiguousarray(self.axes, dtype="<i8").tobytes()).hexdigest()

    @classmethod
    def read(cls, content: Mapping[str, Any], axes: Indices, batch: KroneckerWorkload) -> Legend:
        """From a file, where anything can stand; refused unless it fits the batch."""
        keys = tuple(Key(_text(heading), tuple(map(_text, titles))) for heading, titles in content["keys"])
        kinds = tuple(tuple(own) for own in content["kinds"])
        used = [k for own in kinds for k in own]
        fits = (
            all(isinstance(k, int) and not isinstance(k, bool) and 0 <= k < len(keys) for k in used)
            and len(axes) == len(batch.columns)
            and bool(np.all((axes >= 0) & (axes < len(kinds))))
            and all(key.titles for key in keys)
        )
        if not fits:
            raise WorkloadError("the legend of the tables does not fit together")
        rows = np.array([prod(len(keys[k].titles) for k in own) for own in kinds], dtype=object)
        pairs = np.unique(np.stack([batch.columns, batch.chosen, axes]), axis=1).T.tolist()
        if any(batch.factors[c][f].rows != rows[kind] for c, f, kind in pairs):
            raise WorkloadError("the legend of the tables names other rows than they have")
        return cls(keys, kinds, axes, _text(content["asked"]))


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """How far apart neighbours along every axis are, the last axis fastest."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WorkloadError("the legend of the tables holds something that is not a text")
    return value


def extra_titles(declared: Sequence[str], *extra: str) -> tuple[str, ...]:
    """The declared titles and some more, each in as many parentheses as it takes to be none of the declared ones."""
    found = list(declared)
    for title in extra:
        name = f"({title})"
        while name in found:
            name = f"({name})"
        found.append(name)
    return tuple(found)


@dataclass(frozen=True)
class Part:
    """One linear answer for every combination of an item's groups, by its number among all linear answers."""

    start: int
    """Of the first combination."""
    strides: tuple[int, ...]
    """How far apart neighbouring groups of every key are."""

    def numbers(self, shape: tuple[int, ...]) -> Indices:
        """The answers' numbers, for the combinations in their order, the last key fastest."""
        found = np.full(1, self.start, dtype=np.int64)
        for n, stride in zip(shape, self.strides, strict=True):
            found = np.add.outer(found, np.arange(n, dtype=np.int64) * stride).reshape(-1)
        return found


@dataclass(frozen=True)
class Run:
    """Answers that are shown one after the other: whole tables, or what an item computes for each of its groups."""

    tables: range = range(0)
    """Those that are shown whole."""
    name: str = ""
    """Of the item that is computed."""
    keys: tuple[int, ...] = ()
    """What it is grouped by: numbers of the legend's keys, the last varying fastest."""
    of: Combination[Part] | Crossing[Part] | Moments[Part] | None = None
    """How it is computed; None where tables are shown whole."""


@dataclass(frozen=True, eq=False)
class AskedTables(Sequence[Asked[int]]):
    """All answers in the order in which they are shown; what they are computed from are numbers of linear answers.

    Linear answers are numbered table after table, each in its own order, the last axis fastest.
    """

    workload: KroneckerWorkload
    legend: Legend
    runs: tuple[Run, ...]

    @cached_property
    def starts(self) -> Indices:
        """The number of every table's first linear answer, and behind them the number of all."""
        return np.concatenate([[0], np.cumsum(self.workload.table_sizes())]).astype(np.int64)

    @cached_property
    def ends(self) -> Indices:
        """For every run the number of answers up to its end."""
        return np.cumsum([self._length(run) for run in self.runs], dtype=np.int64)

    @property
    def whole(self) -> list[range]:
        """The tables that are shown whole, in the order in which they are shown."""
        return [run.tables for run in self.runs if run.of is None]

    @property
    def derived(self) -> list[Run]:
        """The items that are computed from tables."""
        return [run for run in self.runs if run.of is not None]

    @property
    def plain(self) -> bool:
        """Whether every table is shown whole, in order, and nothing else."""
        return self.whole == [range(len(self.workload.tables))] and not self.derived

    def shape(self, run: Run) -> tuple[int, ...]:
        """How many groups every key of an item has."""
        return tuple(len(self.legend.keys[k].titles) for k in run.keys)

    def part(self, table: int) -> Part:
        """A table as a part: its answers in their own order."""
        keys = self.legend.keys_of(self.workload, table)
        return Part(int(self.starts[table]), strides_of([len(key.titles) for key in keys]))

    def numbers(self, run: Run) -> Combination[Indices] | Crossing[Indices] | Moments[Indices]:
        """How an item is computed, with the numbers of the linear answers for all of its groups at once."""
        assert run.of is not None
        shape = self.shape(run)
        return run.of.mapped(lambda part: part.numbers(shape))

    def __len__(self) -> int:
        return int(self.ends[-1]) if self.runs else 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        i = range(len(self))[index]
        number = int(np.searchsorted(self.ends, i, side="right"))
        run = self.runs[number]
        place = i - (int(self.ends[number - 1]) if number else 0)
        own: Any
        if run.of is None:
            own = int(self.starts[run.tables.start]) + place
            table = int(np.searchsorted(self.starts, own, side="right")) - 1
            name = self.workload.tables[table].name
            groups = self.legend.row(self.workload, table, own - int(self.starts[table]))
        else:
            at = np.unravel_index(place, shape) if (shape := self.shape(run)) else ()
            own = run.of.mapped(lambda one: one.start + sum(int(i) * s for i, s in zip(at, one.strides, strict=True)))
            name, groups = run.name, self.legend.called(run.keys, place)
        return Asked(f"{name}[{groups}]" if groups else name, own)

    def _length(self, run: Run) -> int:
        if run.of is not None:
            return prod(self.shape(run))
        return int(self.starts[run.tables.stop] - self.starts[run.tables.start]) if run.tables else 0


def write_runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The runs of tables as files have them."""
    return [
        {"tables": [run.tables.start, run.tables.stop]}
        if run.of is None
        else {
            "name": run.name,
            "keys": list(run.keys),
            "of": write_expression(run.of.mapped(lambda part: [part.start, *part.strides])),
        }
        for run in runs
    ]


def read_runs(content: Any, workload: KroneckerWorkload, legend: Legend) -> AskedTables:
    """From a file, where anything can stand; refused unless it is about the batch's own answers."""
    found = AskedTables(workload, legend, tuple(_read(one, workload, legend) for one in content))
    shown = sorted(found.whole, key=lambda own: own.start)
    if any(one.stop > other.start for one, other in pairwise(shown)):
        raise WorkloadError("what is asked shows a table twice")
    return found


def _read(content: Mapping[str, Any], workload: KroneckerWorkload, legend: Legend) -> Run:
    if "of" not in content:
        first, last = (_whole(one, len(workload.tables) + 1) for one in content["tables"])
        if last <= first:
            raise WorkloadError("what is asked shows no table where it should")
        return Run(range(first, last))
    keys = tuple(_whole(k, len(legend.keys)) for k in content["keys"])
    shape = [len(legend.keys[k].titles) for k in keys]

    def part(value: Any) -> Part:
        start, *strides = (_whole(one, workload.queries) for one in value)
        last = start + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        _whole(last, workload.queries)
        return Part(start, tuple(strides))

    if not isinstance(content["name"], str):
        raise WorkloadError("what is asked has a name that is not a text")
    return Run(name=content["name"], keys=keys, of=read_expression(content["of"], part))


def _whole(value: Any, below: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise WorkloadError("what is asked names answers that there are not")
    return value


MOST_STATES = 8192
"""Classes of records that one query may tell apart."""
MOST_TOGETHER = 10_000
"""Combinations of the values of columns that are taken together."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A query on the columns of atoms that it looks at: a product of rows, and of an array over tied columns."""

    rows: dict[int, Dense]
    looked: tuple[int, ...]
    tied: tuple[int, ...]
    """None, or more than one."""
    whole: Dense
    """Over the tied columns; a number if there are none."""

    def on(self, columns: Sequence[int], sizes: Sequence[int]) -> Dense:
        """The factor on these columns, of these sizes, as an array; all tied ones must be among them, or none."""
        found = np.ones(list(sizes)) if self.rows or self.tied else np.full(list(sizes), float(self.whole))
        if self.tied and set(self.tied) <= set(columns):
            shape = [n if i in self.tied else 1 for i, n in zip(columns, sizes, strict=True)]
            found = found * self.whole.reshape(shape)
        for place, i in enumerate(columns):
            if i in self.rows:
                found = found * self.rows[i].reshape([-1 if j == place else 1 for j in range(len(columns))])
        return np.asarray(found)


def rows_of(query: Query, atoms: Sequence[Atoms], alive: Sequence[Indices]) -> Rows:
    """What the query adds, by the atoms that records can have."""
    try:
        classes = classes_of(query, atoms, MOST_STATES)
    except TooManyClassesError:
        raise QueryError(
            f"query {query.name!r} tells more than {MOST_STATES} classes of records apart; split it into several"
        ) from None
    looked = tuple(i for i, table in enumerate(classes.transitions) if table is not None)
    kinds, groups = [], []
    for i in looked:
        table = classes.transitions[i]
        assert table is not None
        _, first, inverse = np.unique(table[:, alive[i]], axis=1, return_index=True, return_inverse=True)
        kinds.append(alive[i][first])
        groups.append(inverse.reshape(-1))
    rows, places, whole = _product(_values(classes, looked, kinds))
    spread = {looked[place]: row[groups[place]] for place, row in rows.items()}
    tied = tuple(looked[place] for place in places)
    return Rows(spread, looked, tied, whole[np.ix_(*(groups[place] for place in places))] if tied else whole)


def _values(classes: Classes, looked: tuple[int, ...], kinds: list[Indices]) -> Dense:
    """What the query adds for every combination of the atoms that it tells apart."""
    shape = [len(own) for own in kinds]
    if prod(shape) > 100 * MOST_TOGETHER:
        raise QueryError(f"a query looks at {len(looked)} columns in {prod(shape):,} ways; split it into several")
    states = np.zeros((1,) * len(looked), dtype=np.int64)
    for place, i in enumerate(looked):
        table = classes.transitions[i]
        assert table is not None
        along = [1] * len(looked)
        along[place] = shape[place]
        states = table[states, kinds[place].reshape(along)].astype(np.int64)
    amounts = classes.amounts[[0]].toarray()[0]
    return np.asarray(amounts[np.broadcast_to(states, shape)])


def _product(whole: Dense) -> tuple[dict[int, Dense], tuple[int, ...], Dense]:
    """Rows along axes and an array over the other ones whose product the array is; as many rows as there can be.

    Where there is nothing but rows, the first has the size, the others 1 at the pivot, and the array is a number.
    """
    pivot = [int(place) for place in np.unravel_index(int(np.argmax(np.abs(whole))), whole.shape)]
    top = float(whole[tuple(pivot)])
    if top == 0:
        return {axis: np.zeros(n) for axis, n in enumerate(whole.shape)}, (), np.zeros(())
    left, rest = list(range(whole.ndim)), whole
    rows: dict[int, Dense] = {}
    for axis in range(whole.ndim)[::-1]:
        place = left.index(axis)
        at = tuple(slice(None) if other == axis else pivot[other] for other in left)
        row, others = np.asarray(rest[at]) / top, np.take(rest, pivot[axis], axis=place)
        along = [-1 if other == axis else 1 for other in left]
        if np.allclose(np.expand_dims(others, place) * row.reshape(along), rest, rtol=1e-13, atol=0):
            rows[axis], rest = row, others
            left.remove(axis)
    if not left and rows:  # of which the first has the size
        rows[min(rows)] = rows[min(rows)] * top
    return dict(sorted(rows.items())), tuple(left), np.asarray(rest) if left else np.array(top)
