"""One column of a batch: which values no table tells apart, which could change places, and how a group looks at it.

Values whose column is the same in every factor count as one. Of the others two are interchangeable where swapping them
leaves FᵀF as it is for every factor F; that is an equivalence, and its classes are the column's orbits. (Where a
factor looks at several columns together, every value of these that is told apart is an orbit by itself.) An optimal
strategy can be had that treats all values of an orbit alike (average any optimal one over all swaps: the problem is
convex), so that the functions on the column fall into kinds that never mix: those that are constant on orbits, and
for every orbit O those on O that add up to 0, on which FᵀF is a number times the identity. A group of tables looks at a
column as it is, or at what is left of it after averaging: a `ColumnView`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.workloads.kronecker import Factor, KroneckerWorkload

MOST_DISTINCT = 10_000
"""Values of a column with other factors than each value by itself: a square matrix of this size is made."""
NOTHING = 1e-13
"""What rounding may leave of a query that its average says all of, relative to its size."""


@dataclass(frozen=True, eq=False)
class Column:
    """What all strategies need to know of a column. Factor 0 is "does not matter": one row of ones."""

    size: int
    value: Indices
    """For every value the number of what it counts as, one number for values that are never told apart."""
    orbit: Indices
    """For every such number its orbit."""
    rows: tuple[Dense, ...]
    """For every factor, its averages over the orbits: query × orbit."""
    spread: Dense
    """Factor × orbit: FᵀF on the functions on an orbit that add up to 0."""

    @cached_property
    def counts(self) -> Indices:
        """How many distinct values every orbit has."""
        return np.bincount(self.orbit, minlength=self.orbits).astype(np.int64)

    @property
    def orbits(self) -> int:
        """How many orbits there are."""
        return int(self.rows[0].shape[1])

    @cached_property
    def grams(self) -> tuple[Dense, ...]:
        """For every factor the Gram matrix of its averages over the orbits."""
        return tuple(F.T @ F for F in self.rows)

    @cached_property
    def first(self) -> Indices:
        """The first of the values that each distinct one stands for."""
        return np.unique(self.value, return_index=True)[1].astype(np.int64)

    @cached_property
    def average(self) -> Dense:
        """Distinct value × orbit: what a query on values is on average on each orbit."""
        return np.asarray((self.orbit[:, None] == np.arange(self.orbits)) / self.counts)

    def tell_apart(self, factor: Factor) -> Dense:
        """A factor on the values that are told apart."""
        return np.asarray(factor.matrix[:, self.first])

    @cached_property
    def times(self) -> Indices:
        """How many values each distinct one stands for."""
        return np.bincount(self.value, minlength=len(self.orbit)).astype(np.int64)


def columns_of(workload: KroneckerWorkload) -> tuple[Column, ...]:
    """The columns of a batch, each with the factors that tables have on it alone."""
    sizes, factors = workload.sizes, workload.factors
    tied: dict[int, list[Dense]] = {}
    for looked, own in zip(workload.joint, factors[len(sizes) :], strict=True):
        shape = [sizes[c] for c in looked]
        for place, c in enumerate(looked):
            # A query for every combination of the other columns' values.
            slices = (
                np.moveaxis(one.matrix.reshape(-1, *shape), place + 1, -1).reshape(-1, shape[place]) for one in own
            )
            tied.setdefault(c, []).extend(slices)
    return tuple(column_of(n, factors[i], tied.get(i, ())) for i, n in enumerate(sizes))


def factors_apart(workload: KroneckerWorkload, table: int, columns: Sequence[Column]) -> dict[int, Dense]:
    """A table's factors, by column in ascending order: query × value that is told apart."""
    return {i: columns[i].tell_apart(factor) for i, factor in workload.factors_of(table).items()}


@dataclass(frozen=True, eq=False)
class Axis:
    """How a table looks at one column: its queries on distinct values, None where they are each value by itself."""

    looked: tuple[int, ...]
    """The column's number."""
    column: Column
    rows: int
    matrix: Dense | None
    """Query × distinct value."""

    def on_orbits(self, kept: Sequence[int], averages: Sequence[Dense]) -> Dense:
        """Query × combination of the kept columns' orbits: averages over the values of each, and over the others."""
        values = self.column.average if kept else averages[self.looked[0]][:, None]
        return values if self.matrix is None else self.matrix @ values

    def members(self, orbit: int) -> Dense | None:
        """Query × value of the orbit; None where that is each value by itself."""
        there = self.column.orbit == orbit
        if self.matrix is None:
            return None if self.column.orbits == 1 else np.eye(len(there))[:, there]
        return self.matrix[:, there]


