"""A Laplace strategy over many columns: which tables are measured, with what weights.

Laplace noise of scale Δ/ε on every measurement is ε-differentially private when one record is added or removed, Δ
being `sensitivity`. A table is reconstructed, by least squares, from the measured tables of its group. A group serves
some of the asked tables; its columns are merged as far as those tables do not tell values apart, so that every group
has cells of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate, chain, product
from math import prod
from typing import ClassVar

import numpy as np

from batchdp.linalg.matrix import Dense, Indices, outer_rows
from batchdp.privacy import LAPLACE, Noise
from batchdp.strategies.marginal.columns import ColumnStrategy
from batchdp.strategies.marginal.weights import Flags, Tables, seen, sizes_of, whole_problem
from batchdp.strategies.residual.columns import Column, factors_apart
from batchdp.strategies.residual.strategy import closure, is_whole
from batchdp.strategies.residual.terms import kron
from batchdp.strategies.strategy import FactoredStrategy
from batchdp.text import Outcome
from batchdp.workloads.kronecker import Factor, KroneckerWorkload


@dataclass(frozen=True, eq=False)
class Measured:
    """One table that is measured: the columns that it tells apart, and its weight θ.

    Its measurements are θ times the product over its columns of what the group measures inside each (the first value
    less the second for those in `differences`), summed over all others. A record changes them by at most θ in the L1
    norm.
    """

    columns: tuple[int, ...]
    differences: tuple[int, ...]
    weight: float


class TableGroup(ABC):
    """Measured tables that serve some of the asked tables."""

    serves: frozenset[int] | None = None
    """The asked tables, all if None."""

    @property
    @abstractmethod
    def share(self) -> float:
        """Its part of the sensitivity."""

    @property
    @abstractmethod
    def sizes(self) -> list[int]:
        """How many numbers are measured of every table."""

    def __len__(self) -> int:
        return len(self.sizes)

    @abstractmethod
    def listed(self) -> Iterator[Measured]:
        """The measured tables, one by one."""

    @abstractmethod
    def variances(self, workload: KroneckerWorkload, table: int) -> Dense:
        """Of every answer of a table, where the noise on each measurement has the variance 1; to be broadcast."""

    @abstractmethod
    def table_variances(self, workload: KroneckerWorkload) -> Dense | None:
        """For every table the variance that all of its answers have, as `variances` has it; None where they differ."""

    @abstractmethod
    def reproduced(self, workload: KroneckerWorkload, table: int, records: Indices) -> Iterator[Dense]:
        """B L of one asked table for each record alone, as an array of the table's shape."""

    @abstractmethod
    def measure(self) -> Dense:
        """L over all cells, multiplied out."""

    @abstractmethod
    def weights(
        self, workload: KroneckerWorkload, table: int, at: Mapping[int, Indices], places: int
    ) -> Iterator[tuple[int, Dense]]:
        """What some answers of an asked table make of every measured one: its number, and answer × measurement.

        Args:
            workload, table: what is asked.
            at: for each of the asked table's columns the queries' places along it, one an answer.
            places: how many answers there are.
        """


