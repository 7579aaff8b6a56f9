"""All measurements of a Laplace strategy over many columns as integers, for one noise.

A measured table is a whole number, its weight, times the product of its columns' integers. The sensitivity is that of
the integers, and what is recovered is fitted to them with their own weights: rounding a weight moves a little noise
from one table to another, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil, lcm, log2, prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import LARGEST, Integers, OneNoise, check_cap, check_room
from batchdp.mechanism.sensitivity import largest_change
from batchdp.mechanism.tables import IntegerAxis, IntegerPart, TableLattice
from batchdp.privacy import LAPLACE, Budget, Noise
from batchdp.strategies.marginal.columns import ColumnStrategy
from batchdp.strategies.marginal.strategy import MarginalGroup, MarginalStrategy, Results
from batchdp.strategies.marginal.weights import Tables
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.terms import kron
from batchdp.workloads.kronecker import Factor, KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.mechanism.marginal.tables import WeightedReader


MOST_DENOMINATOR = 2**12
"""Of a factor that becomes whole."""
LEAST_PIVOT = 1e-9
"""Of K, relative: below, it does not determine the column."""
MOST_ROUNDING = 1e-12
"""Of (LᵀL)⁻¹ LᵀL: above, (LᵀL)⁻¹Lᵀ is made by itself, which rounds by the condition of L and not by its square."""
NOTHING = np.zeros(0)
DIFFERENCE = np.array([[1, -1]])
"""Of a column's two values."""


@dataclass(frozen=True, eq=False)
class IntegerInside:
    """What tables measure of a column that they tell apart: each value by itself, or K."""

    column: Column
    integers: Integers | None = None
    """K, measurement × value that is told apart; each value by itself if None."""
    bits: int = 0
    """Measuring 1 is 2^bits."""

    @property
    def rows(self) -> int:
        """How many measurements it makes."""
        return self.values if self.integers is None else len(self.integers)

    @property
    def values(self) -> int:
        """That are told apart."""
        return len(self.column.orbit)

    @cached_property
    def inside(self) -> ColumnStrategy:
        """The same in floats, K / 2^b exactly, with the inverse that recovers the column."""
        if self.integers is None:
            return ColumnStrategy(float(self.values), NOTHING, NOTHING)
        L = self.integers / 2.0**self.bits
        G = L.T @ L
        if np.linalg.cond(G) > 1 / LEAST_PIVOT:
            raise LatticeError("a strategy inside a column does not determine it on the lattice; lower max_rows")
        X = np.linalg.inv(G)
        for _ in range(2):  # what rounding left
            X = X + X @ (np.eye(len(G)) - G @ X)
        X = (X + X.T) / 2
        rough = float(_missing(X, L.T, L).max(initial=0.0)) > MOST_ROUNDING
        return ColumnStrategy(float(X.sum()), NOTHING, NOTHING, L, X, np.asarray(np.linalg.pinv(L)) if rough else None)

    @cached_property
    def missing(self) -> Dense | None:
        """|X LᵀL − I|, with what rounding may hide of it here and in answers; None where nothing is missing."""
        own = self.inside
        if own.measure is None or own.inverse is None:
            return None
        if own.recover is not None:
            return _missing(own.recover, np.eye(len(own.measure)), own.measure)
        return _missing(own.inverse, own.measure.T, own.measure)


def _missing(first: Dense, second: Dense, L: Dense) -> Dense:
    """What two factors that recover the values, one after the other, lack of it, with what rounding may hide."""
    rounding = np.finfo(float).eps * sum(L.shape) * (np.abs(first) @ (np.abs(second) @ np.abs(L)))
    return np.asarray(np.abs(first @ (second @ L) - np.eye(len(first))) + rounding)


def quantise_inside(column: Column, measure: Dense | None, bits: int) -> IntegerInside:
    """A column's strategy in so many bits."""
    if measure is None:
        return IntegerInside(column)
    K = np.rint(measure * 2.0**bits).astype(np.int64)
    found = IntegerInside(column, K[np.any(K != 0, axis=1)], bits)
    assert found.inside.inverse is not None
    return found


@dataclass(frozen=True, eq=False)
class IntegerFactor:
    """A factor of queries that are measured themselves: K near the factor times `scale`."""

    factor: Factor
    integers: Integers | None
    """None where it is each value by itself."""
    scale: float

    @cached_property
    def missed(self) -> Dense:
        """For every query the most that it is off for a record."""
        if self.integers is None or self.factor.given is None:
            return np.zeros(self.factor.rows)
        F = self.factor.given
        off = np.abs(F - self.integers / self.scale) + 2 * np.finfo(float).eps * np.abs(F)
        return np.asarray(off.max(axis=1, initial=0.0))

    @cached_property
    def tops(self) -> Dense:
        """For every query its largest coefficient."""
        given = self.factor.given
        return np.ones(self.factor.rows) if given is None else np.asarray(np.abs(given).max(axis=1, initial=0.0))