@dataclass(frozen=True, eq=False)
class JointAxis:
    """How a table looks at several columns together: its queries on all combinations of their distinct values."""

    looked: tuple[int, ...]
    rows: int
    array: Dense
    """Query × distinct value of each column: an axis a column."""

    def on_orbits(self, kept: Sequence[int], averages: Sequence[Dense]) -> Dense:
        """As `Axis.on_orbits`: every distinct value is an orbit by itself."""
        return averaged(self.array, self.looked, {c: averages[c] for c in self.looked if c not in kept})

    def members(self, orbit: int) -> Dense | None:
        """There is no orbit of several values."""
        raise IndexError(orbit)


def averaged(array: Dense, looked: Sequence[int], averages: Mapping[int, Dense]) -> Dense:
    """A joint factor averaged over some of its columns: query × combination of the others' values."""
    found = array
    for place in reversed(range(len(looked))):
        if looked[place] in averages:
            found = np.tensordot(found, averages[looked[place]], axes=(place + 1, 0))
    return np.asarray(found).reshape(len(array), -1)


def joint_array(factor: Factor, looked: Sequence[int], columns: Sequence[Column]) -> Dense:
    """A joint factor on the distinct values of its columns: query × distinct value of each."""
    wide = factor.matrix.reshape(-1, *(columns[c].size for c in looked))
    return np.ascontiguousarray(wide[np.ix_(np.arange(factor.rows), *(columns[c].first for c in looked))])


def axes_of(workload: KroneckerWorkload, table: int, columns: Sequence[Column]) -> dict[int, Axis | JointAxis]:
    """How a table looks at its axes, in their order."""
    found: dict[int, Axis | JointAxis] = {}
    for i, factor in workload.factors_of(table).items():
        looked = workload.looked_at(i)
        if len(looked) > 1:
            found[i] = JointAxis(looked, factor.rows, joint_array(factor, looked, columns))
        else:
            apart = None if factor.given is None else columns[i].tell_apart(factor)
            found[i] = Axis(looked, columns[i], factor.rows, apart)
    return found


def along(axes: Iterable[int], i: int, values: Dense) -> Dense:
    """One value per query on column i, along its axis; one for all of them stays one."""
    return values.reshape([len(values) if j == i else 1 for j in axes])


def column_of(size: int, factors: tuple[Factor, ...], tied: Sequence[Dense] = ()) -> Column:
    """A column with the factors that tables have on it, and the queries on it of those that look at others too."""
    if not tied and all(factor.given is None for factor in factors):
        rows = (np.ones((1, 1)), *(np.full((1, 1), 1 / np.sqrt(size)) for _ in factors))
        spread = np.array([[0.0], *([1.0] for _ in factors)])
        value = np.arange(size) if factors else np.zeros(size, np.int64)
        return Column(size, value, np.zeros(size if factors else 1, np.int64), rows, spread)
    value, matrices = _merged(size, factors, tied)
    grams = [F.T @ F for F in matrices]
    orbit = np.arange(int(value.max()) + 1) if tied else _orbits(grams)
    k = int(orbit.max()) + 1
    counts = np.bincount(orbit, minlength=k)
    average = (orbit[:, None] == np.arange(k)) / counts
    spread = np.zeros((len(factors) + 1, k))
    for o in np.flatnonzero(counts > 1):
        a, b = np.flatnonzero(orbit == o)[:2]
        spread[1:, o] = [G[a, a] - G[a, b] for G in grams]
    small = (compressed(F @ average) for F in matrices)
    return Column(size, value, orbit, (np.ones((1, k)), *small), np.maximum(spread, 0.0))


def without_rounding(left: Dense, sizes: Dense | float) -> Dense:
    """What is left of queries of these sizes, 0 where it is rounding only: that must not look like a query."""
    return np.where((np.abs(left).max(axis=1) <= NOTHING * sizes)[:, None], 0.0, left)


