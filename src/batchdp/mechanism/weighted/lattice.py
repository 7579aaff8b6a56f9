"""All measurements of a Laplace strategy over many columns as integers, for one noise.

A measured table is a whole number, its weight, times the product of its columns' integers. The sensitivity is that of
the integers, and what is recovered is fitted to them with their own weights: rounding a weight moves a little noise
from one table to another, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchdp.components.columns import Column
from batchdp.errors import LatticeError
from batchdp.mechanism.components.lattice import TableLattice
from batchdp.mechanism.measurement import LARGEST, check_cap, check_room
from batchdp.mechanism.sensitivity import Change, largest_change
from batchdp.mechanism.weighted.integers import IntegerInside, IntegerResults, quantise_inside, quantise_results
from batchdp.privacy import LAPLACE, Noise
from batchdp.weighted.strategy import MarginalGroup, MarginalStrategy, Results
from batchdp.weighted.weights import Tables
from batchdp.workloads.structure import KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.mechanism.weighted.tables import WeightedReader


Dense = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_BITS = 40
"""Of a measurement: noise has its room above."""
MOST_INSIDE = 20
"""Of a strategy inside a column."""
FEWEST_BITS = 4
MOST_NOISE = 52
"""Bits of the noise that the lattice is made for: finer, and it might not fit."""


@dataclass(frozen=True, eq=False)
class IntegerTables:
    """A group of weighted tables in integers."""

    insides: tuple[IntegerInside, ...]
    """Of every column."""
    tables: Tables
    weights: Integers
    serves: frozenset[int] | None = None
    """The asked tables, all if None."""

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def columns(self) -> tuple[Column, ...]:
        """As the group's tables see them."""
        return tuple(one.column for one in self.insides)

    @cached_property
    def group(self) -> MarginalGroup:
        """The same in floats, which are exactly these integers."""
        bits = np.array([one.bits for one in self.insides])
        theta = self.weights * 2.0 ** (self.tables.apart @ bits)
        return MarginalGroup(self.columns, tuple(one.inside for one in self.insides), self.tables, theta, self.serves)

    def apart(self, k: int) -> list[int]:
        """The columns that a table tells apart, in ascending order."""
        return [int(i) for i in np.flatnonzero(self.tables.apart[k])]

    def shape(self, k: int) -> tuple[int, ...]:
        """Of a table's measurements: a column that it tells apart is an axis, and no other is."""
        return tuple(self.insides[i].rows for i in self.apart(k))

    def largest(self, k: int) -> int:
        """The largest entry of a table's integers."""
        return int(self.weights[k]) * prod(self.insides[i].largest for i in self.apart(k))

    def changes(self) -> Iterator[Change]:
        """What a record changes of each table: 1 along every column that has no strategy inside."""
        strategies = [i for i, one in enumerate(self.insides) if one.norms is not None]
        apart = self.tables.apart
        for k, weight in enumerate(self.weights.tolist()):
            own = ((i, self.insides[i].norms) for i in strategies if apart[k, i])
            yield Change(weight, tuple(((i,), norms) for i, norms in own if norms is not None))


