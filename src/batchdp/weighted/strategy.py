"""A Laplace strategy over many columns: which tables are measured, with what weights.

Laplace noise of scale Δ/ε on every measurement is ε-differentially private when one record is added or removed, Δ
being `sensitivity`. A table is reconstructed, by least squares, from the measured tables of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from batchdp.components.whole import closure, is_whole
from batchdp.outcome import Outcome
from batchdp.privacy import LAPLACE, Noise
from batchdp.strategies.factored import FactoredStrategy
from batchdp.weighted.measured import Group, Measured, Results
from batchdp.weighted.problem import asked_of_whole

Dense = NDArray[np.float64]


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

    groups: tuple[Group | Results, ...] = field(repr=False)
    sensitivity: float
    status: Outcome = Outcome.BEST_OF_STARTS

    def distinct_variances(self, table: int) -> Dense:
        """Of a table's answers, in the unit of `total`, to be broadcast to its shape."""
        return np.asarray(self.sensitivity**2 * self._group_of(table).variances(self.workload, table))

    def _reproduced(self, table: int, records: NDArray[np.int64]) -> Iterator[Dense]:
        return self._group_of(table).reproduced(self.workload, table, records)

    def mean_variances(self) -> Dense:
        """For every table the mean of its answers' variances; those of a whole table are all alike."""
        whole = all(factor.given is None for own in self.workload.factors for factor in own)
        return self.worst_variances() if whole else super().mean_variances()

    def worst_variances(self) -> Dense:
        """For every table the largest variance of its answers, in the unit of `total`."""
        group = self.groups[0]
        if isinstance(group, Group) and is_whole(self.workload) and len(self.groups) == 1:
            found, asked = closure(self.workload), asked_of_whole(self.workload)
            parts = found.freedom / group.eigenvalues(asked.needed)
            tables = found.down(parts, 1, len(self.workload.tables))
            return np.asarray(self.sensitivity**2 * tables / self.workload.table_sizes())
        if isinstance(group, Results):  # each answer has the same
            return np.full(len(self.workload.tables), (self.sensitivity / group.scale) ** 2)
        return np.array([float(self.distinct_variances(t).max()) for t in range(len(self.workload.tables))])

    @property
    def measured(self) -> Iterator[Measured]:
        """Every measured table with its weight θ; the weights add up to at least the sensitivity."""
        for number, group in enumerate(self.groups):
            yield from group.listed(number)

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
        for t in range(len(self.workload.tables)):
            own = self._group_of(t)
            rows = self.workload.tables[t].queries
            found.append(
                np.concatenate(
                    [
                        group.reconstruct(self.workload, t) if group is own else np.zeros((rows, group.rows()))
                        for group in self.groups
                    ],
                    axis=1,
                )
            )
        return np.concatenate(found)

    def _group_of(self, table: int) -> Group | Results:
        return next(group for group in self.groups if group.serves is None or table in group.serves)

    def __repr__(self) -> str:
        tables = sum(map(len, self.groups))
        return (
            f"Strategy({self.method}, {self.privacy}: {self.workload.queries:,} queries from {tables:,} measured "
            f"tables, found / limit {self.total / self.limit if self.limit else 1.0:.5g})"
        )
