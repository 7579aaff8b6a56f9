"""A plan of tables: the same as a `Plan` for batches over many columns, with arrays for tables and none for answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from batchdp.asking import TableBatch
from batchdp.asking.marginals import Orders
from batchdp.components.strategy import ResidualStrategy, WholeParts
from batchdp.components.whole import cell_variances
from batchdp.domain import Counted, Domain
from batchdp.domain.counted import what_is_counted
from batchdp.errors import PlanError
from batchdp.excerpt import LISTED
from batchdp.linalg.matrix import Dense
from batchdp.markup import summary
from batchdp.plans.options import Options
from batchdp.plans.planned import PLANNER
from batchdp.privacy import Budget, Privacy
from batchdp.terminal import sanitise
from batchdp.weighted.strategy import MarginalStrategy
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import MatrixWorkload, Table


@dataclass(frozen=True, eq=False)
class TablePlan:
    """Tables over a declared table's columns, and the strategy that answers them.

    Args:
        sql: the statements as they were written, None where there are none.
        marginals: how many columns the domain's own tables have, None where none are asked.
        domain: what is public about the table.
        batch: the tables, what is counted for them, and what their rows are called.
        strategy: how the counts become answers.
        options: how the strategy was looked for.
        planner: the version of batchdp that looked for it.
    """

    sql: str | None = field(repr=False)
    marginals: Orders | None
    domain: Domain
    batch: TableBatch = field(repr=False)
    strategy: ResidualStrategy | MarginalStrategy
    options: Options = Options()  # noqa: RUF009  # which is frozen
    planner: str = field(default=PLANNER, repr=False)

    def __post_init__(self) -> None:
        # A record is counted by the batch's columns; one with fewer values would fail on a record that has another.
        if not self.strategy.workload.asks_as(self.batch.workload):
            raise PlanError(
                "strategy: it answers other tables than the plan asks for, over other columns or by other names; "
                "optimise plan.workload itself"
            )

    @property
    def workload(self) -> KroneckerWorkload:
        """The batch in its factors."""
        return self.batch.workload

    @property
    def tables(self) -> Sequence[Table]:
        """The tables, each with its name, the numbers of its columns and its shape."""
        return self.workload.tables

    @property
    def column_names(self) -> tuple[str, ...]:
        """Of the columns that tables look at."""
        return tuple(column.name for column in self.batch.columns)

    @cached_property
    def counted(self) -> Counted:
        """What is counted: which rows will be left out, and which values will count as others."""
        asked = {self.batch.atoms[i].column for column in self.batch.columns for i in column.atoms}
        return what_is_counted(self.domain, asked, own_rows=self.marginals is not None)

    @property
    def asked_workload(self) -> MatrixWorkload:
        """The batch as a matrix, to compare methods on; refused with its size where that is too much."""
        return self.workload.workload()

    @property
    def privacy(self) -> Privacy:
        """The kind of noise: "pure" takes an epsilon, "zcdp" a rho."""
        return self.strategy.privacy

    @property
    def factor(self) -> int:
        """How many times a single row's sensitivity two neighbouring tables differ by."""
        privacy = self.domain.privacy
        return privacy.rows_per_unit * (2 if privacy.neighbours == "replace" else 1)

    def standard_errors(
        self, table: int | str | None = None, *, epsilon: float | None = None, rho: float | None = None
    ) -> Dense:
        """Of a table's answers at this budget, in its shape; of every table the typical one, if none is named."""
        if table is not None:
            return np.asarray(self.factor * np.sqrt(self.strategy.variances(table, epsilon=epsilon, rho=rho)))
        unit = Budget.of(self.strategy.noise, epsilon=epsilon, rho=rho).variance(1.0)
        return np.asarray(self.factor * np.sqrt(unit * self._mean_variances))

    @cached_property
    def _mean_variances(self) -> Dense:
        """For every table the mean of its answers' variances, in the strategy's own unit."""
        strategy, count = self.strategy, len(self.tables)
        if isinstance(strategy, ResidualStrategy) and isinstance(strategy.parts, WholeParts):
            return cell_variances(strategy.parts.closure, strategy.parts.shares, count)
        if isinstance(strategy, MarginalStrategy) and all(
            f.given is None for own in self.workload.factors for f in own
        ):
            return strategy.worst_variances()  # a whole table has one for all of its cells
        budget = strategy.noise.reference
        sums = [float(strategy.variances(t, **budget.arguments).mean()) for t in range(count)]
        return np.array(sums) / budget.variance(1.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without data and without pickle, under a digest; readable by `load_plan`."""
        from batchdp.plans.tabled_file import save_table_plan

        save_table_plan(self, path)

    def __repr__(self) -> str:
        return (
            f"TablePlan({self.workload.queries:,} answers in {len(self.tables):,} tables over "
            f"{sanitise(repr(self.domain.table))}, {self.strategy.method}, {self.privacy})"
        )

    def _repr_html_(self) -> str:
        budget = Budget(self.strategy.noise, 1)
        errors = self.standard_errors(**budget.arguments)
        facts = {
            "table": self.domain.table,
            "answers": f"{self.workload.queries:,}",
            "tables": f"{len(self.tables):,}",
            "method": self.strategy.method,
            "residual": f"{self.strategy.residual:.1e}",
        }
        said = self.counted.sentences(self.domain.privacy.max_rows)
        facts |= {"what is counted": " ".join(said)} if said else {}
        shown = self.tables[:LISTED]
        return summary(
            "Plan of tables",
            facts,
            headings=("table", "answers", f"typical standard error at {budget}"),
            rows=[(t.name, f"{t.queries:,}", f"{error:,.4g}") for t, error in zip(shown, errors, strict=False)],
            more=max(0, len(self.tables) - LISTED),
        )