def _merged(size: int, factors: tuple[Factor, ...], tied: Sequence[Dense]) -> tuple[Indices, list[Dense]]:
    """Which values are never told apart, and the factors on what is left."""
    if any(factor.given is None for factor in factors):
        value, first = np.arange(size), np.arange(size)
    else:
        stacked = np.concatenate([*(factor.matrix for factor in factors), *tied])
        _, first, value = np.unique(stacked.T, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)  # in the order of the values: neighbours stay neighbours
        first, value = first[order], np.argsort(order)[value.reshape(-1)]
    if len(first) > MOST_DISTINCT:
        raise WorkloadError(
            f"a column has {len(first):,} values that queries tell apart, more than {MOST_DISTINCT:,}; group its values"
        )
    return value.astype(np.int64), [factor.matrix[:, first] for factor in factors]


def _orbits(grams: list[Dense]) -> Indices:
    """The orbit of every value, numbered as they come."""
    n = len(grams[0])
    marks = np.stack([mark for G in grams for mark in (G.diagonal(), np.sort(G, axis=1)[:, n // 2], G.max(axis=1))])
    alike: dict[bytes, list[int]] = {}  # the first value of every orbit with these marks
    orbit = np.zeros(n, dtype=np.int64)
    count = 0
    for a in range(n):
        known = alike.setdefault(marks[:, a].tobytes(), [])
        home = next((b for b in known if all(_swappable(G, a, b) for G in grams)), None)
        if home is None:
            known.append(a)
            orbit[a] = count
            count += 1
        else:
            orbit[a] = orbit[home]
    return orbit


def _swappable(G: Dense, a: int, b: int) -> bool:
    same = G[a] == G[b]
    same[[a, b]] = True
    return bool(G[a, a] == G[b, b] and np.all(same))


def compressed(F: Dense) -> Dense:
    """As few rows with the same Gram matrix."""
    return F if len(F) <= F.shape[1] else np.asarray(np.linalg.qr(F, mode="r"))


@dataclass(frozen=True, eq=False)
class ColumnView:
    """How a group looks at a column: `rows` has the factors over orbits (centred where it is split), or their average.

    `mean` is the squared norm of each factor's average where the group has only that besides the spreads.
    """

    rows: tuple[Dense, ...] | None
    mean: Dense
    spread: Dense
    counts: Indices
    centre: Dense | None = None
    """Orbit × orbit: what queries over orbits are multiplied by; I if there is none."""

    @property
    def classes(self) -> int:
        """Of records, as far as this column goes."""
        return len(self.counts)

    @cached_property
    def shape_token(self) -> bytes:
        """The same for columns whose classes are alike."""
        return _token(self.counts, self.centre, None if self.rows is None else self.rows[0])

    @cached_property
    def _tokens(self) -> dict[int, bytes]:
        return {}

    def token(self, kind: int) -> bytes:
        """The same for factors that are alike."""
        if kind not in self._tokens:
            own = self.rows[kind] if self.rows is not None else self.mean[kind : kind + 1]
            self._tokens[kind] = _token(own, self.spread[kind])
        return self._tokens[kind]

    def gram(self, kind: int) -> Dense:
        """What decides the error of a factor, as one row of numbers."""
        own = self.rows[kind].T @ self.rows[kind] if self.rows is not None else self.mean[kind : kind + 1]
        return np.concatenate([own.reshape(-1), self.spread[kind]])


def _token(*arrays: NDArray[Any] | None) -> bytes:
    """A few bytes that tell arrays apart."""
    told = blake2b(digest_size=16)
    for one in arrays:
        told.update(b"-" if one is None else f"{one.shape}".encode() + one.tobytes())
    return told.digest()


def view(column: Column, measure: Dense | None) -> ColumnView:
    """A column as it is where `measure` is None, or what is left of it after averaging."""
    averaged = np.ones(1) if measure is None else measure
    if column.orbits == 1:
        mean = np.array([float(np.square(F).sum()) for F in column.rows])
        return ColumnView(None, mean, column.spread, column.counts)
    if measure is None:
        return ColumnView(column.rows, np.zeros(len(column.rows)), column.spread, column.counts)
    centre = np.eye(column.orbits) - averaged[:, None]
    left = tuple(without_rounding(F @ centre, np.abs(F).max(axis=1)) for F in column.rows)
    return ColumnView(left, np.zeros(0), column.spread, column.counts, centre)
