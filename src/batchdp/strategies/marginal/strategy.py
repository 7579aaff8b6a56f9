"""A Laplace strategy over many columns: which tables are measured, with what weights.

Laplace noise of scale Δ/ε on every measurement is ε-differentially private when one record is added or removed, Δ
being `sensitivity`. A table is reconstructed, by least squares, from the measured tables of its group. A group serves
some of the asked tables; its columns are merged as far as those tables do not tell values apart, so that every group
has cells of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import ClassVar

import numpy as np

from batchdp.linalg.matrix import Dense, Indices
from batchdp.privacy import LAPLACE, Noise
from batchdp.progress import Outcome
from batchdp.strategies.marginal.columns import ColumnStrategy
from batchdp.strategies.marginal.weights import Flags, Tables, seen, sizes_of, whole_problem
from batchdp.strategies.residual.columns import Column, factors_apart
from batchdp.strategies.residual.strategy import closure, is_whole
from batchdp.strategies.residual.terms import kron
from batchdp.strategies.strategy import FactoredStrategy
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


@dataclass(frozen=True, eq=False)
class MarginalGroup:
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
        """Of all columns."""
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
        for kept, eigenvalue in self._components(list(parts)):
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

    def _components(self, looked: Sequence[int]) -> list[tuple[frozenset[int], float]]:
        """The components of some columns that are measured, and their eigenvalues."""
        needed = np.zeros((2 ** len(looked), len(self.columns)), dtype=bool)
        needed[:, looked] = list(product((False, True), repeat=len(looked)))
        values = zip(needed, self.eigenvalues(needed), strict=True)
        return [(frozenset(np.flatnonzero(own).tolist()), float(value)) for own, value in values if value > 0]

    def rows(self) -> int:
        """How many numbers are measured."""
        sizes = [
            len(column.orbit if own.measure is None else own.measure)
            for column, own in zip(self.columns, self.insides, strict=True)
        ]
        return sum(prod(sizes[i] for i in np.flatnonzero(apart)) for apart in self.tables.apart)

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

    def _pieces(self, k: int) -> list[Dense]:
        """What table k measures of every column."""
        return [self._piece(i, kind) for i, kind in enumerate(self._kinds[k].tolist())]

    def measure(self) -> Dense:
        """L over all cells, multiplied out."""
        blocks = []
        for k in range(len(self)):
            pieces = [piece[:, column.value] for piece, column in zip(self._pieces(k), self.columns, strict=True)]
            blocks.append(self.theta[k] * kron(pieces))
        return np.concatenate(blocks)

    def reconstruct(self, workload: KroneckerWorkload, table: int) -> Dense:
        """B of one asked table: answers from all of the group's measurements."""
        factors = factors_apart(workload, table, self.columns)
        components = self._components(list(factors))
        found = []
        for k in range(len(self)):
            pieces = self._pieces(k)
            block = np.zeros((int(np.prod([len(F) for F in factors.values()])), int(np.prod([len(p) for p in pieces]))))
            looked, difference = (
                frozenset(np.flatnonzero(own[k])) for own in (self.tables.looked, self.tables.difference)
            )
            for kept, eigenvalue in components:
                if not difference <= kept <= looked:  # which it does not see; rounding over a small λ would be much
                    continue
                parts = [
                    self._recovered(i, factors.get(i), pieces[i], rest=i in kept) for i in range(len(self.columns))
                ]
                # λ_A is relative to Π τ; so is what is recovered of each column.
                block += float(self.theta[k]) / eigenvalue * kron(parts)
            found.append(block)
        return np.concatenate(found, axis=1)

    def reproduced(self, workload: KroneckerWorkload, table: int, records: Indices) -> Iterator[Dense]:
        """B L of one asked table for each record alone, as an array of the table's shape."""
        factors, kinds = factors_apart(workload, table, self.columns), self._kinds
        alike, which = np.unique(kinds[:, list(factors)], axis=0, return_inverse=True)
        every = range(len(self.columns))
        terms = []
        for kept, eigenvalue in self._components(list(factors)):
            own = np.isin(np.arange(len(self.columns)), list(kept))
            sees = np.all(~self.tables.difference | own, axis=1) & np.all(self.tables.looked | ~own, axis=1)
            terms.append((kept, sees / eigenvalue))
        pieces = {(i, kind): self._piece(i, kind) for i in every for kind in set(kinds[:, i].tolist())}
        for record in records:
            back = {}
            for (i, kind), piece in pieces.items():
                measured = piece[:, self.columns[i].value[record[i]]]
                for rest in (False, True) if i in factors else (False,):
                    back[i, kind, rest] = self._recovered(i, factors.get(i), piece, rest=rest) @ measured
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

    def _recovered(self, i: int, F: Dense | None, piece: Dense, *, rest: bool) -> Dense:
        """F P Lᵀ / τ, P the part of (LᵀL)⁻¹ in the average or in the rest."""
        own = self.insides[i]
        n = len(self.columns[i].orbit)
        X = np.eye(n) if own.inverse is None else own.inverse
        X1 = X.sum(axis=1)
        average = np.outer(X1, X1) / own.tau
        P = X - average if rest else average
        rows = np.ones((1, n)) if F is None else F
        return np.asarray(rows @ P @ piece.T) / own.tau


