"""What measurements of many columns have in common: integers along axes, lattices of such parts, readers of tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, Plain, assemble, unravel
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measurement import Integers
from batchdp.mechanism.reader import Reader
from batchdp.mechanism.sensitivity import Change
from batchdp.privacy import Noise
from batchdp.workloads.kronecker import KroneckerWorkload

SLACK = 2.0**-40
"""Of every share: room for what OpenDP's maps round up."""
ROUNDING = 2 * np.finfo(float).eps
MOST_TABLE = 200_000_000
"""Answers of one table that are made at a time."""


@dataclass(frozen=True, eq=False)
class IntegerAxis:
    """Integers along columns that are measured together: K, each value by itself, or n I − J."""

    columns: tuple[int, ...]
    places: tuple[Integers, ...]
    """For every column the place of each of its values; below 0 where the axis does not see it."""
    sizes: tuple[int, ...]
    """How many places every column has."""
    integers: Integers | None = None
    """K: measurement × combination of places, the last column fastest; each place by itself if None."""
    is_centred: bool = False
    """Whether n I − J is measured of n places."""

    @property
    def rows(self) -> int:
        """How many measurements it makes."""
        return prod(self.sizes) if self.integers is None else len(self.integers)

    @property
    def largest(self) -> int:
        """Of the magnitudes of all entries."""
        if self.integers is None:
            return max(1, self.rows - 1) if self.is_centred else 1
        return int(np.abs(self.integers).max(initial=0))

    @cached_property
    def norms(self) -> Integers | None:
        """For every combination of values the L1 norm of K; None where it is 1."""
        if self.integers is None:
            return None
        found = np.abs(self.integers).sum(axis=0).reshape(self.sizes)[np.ix_(*self.places)]
        return None if np.all(found == 1) else found

    def measure(self, counts: NDArray[Any], axis: int) -> NDArray[Any]:
        """What is measured of counts along an axis of places."""
        if self.is_centred:
            return np.asarray(self.rows * counts - counts.sum(axis=axis, keepdims=True))
        if self.integers is None:
            return counts
        return np.moveaxis(np.moveaxis(counts, axis, -1) @ self.integers.T.astype(counts.dtype), -1, axis)


@dataclass(frozen=True, eq=False)
class IntegerPart:
    """A measurement: its weight times the product of its axes, which look at different columns."""

    axes: tuple[IntegerAxis, ...]
    weight: int = 1

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it looks at, in ascending order."""
        return tuple(sorted(i for axis in self.axes for i in axis.columns))

    @property
    def size(self) -> int:
        """How many measurements it makes."""
        return prod(axis.rows for axis in self.axes)

    @property
    def largest(self) -> int:
        """The largest magnitude of its integers."""
        return self.weight * prod(axis.largest for axis in self.axes)

    @property
    def change(self) -> Change:
        """What a record changes of it, in the L1 norm."""
        norms = ((axis.columns, axis.norms) for axis in self.axes)
        return Change(self.weight, tuple((columns, found) for columns, found in norms if found is not None))


class TableLattice(ABC):
    """What integer measurements of many columns have in common."""

    noise: ClassVar[Noise]
    workload: KroneckerWorkload
    largest_total: int
    slack = SLACK

    @property
    @abstractmethod
    def sizes(self) -> Integers:
        """How many measurements every noise is drawn for."""

    @abstractmethod
    def parts(self) -> Iterator[tuple[int, int, IntegerPart]]:
        """All that is measured: group, first measurement, part."""

    @property
    def measurements(self) -> int:
        """How many there are in all."""
        return int(self.sizes.sum())

    @property
    def largest_part(self) -> int:
        """Measurements, or answers, that are made at a time, at the most."""
        return int(max(self.largest_measured, float(self.workload.table_sizes().max(initial=0))))

    @property
    @abstractmethod
    def largest_measured(self) -> int:
        """Measurements that are made at a time."""

    def worst_bias(self, reader: LatticeReader) -> tuple[float, str]:
        """The most that an answer is off apart from noise, as a share of its standard error; and which one it is."""
        worst, table = reader.worst_bias()
        return worst, f"an answer of table {self.workload.tables[table].name!r}"


class LatticeReader(Reader):
    """Reads tables from the noisy measurements of a lattice."""

    names = None
    lattice: TableLattice

    def __init__(self, lattice: TableLattice, scales: Dense) -> None:
        self.lattice, self.scales = lattice, scales

    @property
    def workload(self) -> KroneckerWorkload:
        """The batch that is answered."""
        return self.lattice.workload

    @property
    def noise(self) -> Noise:
        """That of the lattice."""
        return self.lattice.noise

    @property
    def measurements(self) -> int:
        """How many noisy numbers there are."""
        return self.lattice.measurements

    @cached_property
    def sizes(self) -> Integers:
        """How many answers every table has."""
        return np.rint(self.workload.table_sizes()).astype(np.int64)

    def shape(self, table: int) -> tuple[int, ...]:
        """Of a table; refused where it does not fit into memory."""
        own = self.workload.tables[table]
        if own.queries > MOST_TABLE:
            raise StrategyError(f"table {own.name!r} has {own.queries:,} answers, more than fit into memory")
        return tuple(own.shape)

    @abstractmethod
    def weights(self, table: int, at: dict[int, Integers], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers make of every measured part: its first measurement, and answer × draw of scale 1.

        Args:
            table: that is asked.
            at: for each of its columns the queries' places along it, one an answer.
            places: how many answers there are.
        """

    def rows_of(self, table: int, places: Integers) -> sparse.csr_array:
        """Rows of B for some of a table's answers, each weight times the scale of its noise."""
        at = dict(zip(self.workload.factors_of(table), unravel(places, self.shape(table)), strict=True))
        every, found = np.arange(len(places)), self.weights(table, at, len(places))
        blocks = ((own, every, start + np.arange(own.shape[1])) for start, own in found)
        return assemble(blocks, (len(places), self.measurements))

    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights."""
        return NoiseLaw(rows, 1.0, self.noise, times)

    @abstractmethod
    def bias_share(self, table: int) -> float:
        """The most that an answer of a table can be off apart from noise, as a share of its standard error."""

    def distinct(self) -> Iterable[int]:
        """Tables, one of each kind."""
        return range(len(self.workload.tables))

    def worst_bias(self) -> tuple[float, int]:
        """The most that an answer can be off apart from noise, as a share of its standard error; and which table's."""
        worst, where = 0.0, 0
        for t in self.distinct():
            if (share := self.bias_share(t)) > worst:
                worst, where = share, t
        return worst, where
