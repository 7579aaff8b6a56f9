"""Tables on axes: for every column the labels of its groups, and the answers as one array over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.mechanism.reader import CellReader
from batchdp.release.consistent.answers import Consistent
from batchdp.release.records import Release
from batchdp.release.tables import Table, headings
from batchdp.workloads.structure import Factor

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


def tables_of_grids(release: Release) -> Sequence[Table]:
    """The tables that are shown as such: of linear answers, which have something in common."""
    found = release.layout.tables(together=True)
    if release.layout.is_lazy:
        return found
    return [one for one in found if not one.single and not release.derived_in(one).all()]


def single_answers(release: Release) -> list[int]:
    """The answers that belong to no table and are not computed from others."""
    if release.layout.is_lazy:
        return []
    found = [q for one in release.layout.tables(together=True) if one.single for q in one.answers]
    return [q for q in found if not release.layout.is_derived(q)]


def count_grids(release: Release) -> tuple[int, int]:
    """How many tables there are, and answers in them."""
    if release.layout.is_lazy:
        return len(release.tables), release.reader.answers
    found = tables_of_grids(release)
    return len(found), sum(one.queries for one in found)


def counts_among(release: Release) -> NDArray[np.bool_]:
    """Which linear answers that are shown are counts, to which a record adds 1 or nothing; by table if lazy."""
    reader: Any = release.reader
    if isinstance(reader, CellReader):
        others = reader.workload.copy()
        others.data = 1.0 * ~np.isin(others.data, (0.0, 1.0))
        return np.asarray(others.sum(axis=1) == 0)[release.linear_numbers]
    found = reader.workload.products_of(_of_counts) == 1
    if release.layout.is_lazy:
        return np.asarray(found)
    return np.asarray(found[np.searchsorted(reader.starts, release.linear_numbers, side="right") - 1])


def _of_counts(factor: Factor) -> float:
    return 1.0 if factor.given is None or np.isin(factor.given, (0.0, 1.0)).all() else 0.0


def grids(release: Release, agreeing: Consistent | None = None) -> Iterator[Grid]:
    """Every table of a release, one at a time, with consistent answers beside if there are."""
    for one in tables_of_grids(release):
        figures, columns = release.figures(one), tuple(headings(one.columns))
        found = [figures.values, figures.standard_errors, figures.half_widths]
        if agreeing is not None:
            found.append(agreeing.of_table(one))
        axes = one.groups.axes()
        if axes is None:
            yield _placed(one.title, columns, one.groups.texts(), *found)
        else:
            yield Grid(one.title, columns, tuple(axes), *found)


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
