"""Measurements and answers one axis at a time: nothing here has the size of more than one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.components.columns import Column
from batchdp.components.pieces import kron, orbit_average
from batchdp.mechanism.components.lattice import IntegerPart
from batchdp.mechanism.lattice import LARGEST

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """Records by their codes, each a number of times; exact counts, hence secret."""

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


@dataclass(frozen=True, eq=False)
class Tallies:
    """Records that were counted table by table, each as its own combinations; exact counts, hence secret."""

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


@dataclass(frozen=True, eq=False)
class Places:
    """For every value of a column its orbit, and its place among the orbit's distinct values."""

    orbit: Integers
    member: Integers

    @classmethod
    def of(cls, column: Column) -> Places:
        """Of a column."""
        member = np.zeros(len(column.orbit), dtype=np.int64)
        for o in range(column.orbits):
            there = column.orbit == o
            member[there] = np.arange(int(there.sum()))
        return cls(column.orbit[column.value], member[column.value])


def measured(
    part: IntegerPart, columns: tuple[Column, ...], places: tuple[Places, ...], records: Records, largest_total: int
) -> Integers:
    """Q x of a part, exactly, clamped to ±2^61: clamping moves no two neighbours further apart."""
    tally = _tally(part, columns, places, records, exact=records.total > largest_total)
    axis = 0
    for piece in part.pieces:
        moved = np.moveaxis(tally, axis, -1) @ piece.integers.T.astype(tally.dtype)
        tally = np.moveaxis(moved, -1, axis)
        axis += 1
        for _ in piece.spread:
            tally = tally.shape[axis] * tally - tally.sum(axis=axis, keepdims=True)
            axis += 1
    return clamped(tally.reshape(-1))


def clamped(flat: NDArray[Any]) -> Integers:
    """Measurements in 64 bits: whole numbers of any size are clamped to ±2^61."""
    if flat.dtype == object:
        flat = np.array([max(-LARGEST, min(LARGEST, int(z))) for z in flat], dtype=np.int64)
    return np.asarray(flat, dtype=np.int64)


def _tally(
    part: IntegerPart, columns: tuple[Column, ...], places: tuple[Places, ...], records: Records, *, exact: bool
) -> NDArray[Any]:
    """How many records have every combination that the part tells apart: for each piece its orbits, then spreads."""
    shape: list[int] = []
    index = np.zeros(len(records.codes), dtype=np.int64)
    there = np.ones(len(records.codes), dtype=bool)
    for piece in part.pieces:
        shape.append(prod(columns[i].orbits for i in piece.matrix))
        for i in piece.matrix:
            index = index * columns[i].orbits + places[i].orbit[records.codes[:, i]]
        for i, o in piece.spread:
            n = int(columns[i].counts[o])
            shape.append(n)
            codes = records.codes[:, i]
            there &= places[i].orbit[codes] == o
            index = index * n + np.where(there, places[i].member[codes], 0)
    times = None if records.times is None else records.times[there]
    return tallied(index[there], prod(shape), times, exact=exact).reshape(shape or [1])


def tallied(index: Integers, size: int, times: Integers | None, *, exact: bool) -> NDArray[Any]:
    """How many records have every place; in Python's own whole numbers where 64 bits may not do."""
    if times is None:
        found: NDArray[Any] = np.bincount(index, minlength=size).astype(np.int64)
        return found.astype(object) if exact else found
    found = np.zeros(size, dtype=object if exact else np.int64)
    np.add.at(found, index, times.astype(found.dtype))
    return found


@dataclass(frozen=True, eq=False)
class Axis:
    """How a table looks at one column: its queries on distinct values, None where they are each value by itself."""

    rows: int
    matrix: Dense | None
    """Query × distinct value."""

    def on_orbits(self, column: Column) -> Dense:
        """Query × orbit: averages."""
        return orbit_average(column) if self.matrix is None else self.matrix @ orbit_average(column)

    def averaged(self, average: Dense) -> Dense:
        """A number a query."""
        return average if self.matrix is None else self.matrix @ average

    def members(self, column: Column, orbit: int) -> Dense | None:
        """Query × value of the orbit; None where that is each value by itself."""
        if self.matrix is None:
            return None if column.orbits == 1 else np.eye(len(column.orbit))[:, column.orbit == orbit]
        return self.matrix[:, column.orbit == orbit]


Axes = Mapping[int, Axis]
"""Of a table's columns, in ascending order."""


