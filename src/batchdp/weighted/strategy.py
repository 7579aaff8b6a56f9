"""A Laplace strategy over many columns: which tables are measured, with what weights.

Laplace noise of scale Δ/ε on every measurement is ε-differentially private when one record is added or removed, Δ
being `sensitivity`. A table is reconstructed, by least squares, from the measured tables of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.components.whole import closure, is_whole
from batchdp.errors import StrategyError
from batchdp.outcome import Outcome
from batchdp.privacy import LAPLACE, Budget, Noise, Privacy
from batchdp.weighted.measured import Group, Measured, Results
from batchdp.weighted.problem import asked_of_whole
from batchdp.workloads.structure import Products

Dense = NDArray[np.float64]

MOST_ENTRIES = 200_000_000
"""Of `measure` and `reconstruct` as arrays, and of the variances of one table."""


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """A Laplace strategy for a batch over many columns.

    Args:
        workload: the batch that is answered.
        groups: the measured tables, by the asked tables that they serve.
        sensitivity: Δ, what one record can change of all measurements, in the L1 norm.
        total: the sum of squared errors, each times its table's weight, where noise on a measurement has variance 1
            and Δ is 1: at ε = 1 twice that.
        limit: no strategy has a smaller sum, in the same unit.
        method: what found it.
        largest: the largest variance (times its table's weight) and what none is below, where it was sought.
        status: how the search ended; `status.advice` says what to try next.
        reason: why this kind of noise was chosen, where it was.
    """

    workload: Products
    groups: tuple[Group | Results, ...] = field(repr=False)
    sensitivity: float
    total: float
    limit: float
    method: str
    largest: tuple[float, float] | None = None
    status: Outcome = Outcome.BEST_OF_STARTS
    reason: str = ""

    @property
    def noise(self) -> Noise:
        """The kind of noise: Laplace, always."""
        return LAPLACE

    @property
    def privacy(self) -> Privacy:
        """The kind of privacy that this noise gives."""
        return self.noise.privacy

    @property
    def residual(self) -> float:
        """‖W − B L‖_F / ‖W‖_F: least squares gives back what is measured exactly."""
        return 0.0

    def expected_squared_error(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The total over all queries, each times its table's weight."""
        return _at(self.total, epsilon, rho)

    def lower_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No Laplace strategy, whatever its B and L, has a smaller expected squared error; loose over many tables."""
        return _at(self.limit, epsilon, rho)

    def certified(self, *, epsilon: float | None = None, rho: float | None = None) -> str:
        """The lower bound as a sentence."""
        budget = Budget.of(LAPLACE, epsilon=epsilon, rho=rho)
        bound, error = budget.variance(self.limit), budget.variance(self.total)
        ratio = f", {error / bound:.4g} times that" if bound > 0 else ""
        return (
            f"No pair B, L with B L = W, whatever its size, has a total expected squared error below {bound:.6g} "
            f"with {self.noise.name} noise at {budget}; this one has {error:.6g}{ratio}. For {self.noise.name} noise "
            "over many tables this limit is loose: the best possible may be far above it."
        )

    def variances(self, table: int | str, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of every answer of a table, by its number or name, as an array of the table's shape."""
        unit = _at(self.sensitivity**2, epsilon, rho)
        t = self._number(table)
        shape = self.workload.tables[t].shape
        if float(np.prod([float(n) for n in shape])) > MOST_ENTRIES:
            raise StrategyError(
                f"table {self.workload.tables[t].name!r} has {shape} answers, more than fit into memory"
            )
        return np.asarray(unit * self._group_of(t).variances(self.workload, t))

    def largest_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The worst query's variance, times its table's weight: what `objective="max"` minimises."""
        return self._largest * _at(1.0, epsilon, rho)

    @cached_property
    def _largest(self) -> float:
        worst = self.worst_variances()
        return float((worst * self.workload.weights).max())

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
        half = LAPLACE.reference.arguments
        unit = LAPLACE.reference.variance(1.0)
        every = range(len(self.workload.tables))
        return np.array([float(self.variances(t, **half).max()) / unit for t in every])

    def largest_variance_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No Laplace strategy has a smaller largest variance; better where `objective="max"` was asked for."""
        unit = _at(1.0, epsilon, rho)
        if self.largest is None:
            # The mean of the weighted variances is no more than the largest of them.
            return self.limit / float(self.workload.table_sizes().sum()) * unit
        return self.largest[1] * unit

    def per_query_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of every answer, table after table; refused where they do not fit into memory."""
        Budget.of(LAPLACE, epsilon=epsilon, rho=rho)
        if self.workload.queries > MOST_ENTRIES:
            raise StrategyError(
                f"the batch has {self.workload.queries:,} queries; ask for variances(table) of one table at a time"
            )
        tables = range(len(self.workload.tables))
        return np.concatenate([self.variances(t, epsilon=epsilon).reshape(-1) for t in tables])

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

    def _number(self, table: int | str) -> int:
        tables: Sequence[Any] = self.workload.tables
        if isinstance(table, str):
            found = [t for t, one in enumerate(tables) if one.name == table]
            if not found:
                raise StrategyError(f"table={table!r} is not a table of the batch; its first is {tables[0].name!r}")
            return found[0]
        if not -len(tables) <= table < len(tables):
            raise StrategyError(f"table={table!r} is not one of {len(tables)} tables; count from 0")
        return range(len(tables))[table]

    def _fits(self, name: str, rows: int, columns: int) -> None:
        if rows * columns > MOST_ENTRIES:
            raise StrategyError(
                f"{name} would be {rows:,} × {columns:.3g}, {rows * columns * 8 / 2**30:.3g} GiB as an array; "
                "look at what is measured instead, which is in factors"
            )

    def __repr__(self) -> str:
        tables = sum(map(len, self.groups))
        return (
            f"WeightedTables({self.method}, {self.privacy}: {self.workload.queries:,} queries from {tables:,} measured "
            f"tables, found / limit {self.total / self.limit if self.limit else 1.0:.5g})"
        )


def _at(squared: float, epsilon: float | None, rho: float | None) -> float:
    """A sum of squares at sensitivity 1 as a variance of Laplace noise: times 2 / ε²."""
    return Budget.of(LAPLACE, epsilon=epsilon, rho=rho).variance(squared)
