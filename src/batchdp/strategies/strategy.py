"""What every strategy says of itself; and what those over many columns share, never of the size of all cells."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, Indices, unravel
from batchdp.privacy import Budget, Noise, Privacy
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.shape import Shape
from batchdp.text import Outcome
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import Workload

if TYPE_CHECKING:
    from batchdp.strategies.pair import PairStrategy


TOLERANCE = 1e-9
"""The largest relative residual ‖W − B L‖_F / ‖W‖_F of a strategy that claims to reproduce its workload."""
MOST_ENTRIES = 200_000_000
"""Of `measure` and `reconstruct` as arrays, and of variances."""


class Strategy(ABC):
    """Measure L x with noise, answer B (L x + noise), with B L = W.

    A `PairStrategy` holds both matrices; a `ResidualStrategy` (Gaussian noise) and a `MarginalStrategy` (Laplace noise)
    are for batches over many columns, in factors. `Strategy(workload, L, B)` makes a `PairStrategy`.
    """

    workload: Workload
    """The batch that is answered."""
    method: str
    """What found it, for people to read."""
    status: Outcome
    """How the search ended; `status.advice` says what to try next."""
    reason: str
    """Why this kind of noise was chosen, where it was."""
    residual: float
    """‖W − B L‖_F / ‖W‖_F."""
    sensitivity: float
    """Δ: how much one record can change L x, in the norm that the noise is scaled to."""
    total: float
    """The expected squared error of all queries, each times its weight, in the unit of this module."""
    limit: float
    """No strategy of this kind has a smaller one; 0 where nothing is proven."""
    takes_records: ClassVar[bool] = False
    """Whether `answer` takes records as codes of their columns, and not counts of cells."""
    caveat: ClassVar[str] = ""
    """What has to be said beside the limit."""

    def __new__(cls, *given: Any, **named: Any) -> PairStrategy:
        """A pair, unless a subclass asks."""
        from batchdp.strategies.pair import PairStrategy

        return super().__new__(PairStrategy if cls is Strategy else cls)

    @property
    @abstractmethod
    def noise(self) -> Noise:
        """The kind of noise."""

    @property
    def privacy(self) -> Privacy:
        """The kind of privacy that this noise gives: "pure" takes an epsilon, "zcdp" a rho."""
        return self.noise.privacy

    @property
    @abstractmethod
    def measurements(self) -> int:
        """r, how many numbers are measured with noise."""

    @property
    @abstractmethod
    def measure(self) -> Dense:
        """L as an array, r × n; refused where it does not fit into memory."""

    @property
    @abstractmethod
    def reconstruct(self) -> Dense:
        """B as an array, m × r; refused where it does not fit into memory."""

    @property
    def shape(self) -> Shape | None:
        """The shape of the noise, where it has that of the batch; its errors are simulated."""
        return None

    @property
    def simulation_error(self) -> float:
        """The standard error of the expected squared error, relative to it: 0 where that has a closed form."""
        return 0.0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the strategy and its batch as one file without pickle, under a digest; `load_strategy` reads it."""
        import_module("batchdp.plans.strategy_file").save_strategy(self, path)  # files are above what they hold

    def expected_squared_error(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The total over all queries, each times its weight."""
        return self._at(self.total, epsilon, rho)

    def lower_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy of this kind, whatever its B and L, has a smaller expected squared error."""
        return self._at(self.limit, epsilon, rho)

    def certified(self, *, epsilon: float | None = None, rho: float | None = None) -> str:
        """The lower bound as a sentence: what it says, and what it does not."""
        budget = Budget.of(self.noise, epsilon=epsilon, rho=rho)
        bound, error = budget.variance(self.limit), budget.variance(self.total)
        ratio = f", {error / bound:.4g} times that" if bound > 0 else ""
        return (
            f"No pair B, L with B L = W, whatever its size, has a total expected squared error below {bound:.6g} "
            f"with {self.noise.name} noise at {budget}; this one has {error:.6g}{ratio}.{self.caveat}"
        )

    def variances(self, table: int | str, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of every answer of a table, by its number or name, as an array of the table's shape."""
        unit, t = self._at(1.0, epsilon, rho), self.number_of(table)
        one = self.workload.tables[t]
        if one.queries > MOST_ENTRIES:
            raise StrategyError(f"table {one.name!r} has {one.shape} answers, more than fit into memory")
        return np.asarray(unit * np.broadcast_to(self.distinct_variances(t), one.shape))

    def per_query_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of every answer, table after table; refused where they do not fit into memory."""
        self._at(1.0, epsilon, rho)
        if self.workload.queries > MOST_ENTRIES:
            raise StrategyError(
                f"the batch has {self.workload.queries:,} queries; ask for variances(table) of one table at a time"
            )
        tables = range(len(self.workload.tables))
        return np.concatenate([self.variances(t, epsilon=epsilon, rho=rho).reshape(-1) for t in tables])

    @abstractmethod
    def distinct_variances(self, table: int) -> Dense:
        """The variances of a table's answers, in the unit of `total`, to be broadcast to its shape."""

    def _table_variances(self) -> Dense | None:
        """For every table the variance that all of its answers have, in the unit of `total`; None where they differ."""
        return None

    def mean_variances(self) -> Dense:
        """For every table the mean of its answers' variances, in the unit of `total`."""
        if (alike := self._table_variances()) is not None:
            return alike
        # Of what is broadcast the mean stays as it is.
        return np.array([float(self.distinct_variances(t).mean()) for t in range(len(self.workload.tables))])

    def worst_variances(self) -> Dense:
        """For every table the largest variance of its answers, in the unit of `total`."""
        if (alike := self._table_variances()) is not None:
            return alike
        tables = range(len(self.workload.tables))
        return np.array([float(self.distinct_variances(t).max(initial=0.0)) for t in tables])

    def worst_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The largest variance of any answer, whatever its weight."""
        return self._at(float(self.worst_variances().max()), epsilon, rho)

    @abstractmethod
    def largest_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The worst query's variance, times its weight: what `objective="max"` minimises."""

    @abstractmethod
    def largest_variance_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy of this kind has a smaller largest variance."""

    def prove(self, objective: Objective) -> bool:
        """Solve for the lower bound of an objective, if it is not known; whether anything is known now that was not."""
        return False

    def number_of(self, table: int | str) -> int:
        """A table's number, by itself or by the table's name; others are refused."""
        tables = self.workload.tables
        if isinstance(table, str):
            found = next((t for t, one in enumerate(tables) if one.name == table), None)
            if found is None:
                raise StrategyError(f"table={table!r} is not a table of the batch; its first is {tables[0].name!r}")
            return found
        if not -len(tables) <= table < len(tables):
            raise StrategyError(f"table={table!r} is not one of {len(tables)} tables; count from 0")
        return range(len(tables))[table]

    def _at(self, squared: float, epsilon: float | None, rho: float | None) -> float:
        """A sum of squares at sensitivity 1 as a variance of this strategy's noise."""
        return Budget.of(self.noise, epsilon=epsilon, rho=rho).variance(squared)


MOST_CHECKED = 2_000_000
"""Answers of a table up to which it is looked at for the residual."""
TABLES_CHECKED, RECORDS_CHECKED = 10, 4
"""How many are looked at where there are more, for the residual."""
CELLS_CHECKED = 200
"""Cells up to which all are looked at."""


def every_place(workload: KroneckerWorkload, table: int) -> dict[int, Indices]:
    """For each of a table's columns the places of all its answers along it."""
    own = workload.tables[table]
    return dict(zip(workload.factors_of(table), unravel(np.arange(own.queries), own.shape), strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class FactoredStrategy(Strategy):
    """A strategy for a batch over many columns, in factors.

    Args:
        workload: the batch that is answered.
        total: the sum of squared errors, each times its table's weight, where noise on a measurement has variance 1
            and the sensitivity is 1.
        limit: no strategy with this noise has a smaller sum, in the same unit.
        method: what found it.
        largest: the largest variance (times its table's weight) and what none is below, where it was sought.
        status: how the search ended; `status.advice` says what to try next.
        reason: why this kind of noise was chosen, where it was.
    """

    noise: ClassVar[Noise]
    """The kind of noise, one for all strategies of a kind."""
    takes_records: ClassVar[bool] = True

    workload: KroneckerWorkload
    total: float
    limit: float
    method: str
    largest: tuple[float, float] | None = None
    status: Outcome = Outcome.CLOSED_FORM
    reason: str = field(default="")

    @cached_property
    def residual(self) -> float:  # type: ignore[override]  # nobody writes to a strategy
        """‖W − B L‖_F / ‖W‖_F, measured: on all records and tables of a small batch, else on some of both."""
        records, tables = self._records_checked(), self._tables_checked()
        missed = whole = 0.0
        for t in tables:
            for record, found in zip(records, self._reproduced(t, records), strict=True):
                asked = self.workload.answers_of(t, record)
                missed += float(np.square(asked - found).sum())
                whole += float(np.square(asked).sum())
        return float(np.sqrt(missed / whole)) if whole else 0.0

    @abstractmethod
    def _reproduced(self, table: int, records: Indices) -> Iterator[Dense]:
        """B L of a table for each record alone, as an array of the table's shape."""

    def _cells(self) -> Indices:
        return np.indices(self.workload.sizes).reshape(len(self.workload.sizes), -1).T.astype(np.int64)

    def _records_checked(self) -> Indices:
        if self.workload.cells <= CELLS_CHECKED:
            return self._cells()
        rng = np.random.default_rng(0)
        return np.column_stack([rng.integers(0, n, size=RECORDS_CHECKED) for n in self.workload.sizes]).astype(np.int64)

    def _tables_checked(self) -> list[int]:
        tables = self.workload.tables
        fitting = [t for t, one in enumerate(tables) if one.queries <= MOST_CHECKED]
        return fitting if self.workload.cells <= CELLS_CHECKED else fitting[:: -(-len(fitting) // TABLES_CHECKED)]

    @cached_property
    def reconstruct(self) -> Dense:
        """B as an array; refused where it does not fit into memory."""
        self._fits("reconstruct", self.workload.queries, self.measurements)
        found, first = np.zeros((self.workload.queries, self.measurements)), 0
        for t, table in enumerate(self.workload.tables):
            rows = slice(first, first := first + table.queries)
            for start, block in self._weights(t, every_place(self.workload, t), table.queries):
                found[rows, start : start + block.shape[1]] = block
        return found

    @abstractmethod
    def _weights(self, table: int, at: Mapping[int, Indices], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers of a table, by the places along its columns, make of some neighbouring measurements.

        The first of these, and answer × measurement.
        """

    def largest_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The worst query's variance, times its table's weight: what `objective="max"` minimises."""
        return self._at(self._largest, epsilon, rho)

    @cached_property
    def _largest(self) -> float:
        return float((self.worst_variances() * self.workload.weights).max())

    def largest_variance_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy with this noise has a smaller largest variance; better where `objective="max"` was asked for."""
        # The mean of the weighted variances is no more than the largest of them.
        mean = self.limit / float(self.workload.table_sizes().sum())
        return self._at(mean if self.largest is None else self.largest[1], epsilon, rho)

    def _fits(self, name: str, rows: int, columns: int) -> None:
        if rows * columns > MOST_ENTRIES:
            raise StrategyError(
                f"{name} would be {rows:,} × {columns:.3g}, {rows * columns * 8 / 2**30:.3g} GiB as an array; "
                "look at what is measured instead, which is in factors"
            )
