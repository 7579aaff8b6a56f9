"""What every strategy over many columns says about itself, whatever it measures and with whichever noise.

Nothing here has the size of all cells or queries: errors and limits are sums, variances come table by table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import StrategyError
from batchdp.outcome import Outcome
from batchdp.privacy import Budget, Noise, Privacy
from batchdp.workloads.structure import Products

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_ENTRIES = 200_000_000
"""Of `measure` and `reconstruct` as arrays, and of the variances of one table."""
MOST_CHECKED = 2_000_000
"""Answers of a table up to which it is looked at for the residual."""
TABLES_CHECKED, RECORDS_CHECKED = 10, 4
"""How many are looked at where there are more, for the residual."""
CELLS_CHECKED = 200
"""Cells up to which all are looked at."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OverTables:
    """A strategy for a batch over many columns.

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
    caveat: ClassVar[str] = ""
    """What has to be said beside the limit."""

    workload: Products
    total: float
    limit: float
    method: str
    largest: tuple[float, float] | None = None
    status: Outcome = Outcome.CLOSED_FORM
    reason: str = field(default="")

    @property
    def privacy(self) -> Privacy:
        """The kind of privacy that this noise gives."""
        return self.noise.privacy

    @cached_property
    def residual(self) -> float:
        """‖W − B L‖_F / ‖W‖_F, measured: on all records and tables of a small batch, else on some of both."""
        records, tables = self._records_checked(), self._tables_checked()
        missed = whole = 0.0
        for t in tables:
            for record, found in zip(records, self._reproduced(t, records), strict=True):
                asked = self.workload.answers_of(t, record)
                missed += float(np.square(asked - found).sum())
                whole += float(np.square(asked).sum())
        return float(np.sqrt(missed / whole)) if whole else 0.0

    def _reproduced(self, table: int, records: Indices) -> Iterator[Dense]:
        """B L of a table for each record alone, as an array of the table's shape."""
        raise StrategyError(f"{type(self).__name__} does not say what it reproduces")

    def _records_checked(self) -> Indices:
        sizes = self.workload.sizes
        if self.workload.cells <= CELLS_CHECKED:
            return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64)
        rng = np.random.default_rng(0)
        return np.column_stack([rng.integers(0, n, size=RECORDS_CHECKED) for n in sizes]).astype(np.int64)

    def _tables_checked(self) -> list[int]:
        tables = self.workload.tables
        fitting = [t for t, one in enumerate(tables) if one.queries <= MOST_CHECKED]
        return fitting if self.workload.cells <= CELLS_CHECKED else fitting[:: -(-len(fitting) // TABLES_CHECKED)]

    def expected_squared_error(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The total over all queries, each times its table's weight."""
        return self._at(self.total, epsilon, rho)

    def lower_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy with this noise, whatever its B and L, has a smaller expected squared error."""
        return self._at(self.limit, epsilon, rho)

    def certified(self, *, epsilon: float | None = None, rho: float | None = None) -> str:
        """The lower bound as a sentence."""
        budget = Budget.of(self.noise, epsilon=epsilon, rho=rho)
        bound, error = budget.variance(self.limit), budget.variance(self.total)
        ratio = f", {error / bound:.4g} times that" if bound > 0 else ""
        return (
            f"No pair B, L with B L = W, whatever its size, has a total expected squared error below {bound:.6g} "
            f"with {self.noise.name} noise at {budget}; this one has {error:.6g}{ratio}.{self.caveat}"
        )

    def variances(self, table: int | str, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of every answer of a table, by its number or name, as an array of the table's shape."""
        unit = self._at(1.0, epsilon, rho)
        t = self._number(table)
        shape = self.workload.tables[t].shape
        if float(np.prod([float(n) for n in shape])) > MOST_ENTRIES:
            raise StrategyError(
                f"table {self.workload.tables[t].name!r} has {shape} answers, more than fit into memory"
            )
        return np.asarray(unit * self._variances(t))

    def distinct_variances(self, table: int) -> Dense:
        """Of a table's answers, in the unit of `total`, to be broadcast to its shape."""
        return self._variances(table)

    def _variances(self, table: int) -> Dense:
        """Of a table's answers, in the unit of `total`."""
        raise StrategyError(f"{type(self).__name__} does not say its variances")

    def worst_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The largest variance of any answer, whatever its table's weight."""
        return self._worst_variance() * self._at(1.0, epsilon, rho)

    def _worst_variance(self) -> float:
        """Of any answer, in the unit of `total`."""
        raise StrategyError(f"{type(self).__name__} does not say its variances")

    def largest_variance_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy with this noise has a smaller largest variance; better where `objective="max"` was asked for."""
        unit = self._at(1.0, epsilon, rho)
        if self.largest is None:
            # The mean of the weighted variances is no more than the largest of them.
            return self.limit / float(self.workload.table_sizes().sum()) * unit
        return self.largest[1] * unit

    def per_query_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of every answer, table after table; refused where they do not fit into memory."""
        self._at(1.0, epsilon, rho)
        if self.workload.queries > MOST_ENTRIES:
            raise StrategyError(
                f"the batch has {self.workload.queries:,} queries; ask for variances(table) of one table at a time"
            )
        tables = range(len(self.workload.tables))
        return np.concatenate([self.variances(t, epsilon=epsilon, rho=rho).reshape(-1) for t in tables])

    def _at(self, squared: float, epsilon: float | None, rho: float | None) -> float:
        """A sum of squares at sensitivity 1 as a variance of this noise."""
        return Budget.of(self.noise, epsilon=epsilon, rho=rho).variance(squared)

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
