"""A strategy over components: what is measured of which columns, with what share of the budget.

The measurements of all parts together are L, with L2 sensitivity 1: Gaussian noise of variance 1 / 2ρ on each is ρ-zCDP
when one record is added or removed. A table is reconstructed from the parts that have a share in its queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from batchdp.components.columns import Column
from batchdp.components.terms import (
    ResidualFactor,
    ResidualTerm,
    TermGroup,
    measured,
    recovered,
    reproduced,
    variances,
)
from batchdp.components.whole import Closure, cell_variances
from batchdp.privacy import GAUSSIAN, Noise
from batchdp.strategies.factored import FactoredStrategy

Dense = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ListedParts:
    """Parts held group by group."""

    groups: tuple[TermGroup, ...]

    @cached_property
    def parts(self) -> tuple[ResidualTerm, ...]:
        """One by one."""
        return tuple(part for group in self.groups for part in group.parts())

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[ResidualTerm]:
        return iter(self.parts)

    @property
    def shares(self) -> Dense:
        """Of the budget, one a group."""
        found = np.zeros(1 + max((group.number for group in self.groups), default=0))
        for group in self.groups:
            found[group.number] = group.scale**2
        return found

    def of(self, table: int, looked: set[int]) -> Iterator[ResidualTerm]:
        """Those that may have a share in a table, which looks at these columns."""
        for part in self.parts:
            if part.tables is None or table in part.tables:
                spread = {i for piece in part.pieces for i, _ in piece.spread}
                if spread <= looked:
                    yield part


@dataclass(frozen=True, eq=False)
class WholeParts:
    """The components of whole tables, each made when it is looked at: hundreds of thousands are two arrays."""

    closure: Closure
    shares: Dense

    def __len__(self) -> int:
        return self.closure.size

    def __iter__(self) -> Iterator[ResidualTerm]:
        return (self._part(a) for a in range(len(self)))

    def of(self, table: int, looked: set[int]) -> Iterator[ResidualTerm]:
        """The components of a table's columns."""
        for kept in range(len(looked) + 1):
            for columns in combinations(sorted(looked), kept):
                found = self.closure.find(columns)
                if found is not None:
                    yield self._part(found)

    def _part(self, component: int) -> ResidualTerm:
        columns = self.closure.columns_of(component)
        one = np.ones((1, 1))
        scale = float(np.sqrt(self.shares[component] / self.closure.freedom[component]))
        return ResidualTerm((ResidualFactor((), tuple((i, 0) for i in columns), one, one),), scale, group=component)


@dataclass(frozen=True, eq=False, kw_only=True)
class ResidualStrategy(FactoredStrategy):
    """A Gaussian strategy for a batch over many columns. Sensitivity: 1 in the L2 norm, so figures are at ρ = ½.

    Args:
        columns: what the search knows of every column.
        averages: for every column the measure that it is averaged by, a number for each value that is told apart.
        parts: the measurements.
        workload, total, limit, method, largest, status, reason: as in `FactoredStrategy`.
    """

    noise: ClassVar[Noise] = GAUSSIAN

    columns: tuple[Column, ...] = field(repr=False)
    averages: tuple[Dense, ...] = field(repr=False)
    parts: ListedParts | WholeParts = field(repr=False)

    sensitivity: float = field(default=1.0, init=False, repr=False)
    """How much one record can change the measurements, in the L2 norm."""

    def distinct_variances(self, table: int) -> Dense:
        """Of a table's answers, in the unit of `total`, in its shape."""
        factors = self._factors(table)
        found = np.zeros(self.workload.tables[table].shape)
        for part in self.parts.of(table, set(factors)):
            found += variances(part, self.columns, factors, self.averages)
        return found

    def _reproduced(self, table: int, records: NDArray[np.int64]) -> Iterator[Dense]:
        factors = self._factors(table)
        parts = list(self.parts.of(table, set(factors)))
        for record in records:
            found = np.zeros(self.workload.tables[table].shape)
            for part in parts:
                found += reproduced(part, self.columns, factors, self.averages, record)
            yield found

    def mean_variances(self) -> Dense:
        """For every table the mean of its answers' variances; those of a whole table are all alike."""
        if isinstance(self.parts, WholeParts):
            return cell_variances(self.parts.closure, self.parts.shares, len(self.workload.tables))
        return super().mean_variances()

    def worst_variances(self) -> Dense:
        """For every table the largest variance of its answers."""
        return self.mean_variances() if isinstance(self.parts, WholeParts) else super().worst_variances()

    @cached_property
    def _largest(self) -> float:
        return super()._largest if self.largest is None else self.largest[0]

    @property
    def shares(self) -> Dense:
        """What share of ρ every group of parts has; they add up to 1."""
        return self.parts.shares

    @property
    def measurements(self) -> int:
        """How many numbers are drawn."""
        return sum(self._rows(part) for part in self.parts)

    @cached_property
    def measure(self) -> Dense:
        """L as an array over all cells; refused where it does not fit into memory."""
        self._fits("measure", self.measurements, self.workload.cells)
        records = self._cells()
        return np.concatenate([measured(part, self.columns, records) for part in self.parts])

    @cached_property
    def reconstruct(self) -> Dense:
        """B as an array; refused where it does not fit into memory."""
        self._fits("reconstruct", self.workload.queries, self.measurements)
        found = []
        for t in range(len(self.workload.tables)):
            own = self._factors(t)
            factors = [own.get(i, np.ones((1, len(c.orbit)))) for i, c in enumerate(self.columns)]
            rows = []
            for part in self.parts:
                if part.tables is None or t in part.tables:
                    rows.append(recovered(part, self.columns, factors, self.averages))
                else:
                    rows.append(np.zeros((int(np.prod([len(F) for F in factors])), self._rows(part))))
            found.append(np.concatenate(rows, axis=1))
        return np.concatenate(found)

    def _rows(self, part: ResidualTerm) -> int:
        spreads = [int(self.columns[i].counts[o]) for piece in part.pieces for i, o in piece.spread]
        rows = 1
        for size in (*spreads, *(len(piece.measure) for piece in part.pieces)):
            rows *= size
        return rows

    def _cells(self) -> NDArray[np.int64]:
        return np.indices(self.workload.sizes).reshape(len(self.workload.sizes), -1).T.astype(np.int64)

    def _factors(self, table: int) -> dict[int, Dense]:
        """A table's factors, query × value that is told apart."""
        own = self.workload.factors_of(table)
        first = {i: np.unique(self.columns[i].value, return_index=True)[1] for i in own}
        return {i: factor.matrix[:, first[i]] for i, factor in own.items()}

    def __repr__(self) -> str:
        return (
            f"Strategy({self.method}, {self.privacy}: {self.workload.queries:,} queries from {len(self.parts):,} "
            f"parts, found / limit {self.total / self.limit if self.limit else 1.0:.5g})"
        )