@dataclass(frozen=True)
class OneNoise:
    """All measurements, which have one noise."""

    moved: int
    """Δ, how much one record can change all of them together, in the L1 norm: exact."""
    bits: int
    columns: tuple[int, ...]
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class WeightedLattice(TableLattice):
    """The integer measurements of a Laplace strategy over many columns."""

    is_whole: ClassVar[bool] = False

    workload: KroneckerWorkload
    measures: tuple[IntegerTables | IntegerResults, ...]
    bits: int
    """The largest weight has about so many."""
    largest_total: int
    """The public cap on the number of records that no measurement can overflow at."""

    @cached_property
    def sensitivity(self) -> int:
        """Δ of all measurements together, exactly."""
        return largest_change(change for own in self.measures for change in own.changes())

    @cached_property
    def groups(self) -> tuple[OneNoise, ...]:
        """The one noise."""
        looked: set[int] = set()
        for own in self.measures:
            if isinstance(own, IntegerResults):
                looked |= set(own.workload.columns.tolist())
            else:
                looked |= set(np.flatnonzero(own.tables.looked.any(axis=0)).tolist())
        return (OneNoise(self.sensitivity, self.bits, tuple(sorted(looked))),)

    @cached_property
    def starts(self) -> tuple[Integers, ...]:
        """Where the measurements of every table begin and the last end, for each of `measures`."""
        found, start = [], 0
        for own in self.measures:
            ends = [start]
            for k in range(len(own)):
                ends.append(ends[-1] + prod(own.shape(k)))
            if ends[-1] >= 2**62:
                raise LatticeError(f"there are {ends[-1]:.3g} measurements; ask for tables of fewer columns")
            found.append(np.array(ends, dtype=np.int64))
            start = ends[-1]
        return tuple(found)

    @cached_property
    def sizes(self) -> Integers:
        """How many measurements the noise is drawn for."""
        return np.array([int(self.starts[-1][-1])], dtype=np.int64)

    @property
    def largest_measured(self) -> int:
        """Measurements of a table."""
        return max(int(np.diff(starts).max(initial=0)) for starts in self.starts)

    @property
    def noise(self) -> Noise:
        """Laplace, one for all measurements."""
        return LAPLACE

    @property
    def shares(self) -> Dense:
        """Of the budget: all of it."""
        return np.ones(1)

    def reader(self, scales: Dense) -> WeightedReader:
        """How tables are read from measurements with noise of this scale."""
        from batchdp.mechanism.weighted.tables import WeightedReader

        return WeightedReader(self, scales)


def quantise_weighted(
    strategy: MarginalStrategy, *, largest_total: int, epsilon: float, factor: int
) -> WeightedLattice:
    """The strategy in integers, as fine as the cap and the noise leave room for."""
    cap = check_cap(largest_total)
    bits = min(MOST_BITS, (LARGEST // cap).bit_length() - 1)
    lattice = WeightedLattice(strategy.workload, _measures(strategy, bits), bits, cap)
    over = log2(max(1, lattice.sensitivity) * factor) - log2(epsilon) - MOST_NOISE
    if over > 0:
        bits -= ceil(over)
        if bits < FEWEST_BITS:
            raise LatticeError(f"epsilon={epsilon:.3g} asks for more noise than fits; raise epsilon, or ask for less")
        lattice = WeightedLattice(strategy.workload, _measures(strategy, bits), bits, cap)
    check_room(max(own.largest(k) for own in lattice.measures for k in range(len(own))), cap)
    return lattice


def _measures(strategy: MarginalStrategy, bits: int) -> tuple[IntegerTables | IntegerResults, ...]:
    """What is measured, in so many bits."""
    groups = tuple(one for one in strategy.groups if isinstance(one, MarginalGroup))
    if len(groups) < len(strategy.groups):
        (results,) = (one for one in strategy.groups if isinstance(one, Results))
        return (quantise_results(results.workload, bits),)
    top = max(float(one.theta.max()) for one in groups)
    return tuple(_tables(one, bits, top) for one in groups)


def _tables(group: MarginalGroup, bits: int, top: float) -> IntegerTables:
    """A group in which a weight of `top` has so many bits, together with what is inside its columns."""
    strategies = np.array([one.measure is not None for one in group.insides])
    inside = (group.tables.apart & strategies).sum(axis=1)
    each = min(MOST_INSIDE, bits // (int(inside.max(initial=0)) + 1))
    if each < FEWEST_BITS:
        raise LatticeError(
            f"{bits} bits are too few for weights and {int(inside.max(initial=0))} strategies inside columns; lower "
            "max_rows, or raise epsilon"
        )
    insides = tuple(quantise_inside(c, one.measure, each) for c, one in zip(group.columns, group.insides, strict=True))
    # A little less than all of the room, for what is rounded up.
    sizes = group.theta / top * 2.0 ** (bits - each * inside) * (1 - 2.0**-10)
    weights = np.where(group.theta > 0, np.maximum(1, np.rint(sizes)), 0).astype(np.int64)
    return IntegerTables(insides, group.tables, weights, group.serves)