@dataclass(frozen=True, eq=False)
class MarginalGroup(TableGroup):
    """Weighted tables that serve some asked tables; Σ θ is the group's share of the sensitivity."""

    columns: tuple[Column, ...]
    insides: tuple[ColumnStrategy, ...]
    tables: Tables
    theta: Dense
    serves: frozenset[int] | None = None
    """The asked tables, all if None."""

    @property
    def share(self) -> float:
        """Of the sensitivity: Σ θ."""
        return float(self.theta.sum())

    def __len__(self) -> int:
        return len(self.theta)

    def listed(self) -> Iterator[Measured]:
        """Its tables, one by one."""
        for looked, difference, weight in zip(self.tables.looked, self.tables.difference, self.theta, strict=True):
            columns, differences = (tuple(np.flatnonzero(own).tolist()) for own in (looked, difference))
            yield Measured(columns, differences, float(weight))

    @cached_property
    def tau(self) -> Dense:
        """The τ of every column."""
        return np.array([own.tau for own in self.insides])

    def eigenvalues(self, needed: Flags) -> Dense:
        """λ_A of some components."""
        return np.asarray(seen(needed, self.tables) @ (self.theta**2 * sizes_of(self.tau, self.tables)))

    def variances(self, workload: KroneckerWorkload, table: int) -> Dense:
        """Of every answer of a table, where the noise on each measurement has the variance 1; to be broadcast.

        All answers along a column of which each value is measured and asked by itself have the same.
        """
        parts = {i: self._parts(i, factor) for i, factor in workload.factors_of(table).items()}
        found = np.zeros((1,) * len(parts))
        for kept, eigenvalue in self.components(parts):
            term = np.full((1,) * len(parts), 1 / eigenvalue)
            for axis, (i, (mean, rest)) in enumerate(parts.items()):
                shape = [1] * len(parts)
                shape[axis] = len(mean)
                term = term * ((rest if i in kept else mean) / self.insides[i].tau).reshape(shape)
            found = found + term
        return np.asarray(found)

    def table_variances(self, workload: KroneckerWorkload) -> Dense | None:
        """For every table the variance that all of its answers have, as `variances` has it; None where they differ."""
        if not is_whole(workload):
            return None
        found, problem = closure(workload), whole_problem(workload)
        parts = found.freedom / self.eigenvalues(problem.needed)
        return np.asarray(found.down(parts, 1, len(workload.tables)) / workload.table_sizes())

    def _parts(self, i: int, factor: Factor) -> tuple[Dense, Dense]:
        """Of every query of a factor the parts in the average and in the rest."""
        n = len(self.columns[i].orbit)
        if factor.given is None and self.insides[i].inverse is None:
            return np.full(1, 1 / n), np.full(1, 1 - 1 / n)
        return self.insides[i].rows(self.columns[i].tell_apart(factor))

    def components(self, looked: Iterable[int]) -> list[tuple[tuple[int, ...], float]]:
        """The components of some columns that are measured, by the columns that they have the rest of, and their λ."""
        several = [i for i in looked if len(self.columns[i].orbit) > 1]
        needed = np.zeros((2 ** len(several), len(self.columns)), dtype=bool)
        needed[:, several] = list(product((False, True), repeat=len(several)))
        values = zip(needed, self.eigenvalues(needed), strict=True)
        return [(tuple(np.flatnonzero(own).tolist()), float(value)) for own, value in values if value > 0]

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers are measured of every table."""
        known = zip(self.columns, self.insides, strict=True)
        rows = [len(column.orbit if own.measure is None else own.measure) for column, own in known]
        return [prod(rows[i] for i in np.flatnonzero(apart)) for apart in self.tables.apart]

    @cached_property
    def _kinds(self) -> Indices:
        """How every table looks at every column: 0 where it adds up over it, 1 tells it apart, 2 takes a difference."""
        return np.where(self.tables.apart, 1, np.where(self.tables.difference, 2, 0))

    def _piece(self, i: int, kind: int) -> Dense:
        """What a table measures of a column, over the values that are told apart: their sum, each, or a difference."""
        n, inside = len(self.columns[i].orbit), self.insides[i].measure
        if kind == 1:
            return np.eye(n) if inside is None else inside
        return np.array([[1.0, -1.0]]) if kind == 2 else np.ones((1, n))

    def measure(self) -> Dense:
        """L over all cells, multiplied out."""
        blocks = []
        for theta, kinds in zip(self.theta, self._kinds.tolist(), strict=True):
            pieces = [self._piece(i, kind)[:, self.columns[i].value] for i, kind in enumerate(kinds)]
            blocks.append(theta * kron(pieces))
        return np.concatenate(blocks)

    def weights(
        self, workload: KroneckerWorkload, table: int, at: Mapping[int, Indices], places: int
    ) -> Iterator[tuple[int, Dense]]:
        """By least squares, component by component."""
        factors = {i: F[at[i]] for i, F in factors_apart(workload, table, self.columns).items()}
        components = self.components(factors)

        @cache
        def recovered(i: int, kind: int, rest: bool) -> Dense:
            return self._recovered(i, kind, factors.get(i), rest=rest)

        for k in np.flatnonzero(self.theta > 0).tolist():
            looked, difference = (
                set(np.flatnonzero(own[k]).tolist()) for own in (self.tables.looked, self.tables.difference)
            )
            total: Dense | None = None
            for kept, eigenvalue in components:
                # What it does not see is left out: rounding over a small λ would be much.
                if not difference <= set(kept) <= looked:
                    continue
                # λ_A is relative to Π τ; so is what is recovered of each column.
                parts = [recovered(i, int(self._kinds[k, i]), i in kept) for i in sorted(looked.union(factors))]
                share = float(self.theta[k]) / eigenvalue * outer_rows(parts, places)
                total = share if total is None else total + share
            if total is not None:
                yield k, total

    def reproduced(self, workload: KroneckerWorkload, table: int, records: Indices) -> Iterator[Dense]:
        """B L of one asked table for each record alone, as an array of the table's shape."""
        factors, kinds = factors_apart(workload, table, self.columns), self._kinds
        alike, which = np.unique(kinds[:, list(factors)], axis=0, return_inverse=True)
        every = range(len(self.columns))
        terms = []
        for kept, eigenvalue in self.components(factors):
            own = np.isin(np.arange(len(self.columns)), list(kept))
            sees = np.all(~self.tables.difference | own, axis=1) & np.all(self.tables.looked | ~own, axis=1)
            terms.append((kept, sees / eigenvalue))
        pieces = {(i, kind): self._piece(i, kind) for i in every for kind in set(kinds[:, i].tolist())}
        for record in records:
            back = {}
            for (i, kind), piece in pieces.items():
                measured = piece[:, self.columns[i].value[record[i]]]
                for rest in (False, True) if i in factors else (False,):
                    back[i, kind, rest] = self._recovered(i, kind, factors.get(i), rest=rest) @ measured
            weights = self.theta**2
            for i in set(every) - set(factors):
                by_kind = np.array([back[i, kind, False][0] if (i, kind) in pieces else 0.0 for kind in range(3)])
                weights = weights * by_kind[kinds[:, i]]
            found = np.zeros([len(F) for F in factors.values()])
            for kept, sees in terms:
                sums = np.bincount(which.ravel(), weights * sees, minlength=len(alike))
                for k in np.flatnonzero(sums):
                    term = np.asarray(sums[k])
                    for i, kind in zip(factors, alike[k].tolist(), strict=True):
                        term = np.multiply.outer(term, back[i, kind, i in kept])
                    found = found + term
            yield found

    def _recovered(self, i: int, kind: int, F: Dense | None, *, rest: bool) -> Dense:
        """F P Lᵀ / τ, L being what a table measures of a column, P what (LᵀL)⁻¹ has of the average or of the rest."""
        own = self.insides[i]
        F = np.ones((1, len(self.columns[i].orbit))) if F is None else F
        return own.recovered(F, rest=rest) if kind == 1 else own.parts(F, rest=rest) @ self._piece(i, kind).T / own.tau


