"""What is shown of a batch of tables, answer by answer: tables as they are, and what is computed from tables.

There may be millions of answers, so they are held as runs: a range of tables that are shown whole, or one expression
for all groups of an item. An answer is made when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.asking.legend import Legend
from batchdp.derived.expressions import Asked, Combination, Crossing, read_expression, write_expression
from batchdp.errors import WorkloadError
from batchdp.workloads.structure import KroneckerWorkload

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """One linear answer for every combination of an item's groups, by its number among all linear answers."""

    start: int
    """Of the first combination."""
    strides: tuple[int, ...]
    """How far apart neighbouring groups of every key are."""

    def numbers(self, shape: tuple[int, ...]) -> Indices:
        """The answers' numbers, for the combinations in their order, the last key fastest."""
        steps = [np.arange(n, dtype=np.int64) * stride for n, stride in zip(shape, self.strides, strict=True)]
        found = np.full((1,) * len(shape), self.start, dtype=np.int64)
        for axis, step in enumerate(steps):
            found = found + step.reshape([-1 if other == axis else 1 for other in range(len(shape))])
        return found.reshape(-1)


@dataclass(frozen=True)
class Run:
    """Answers that are shown one after the other: whole tables, or what an item computes for each of its groups."""

    tables: range = range(0)
    """Those that are shown whole."""
    name: str = ""
    """Of the item that is computed."""
    keys: tuple[int, ...] = ()
    """What it is grouped by: numbers of the legend's keys, the last varying fastest."""
    of: Combination[Part] | Crossing[Part] | None = None
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
        shape = self.legend.shape(self.workload, table)
        return Part(int(self.starts[table]), tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))

    def numbers(self, run: Run) -> Combination[Indices] | Crossing[Indices]:
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
        if run.of is not None:
            return self._computed(run, place)
        flat = int(self.starts[run.tables.start]) + place
        table = int(np.searchsorted(self.starts, flat, side="right")) - 1
        return self._linear(table, flat - int(self.starts[table]))

    def __iter__(self) -> Iterator[Asked[int]]:
        for run in self.runs:
            if run.of is not None:
                yield from (self._computed(run, place) for place in range(self._length(run)))
            for table in run.tables:
                sizes = range(int(self.starts[table + 1] - self.starts[table]))
                yield from (self._linear(table, place) for place in sizes)

    def _length(self, run: Run) -> int:
        if run.of is not None:
            return prod(self.shape(run))
        return int(self.starts[run.tables.stop] - self.starts[run.tables.start]) if run.tables else 0

    def _linear(self, table: int, place: int) -> Asked[int]:
        name, groups = self.workload.tables[table].name, self.legend.row(self.workload, table, place)
        return Asked(f"{name}[{groups}]" if groups else name, int(self.starts[table]) + place)

    def _computed(self, run: Run, place: int) -> Asked[int]:
        assert run.of is not None
        groups = self.legend.called(run.keys, place)
        at = np.unravel_index(place, shape) if (shape := self.shape(run)) else ()
        own = run.of.mapped(lambda part: part.start + sum(int(i) * s for i, s in zip(at, part.strides, strict=True)))
        return Asked(f"{run.name}[{groups}]" if groups else run.name, own)


def write_runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For files."""
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
    shown = sorted((own for own in found.whole), key=lambda own: own.start)
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
        raise WorkloadError("what is asked has a name that is no text")
    return Run(name=content["name"], keys=keys, of=read_expression(content["of"], part))


def _whole(value: Any, below: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise WorkloadError("what is asked names answers that there are not")
    return value