def denominator(factor: Factor) -> int | None:
    """The whole number that makes a factor whole, but for the rounding of its floats; None where there is none."""
    if factor.given is None:
        return 1
    values = np.unique(np.abs(factor.given))
    found = 1
    for value in values:
        near = Fraction(float(value)).limit_denominator(MOST_DENOMINATOR)
        found = lcm(found, near.denominator)
        if found > MOST_DENOMINATOR or abs(float(near) - value) > 4 * np.finfo(float).eps * value:
            return None
    return found


def quantise_factor(factor: Factor, bits: int) -> IntegerFactor:
    """A factor times its denominator, or in so many bits."""
    if factor.given is None:
        return IntegerFactor(factor, None, 1.0)
    whole = denominator(factor)
    scale = 2.0**bits / (float(np.abs(factor.given).max(initial=0.0)) or 1.0) if whole is None else float(whole)
    return IntegerFactor(factor, np.rint(factor.given * scale).astype(np.int64), scale)


# ── Queries that are measured themselves, in integers.
#
# A table's integers are the product of its factors' where these become whole, or all but one do. Where more would be
# rounded, each in a part of the bits, the product is rounded instead, in all of them, if it can be held.

MOST_JOINT = 4_000_000
"""Entries of a table whose factors are multiplied out."""
SPARE = 8
"""Bits that are left for weights where one factor is rounded."""
LESS = 1 - 2.0**-10
"""Of all the room, for what is rounded up."""


@dataclass(frozen=True, eq=False)
class IntegerResults:
    """The queries themselves in integers."""

    workload: KroneckerWorkload
    factors: tuple[tuple[IntegerFactor, ...], ...]
    """Of every column, as in the workload."""
    weights: Integers
    """Of every asked table; 1 for those in `joint`."""
    joint: Mapping[int, Integers] = field(default_factory=dict)
    """Tables whose factors are multiplied out: query × combination of values."""
    joint_scale: float = 1.0
    """What queries are multiplied by in these."""

    serves: ClassVar[None] = None

    def factors_of(self, k: int) -> dict[int, IntegerFactor]:
        """The factor of every column that a table looks at."""
        batch = self.workload
        span = slice(batch.starts[k], batch.starts[k + 1])
        own = zip(batch.columns[span].tolist(), batch.chosen[span].tolist(), strict=True)
        return {i: self.factors[i][c] for i, c in own}

    def shape(self, k: int) -> tuple[int, ...]:
        """Of a table's measurements."""
        return tuple(self.workload.tables[k].shape)

    def scale(self, k: int) -> float:
        """What a table's queries are multiplied by."""
        if k in self.joint:
            return self.joint_scale
        return float(self.weights[k]) * prod(one.scale for one in self.factors_of(k).values())

    @cached_property
    def parts(self) -> list[IntegerPart]:
        """What is measured of every table."""
        made: dict[tuple[int, int], IntegerAxis] = {}
        found = []
        for k, weight in enumerate(self.weights.tolist()):
            own = self.factors_of(k)
            for i, one in own.items():
                if (i, id(one)) not in made:
                    made[i, id(one)] = self._axis((i,), one.integers)
            joint = self.joint.get(k)
            axes = [made[i, id(one)] for i, one in own.items()] if joint is None else [self._axis(tuple(own), joint)]
            found.append(IntegerPart(tuple(axes), weight))
        return found

    def _axis(self, columns: tuple[int, ...], integers: Integers | None) -> IntegerAxis:
        sizes = tuple(self.workload.sizes[i] for i in columns)
        return IntegerAxis(columns, tuple(map(np.arange, sizes)), sizes, integers)

    def missed(self, k: int) -> Dense:
        """For every query of a table the most that it is off for a record."""
        own = list(self.factors_of(k).values())
        if k in self.joint:
            F = _product(self.workload, k)
            off = np.abs(F - self.joint[k] / self.joint_scale) + 8 * np.finfo(float).eps * np.abs(F)
            return np.asarray(off.max(axis=1)).reshape(self.shape(k))
        kept = whole = np.ones(())
        for one in own:
            kept, whole = np.multiply.outer(kept, one.tops), np.multiply.outer(whole, one.tops + one.missed)
        return np.asarray(whole - kept)


def _product(batch: KroneckerWorkload, k: int) -> Dense:
    return kron([factor.matrix for factor in batch.factors_of(k).values()])