def recovered(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes, noisy: Integers
) -> Dense | None:
    """The part's share in a table's answers, to be broadcast to the table's shape; None where it has none."""
    if any(i not in axes for piece in part.pieces for i, _ in piece.spread):
        return None  # what does not look at a column has no spread along it
    y = noisy.astype(np.float64).reshape(part.shape(columns))
    order: list[int] = []  # the column of every axis
    axis = 0
    for piece in part.pieces:
        y = np.moveaxis(np.moveaxis(y, axis, -1) @ piece.recover.T, -1, axis)
        own = [columns[i].orbits for i in piece.matrix]
        y = y.reshape([*y.shape[:axis], *own, *y.shape[axis + 1 :]])
        for i in piece.matrix:
            rows = axes[i].on_orbits(columns[i]) if i in axes else np.ones((1, columns[i].orbits))
            y = np.moveaxis(np.moveaxis(y, axis, -1) @ rows.T, -1, axis)
            order.append(i)
            axis += 1
        for i, o in piece.spread:
            y = y - y.mean(axis=axis, keepdims=True)
            members = axes[i].members(columns[i], o)
            if members is not None:
                y = np.moveaxis(np.moveaxis(y, axis, -1) @ members.T, -1, axis)
            order.append(i)
            axis += 1
    outside = [a for a, i in enumerate(order) if i not in axes]  # of one row each
    y = y.squeeze(axis=tuple(outside))
    order = [i for i in order if i in axes]
    y = y.transpose(np.argsort(order)) if order else y
    y = y.reshape([y.shape[sorted(order).index(i)] if i in order else 1 for i in axes])
    for i in axes:
        if i not in order:
            y = y * along(axes, i, axes[i].averaged(averages[i]))
    return np.asarray(y, dtype=np.float64)


def squared_weights(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes
) -> Dense | None:
    """The sum of squares of what `recovered` multiplies the measurements by, for every answer, to be broadcast."""
    return _by_pieces(part, columns, averages, axes, bias=False)


def missed(part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes) -> Dense | None:
    """A bound on how much of every answer is missing, per record, because integers are truncated."""
    if all(piece.missing is None for piece in part.pieces):
        return None
    return _by_pieces(part, columns, averages, axes, bias=True)


def _by_pieces(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes, *, bias: bool
) -> Dense | None:
    """A product over pieces; for the bias the sum of all terms with at least one piece's missing part."""
    if any(i not in axes for piece in part.pieces for i, _ in piece.spread):
        return None
    looked = set(part.columns)
    outer = np.ones((1,) * len(axes))
    for i in axes:
        if i not in looked:
            mean = axes[i].averaged(averages[i])
            outer = outer * along(axes, i, np.abs(mean) if bias else np.square(mean))
    whole, kept = outer, outer
    for piece in part.pieces:
        own = [axes[i].on_orbits(columns[i]) if i in axes else np.ones((1, columns[i].orbits)) for i in piece.matrix]
        queries = kron(own)
        shape = [len(own[piece.matrix.index(i)]) if i in piece.matrix else 1 for i in axes]
        size = np.ones((1,) * len(axes))
        for i, o in piece.spread:
            size = size * along(axes, i, _spread(axes[i], columns[i], o, bias=bias))
        if not bias:
            whole = whole * np.square(queries @ piece.recover).sum(axis=1).reshape(shape) * size
            continue
        times = prod(int(columns[i].counts[o]) for i, o in piece.spread)
        there = np.abs((queries @ piece.recover) @ (piece.integers * float(times))).max(axis=1)
        absent = np.zeros(len(queries)) if piece.missing is None else np.abs(queries @ piece.missing).max(axis=1)
        kept = kept * there.reshape(shape) * size
        whole = whole * (there + absent).reshape(shape) * size
    return np.asarray(whole - kept if bias else whole)


def _spread(axis: Axis, column: Column, orbit: int, *, bias: bool) -> Dense:
    n = int(column.counts[orbit])
    members = axis.members(column, orbit)
    if members is None:
        return np.array([1 - 1 / n])
    centred = members - members.mean(axis=1, keepdims=True)
    return np.asarray(np.abs(centred).max(axis=1, initial=0.0) if bias else np.square(centred).sum(axis=1))


def along(axes: Iterable[int], i: int, values: Dense) -> Dense:
    """One value a query on column i, along its axis; one for all of them stays one."""
    return values.reshape([len(values) if j == i else 1 for j in axes])