@dataclass(frozen=True, eq=False)
class Results(TableGroup):
    """The queries themselves: noise on results, each answer with as much."""

    workload: KroneckerWorkload
    scale: float
    """What every query is multiplied by."""

    share: ClassVar[float] = 1.0

    def listed(self) -> Iterator[Measured]:
        """Each asked table, with its factors inside."""
        return (Measured(table.columns, (), self.scale) for table in self.workload.tables)

    def variances(self, workload: KroneckerWorkload, table: int) -> Dense:
        """Of every answer of a table, where the noise on each measurement has the variance 1; to be broadcast."""
        return np.full((1,) * len(workload.tables[table].shape), 1 / self.scale**2)

    def table_variances(self, workload: KroneckerWorkload) -> Dense | None:
        """The same for every answer."""
        return np.full(len(workload.tables), 1 / self.scale**2)

    def reproduced(self, workload: KroneckerWorkload, table: int, records: Indices) -> Iterator[Dense]:
        """B L of one asked table for each record alone: what is asked, times the scale and divided by it."""
        return (self.scale * workload.answers_of(table, record) / self.scale for record in records)

    @property
    def sizes(self) -> list[int]:
        """How many numbers are measured of every table."""
        return [table.queries for table in self.workload.tables]

    def measure(self) -> Dense:
        """L over all cells, multiplied out."""
        return np.asarray(self.scale * self.workload.matrix.toarray())

    def weights(
        self, workload: KroneckerWorkload, table: int, at: Mapping[int, Indices], places: int
    ) -> Iterator[tuple[int, Dense]]:
        """What some answers of an asked table make of it, as `MarginalGroup.weights`: each rests on its own number."""
        shape = workload.tables[table].shape
        flat = np.ravel_multi_index(tuple(at.values()), shape) if shape else np.zeros(places, dtype=np.int64)
        yield table, (flat[:, None] == np.arange(prod(shape))) / self.scale


