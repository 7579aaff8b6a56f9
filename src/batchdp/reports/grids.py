"""Tables on axes: for every column the labels of its groups, and the answers as one array over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp.excerpt import full_title
from batchdp.queries.statements import QUERY, tables_of
from batchdp.release.components.tables import TableRelease, columns_of
from batchdp.release.consistent.tables import ConsistentTables
from batchdp.release.looking import title_of
from batchdp.release.records import Release

Dense = NDArray[np.float64]
Labels = tuple[str, ...]

ROOM = 4
"""A table with holes, such as one with totals, is put on axes with at most so many places an answer."""


@dataclass(frozen=True)
class Grid:
    """One table; its answers in the order of its axes, the last fastest; not a number where nothing was asked."""

    title: str
    columns: tuple[str, ...]
    labels: tuple[Labels, ...]
    values: Dense
    errors: Dense
    half_widths: Dense
    consistent: Dense | None = None
    """Beside the answers, where somebody made them."""

    @property
    def answers(self) -> int:
        """How many there are."""
        return int(np.count_nonzero(~np.isnan(self.values)))


def single_answers(release: Release) -> list[int]:
    """The queries that belong to no table."""
    return [q for one in tables_of(release.names) if one.columns == (QUERY,) for q in one.answers]


def count_grids(release: Release | TableRelease) -> tuple[int, int]:
    """How many tables there are, and answers in them."""
    if isinstance(release, TableRelease):
        return len(release.tables), release.workload.queries
    found = [one for one in tables_of(release.linear.names) if one.columns != (QUERY,)]
    return len(found), sum(len(one.answers) for one in found)


def grids(release: Release | TableRelease, agreeing: ConsistentTables | None = None) -> Iterator[Grid]:
    """Every table of a release, one at a time; those over many columns with consistent answers beside."""
    if isinstance(release, TableRelease):
        for t in range(len(release.tables)):
            yield _grid_of_table(release, t, None if agreeing is None else agreeing.values(t).reshape(-1))
        return
    release = release.linear  # derived answers have a section of their own
    errors, half = release.law.standard_errors, release.law.half_widths(release.confidence)
    for one in tables_of(release.names):
        if one.columns != (QUERY,):
            kept = list(one.answers)
            groups = [[own[axis] for own in one.groups] for axis in range(len(one.columns))]
            figures = (release.values[kept], errors[kept], half[kept])
            yield _placed(full_title(one.name, one.columns), one.columns, groups, *figures)


def _grid_of_table(release: TableRelease, t: int, consistent: Dense | None) -> Grid:
    shape, found = release.tables[t].shape, columns_of(release, t)
    *names, _, _, _, _ = found
    groups = [found[name] for name in names]
    value = found["value"]
    figures = (value, found["standard_error"], found["high"] - value, *(() if consistent is None else (consistent,)))
    title = title_of(release, t)
    if len(groups) != len(shape) or prod(shape) != len(value):
        return _placed(title, tuple(names), [list(map(str, group)) for group in groups], *figures)
    labels = []
    for axis, group in enumerate(groups):
        along = tuple(slice(None) if other == axis else 0 for other in range(len(shape)))
        labels.append(tuple(map(str, group.reshape(shape)[along].tolist())))
    return Grid(title, tuple(names), tuple(labels), *figures)


def _placed(title: str, columns: tuple[str, ...], groups: Sequence[Sequence[str]], *figures: Dense) -> Grid:
    """Answers that come as a list with a group in every column; one axis of whole names where they fit on no others."""
    values = figures[0]
    places = [{label: k for k, label in enumerate(dict.fromkeys(group))} for group in groups]
    shape = tuple(map(len, places))
    where = np.zeros(len(values), dtype=np.int64)
    for place, group, size in zip(places, groups, shape, strict=True):
        where = where * size + np.array([place[label] for label in group], dtype=np.int64)
    if prod(shape) > ROOM * len(values) or len(np.unique(where)) != len(values):
        listed = tuple(", ".join(own) for own in zip(*groups, strict=True))
        return Grid(title, (", ".join(columns),), (listed,), *figures)
    spread = []
    for own in figures:
        whole = np.full(prod(shape), np.nan)
        whole[where] = own
        spread.append(whole)
    return Grid(title, columns, tuple(map(tuple, places)), *spread)