@dataclass(frozen=True, eq=False)
class Results:
    """The queries themselves: noise on results, each answer with as much."""

    workload: KroneckerWorkload
    scale: float
    """What every query is multiplied by."""

    serves = None

    def __len__(self) -> int:
        return len(self.workload.tables)

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

    def rows(self) -> int:
        """How many numbers are measured."""
        return self.workload.queries

    def measure(self) -> Dense:
        """L over all cells, multiplied out."""
        return np.asarray(self.scale * self.workload.matrix.toarray())

    def reconstruct(self, workload: KroneckerWorkload, table: int) -> Dense:
        """B of one asked table."""
        sizes = [one.queries for one in workload.tables]
        return np.eye(sizes[table], sum(sizes), sum(sizes[:table])) / self.scale


@dataclass(frozen=True, eq=False, kw_only=True)
class MarginalStrategy(FactoredStrategy):
    """A Laplace strategy for a batch over many columns.

    Args:
        groups: the measured tables, by the asked tables that they serve.
        sensitivity: Δ, what one record can change of all measurements, in the L1 norm.
        workload, total, limit, method, largest, status, reason: as in `FactoredStrategy`; at ε = 1 errors are
            twice `total`.
    """

    noise: ClassVar[Noise] = LAPLACE
    caveat: ClassVar[str] = (
        " For Laplace noise over many tables this limit is loose: the best possible may be far above it."
    )

    groups: tuple[MarginalGroup | Results, ...] = field(repr=False)
    sensitivity: float
    status: Outcome = Outcome.BEST_OF_STARTS

    def distinct_variances(self, table: int) -> Dense:
        """Of a table's answers, in the unit of `total`, to be broadcast to its shape."""
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
        return sum(group.rows() for group in self.groups)

    @cached_property
    def measure(self) -> Dense:
        """L as an array over all cells; refused where it does not fit into memory."""
        self._fits("measure", self.measurements, self.workload.cells)
        return np.concatenate([group.measure() for group in self.groups])

    @cached_property
    def reconstruct(self) -> Dense:
        """B as an array; refused where it does not fit into memory."""
        self._fits("reconstruct", self.workload.queries, self.measurements)
        found = []
        for t, table in enumerate(self.workload.tables):
            empty = [np.zeros((table.queries, group.rows())) for group in self.groups]
            own = self.groups.index(self._group_of(t))
            found.append([*empty[:own], self.groups[own].reconstruct(self.workload, t), *empty[own + 1 :]])
        return np.block(found)

    def _group_of(self, table: int) -> MarginalGroup | Results:
        return next(group for group in self.groups if group.serves is None or table in group.serves)

    def __repr__(self) -> str:
        tables = sum(map(len, self.groups))
        return (
            f"Strategy({self.method}, {self.privacy}: {self.workload.queries:,} queries from {tables:,} measured "
            f"tables, found / limit {self.total / self.limit if self.limit else 1.0:.5g})"
        )