@dataclass(frozen=True, eq=False, kw_only=True)
class MarginalStrategy(FactoredStrategy):
    """A Laplace strategy for a batch over many columns. At ε = 1 its expected squared error is twice `total`.

    Args:
        groups: the measured tables, by the asked tables that they serve.
        sensitivity: Δ, what one record can change of all measurements, in the L1 norm.
        workload, total, limit, method, largest, status, reason: as in `FactoredStrategy`.
    """

    noise: ClassVar[Noise] = LAPLACE
    caveat: ClassVar[str] = (
        " For Laplace noise over many tables this limit is loose: the best possible may be far above it."
    )

    groups: tuple[TableGroup, ...] = field(repr=False)
    sensitivity: float
    status: Outcome = Outcome.BEST_OF_STARTS

    def distinct_variances(self, table: int) -> Dense:
        """The variances of a table's answers, in the unit of `total`, to be broadcast to its shape."""
        return np.asarray(self.sensitivity**2 * self._group_of(table).variances(self.workload, table))

    def _reproduced(self, table: int, records: Indices) -> Iterator[Dense]:
        return self._group_of(table).reproduced(self.workload, table, records)

    def _table_variances(self) -> Dense | None:
        alike = self.groups[0].table_variances(self.workload) if len(self.groups) == 1 else None
        return None if alike is None else np.asarray(self.sensitivity**2 * alike)

    @property
    def measured(self) -> Iterator[Measured]:
        """Every measured table with its weight θ; the weights add up to at least the sensitivity."""
        return chain.from_iterable(group.listed() for group in self.groups)

    @property
    def measurements(self) -> int:
        """How many numbers are drawn."""
        return sum(sum(group.sizes) for group in self.groups)

    @cached_property
    def measure(self) -> Dense:
        """L as an array over all cells; refused where it does not fit into memory."""
        self._fits("measure", self.measurements, self.workload.cells)
        return np.concatenate([group.measure() for group in self.groups])

    def _weights(self, table: int, at: Mapping[int, Indices], places: int) -> Iterator[tuple[int, Dense]]:
        own = self._group_of(table)
        before = sum(sum(group.sizes) for group in self.groups[: self.groups.index(own)])
        starts = list(accumulate(own.sizes, initial=before))
        return ((starts[k], block) for k, block in own.weights(self.workload, table, at, places))

    def _group_of(self, table: int) -> TableGroup:
        return next(group for group in self.groups if group.serves is None or table in group.serves)

    def __repr__(self) -> str:
        tables = sum(map(len, self.groups))
        return (
            f"Strategy({self.method}, {self.privacy}: {self.workload.queries:,} queries from {tables:,} measured "
            f"tables, found / limit {self.total / self.limit if self.limit else 1.0:.5g})"
        )