def quantise_results(batch: KroneckerWorkload, bits: int) -> IntegerResults:
    """All queries on one lattice, the largest entry in so many bits."""
    rough = [np.array([denominator(factor) is None for factor in own], dtype=bool) for own in batch.factors]
    rounded = np.array([rough[i][c] for i, c in zip(batch.columns.tolist(), batch.chosen.tolist(), strict=True)])
    ends = np.concatenate([[0], np.cumsum(rounded)])[batch.starts]
    many = np.diff(ends)  # factors of every table that are rounded
    together = [k for k in np.flatnonzero(many > 1).tolist() if _entries(batch, k) <= MOST_JOINT]
    many[together] = 0
    each = max(1, (bits - SPARE) // max(1, int(many.max())))
    factors = tuple(tuple(quantise_factor(factor, each) for factor in own) for own in batch.factors)
    made = IntegerResults(batch, factors, np.ones(len(batch.tables), dtype=np.int64))
    tables = range(len(batch.tables))
    top = max(prod(float(one.tops.max(initial=0.0)) for one in made.factors_of(k).values()) for k in tables) or 1.0
    fine = 2.0**bits / top * LESS
    weights = np.maximum(1, np.rint(fine / np.array([made.scale(k) for k in tables]))).astype(np.int64)
    weights[together] = 1
    joint = {k: np.rint(_product(batch, k) * fine).astype(np.int64) for k in together}
    return replace(made, weights=weights, joint=joint, joint_scale=fine)


def _entries(batch: KroneckerWorkload, k: int) -> int:
    return prod(factor.rows * factor.size for factor in batch.factors_of(k).values())


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

    @cached_property
    def parts(self) -> list[IntegerPart]:
        """What is measured of every table: each value, or what is inside, of columns apart, then differences."""
        looked = [((i,), (one.column.value,), (one.values,)) for i, one in enumerate(self.insides)]
        apart = [IntegerAxis(*own, one.integers) for own, one in zip(looked, self.insides, strict=True)]
        minus = [IntegerAxis(*own, DIFFERENCE) for own in looked]
        return [
            IntegerPart((*(apart[i] for i in self.apart(k)), *(minus[i] for i in np.flatnonzero(differs))), weight)
            for k, (weight, differs) in enumerate(zip(self.weights.tolist(), self.tables.difference, strict=True))
        ]


@dataclass(frozen=True, eq=False)
class WeightedLattice(TableLattice):
    """The integer measurements of a Laplace strategy over many columns."""

    noise: ClassVar[Noise] = LAPLACE
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
        return largest_change(part.change for own in self.measures for part in own.parts)

    @cached_property
    def groups(self) -> tuple[OneNoise, ...]:
        """The one noise that all measurements have."""
        looked = {i for own in self.measures for part in own.parts for i in part.columns}
        return (OneNoise(self.sensitivity, self.bits, 1.0, tuple(sorted(looked))),)

    def parts(self) -> Iterator[tuple[int, int, IntegerPart]]:
        """Of every table that is measured: the one group, its first measurement, the part."""
        for own, starts in zip(self.measures, self.starts, strict=True):
            for start, part in zip(starts.tolist(), own.parts, strict=False):
                yield 0, start, part

    @cached_property
    def starts(self) -> tuple[Integers, ...]:
        """Where the measurements of every table begin and the last end, for each of `measures`."""
        found, start = [], 0
        for own in self.measures:
            ends = list(accumulate((part.size for part in own.parts), initial=start))
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

    def reader(self, scales: Dense) -> WeightedReader:
        """How tables are read from measurements with noise of this scale."""
        from batchdp.mechanism.marginal.tables import WeightedReader

        return WeightedReader(self, scales)


def quantise_weighted(
    strategy: MarginalStrategy, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False
) -> WeightedLattice:
    """The strategy in integers, as fine as the cap and the noise leave room for."""
    cap, epsilon = check_cap(largest_total), float(budget)
    bits = min(MOST_BITS, (LARGEST // cap).bit_length() - 1)
    lattice = WeightedLattice(strategy.workload, _measures(strategy, bits), bits, cap)
    over = log2(max(1, lattice.sensitivity) * factor) - log2(epsilon) - MOST_NOISE
    if over > 0:
        bits -= ceil(over)
        if bits < FEWEST_BITS:
            raise LatticeError(f"epsilon={epsilon:.3g} asks for more noise than fits; raise epsilon, or ask for less")
        lattice = WeightedLattice(strategy.workload, _measures(strategy, bits), bits, cap)
    check_room(max(part.largest for own in lattice.measures for part in own.parts), cap)
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
