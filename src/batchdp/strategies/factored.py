"""What strategies over many columns share: nothing here has the size of all cells or queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import StrategyError
from batchdp.outcome import Outcome
from batchdp.privacy import Budget, Noise
from batchdp.strategies.strategy import MOST_ENTRIES, Strategy
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_CHECKED = 2_000_000
"""Answers of a table up to which it is looked at for the residual."""
TABLES_CHECKED, RECORDS_CHECKED = 10, 4
"""How many are looked at where there are more, for the residual."""
CELLS_CHECKED = 200
"""Cells up to which all are looked at."""


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
    caveat: ClassVar[str] = ""
    """What has to be said beside the limit."""

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

    def certified(self, *, epsilon: float | None = None, rho: float | None = None) -> str:
        """The lower bound as a sentence."""
        budget = Budget.of(self.noise, epsilon=epsilon, rho=rho)
        bound, error = budget.variance(self.limit), budget.variance(self.total)
        ratio = f", {error / bound:.4g} times that" if bound > 0 else ""
        return (
            f"No pair B, L with B L = W, whatever its size, has a total expected squared error below {bound:.6g} "
            f"with {self.noise.name} noise at {budget}; this one has {error:.6g}{ratio}.{self.caveat}"
        )

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
