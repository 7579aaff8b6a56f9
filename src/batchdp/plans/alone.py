"""Every statement beside answering it by itself: whether sharing one strategy has made it worse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense, column_norms, plain, row_squares
from batchdp.plans.planned import Plan
from batchdp.plans.statements import Statement
from batchdp.plans.tabled import TablePlan
from batchdp.privacy import Budget, Noise
from batchdp.workloads.workload import Workload

WORSE = 1.005
"""How many times as large an error is called worse: less is rounding of the search."""
MOST_MERGED = 5_000_000
"""Entries of a statement's matrix in which columns that are alike are looked for."""


@dataclass(frozen=True)
class ExpectedStatement:
    """A statement's expected error, and that of answering it by itself with an equal share of the budget."""

    name: str
    queries: int
    standard_error: float
    """The root of the mean square over its queries."""
    by_itself: float
    """The same for noise on its own data or on its own results, whichever is better."""

    @property
    def is_worse(self) -> bool:
        """Whether sharing has made it worse."""
        return self.standard_error > WORSE * self.by_itself


def beside(plan: Plan, budget: Budget) -> tuple[ExpectedStatement, ...]:
    """Every statement of a plan at this budget."""
    variances = plan.standard_errors(**budget.arguments) ** 2
    share = float(budget) / len(plan.statements)
    noise, workload = plan.strategy.noise, plan.asked_workload
    matrix = sparse.csr_array(plain(workload.matrix))
    made, times = [], dict.fromkeys((statement.name for statement in plan.statements), 0)
    for statement in plan.statements:
        own = list(statement.queries)
        alone = plan.factor**2 * noise.variance(_squared_scale(statement, workload, matrix, noise), share)
        times[statement.name] += 1
        again = f" ({times[statement.name]})" if times[statement.name] > 1 else ""
        error = float(np.sqrt(np.mean(variances[own])))
        made.append(ExpectedStatement(statement.name + again, len(own), error, float(np.sqrt(alone))))
    return tuple(made)


def tables_beside(plan: TablePlan, budget: Budget) -> tuple[ExpectedStatement, ...]:
    """Every table of a plan of tables at this budget."""
    errors, batch, noise = plan.standard_errors(**budget.arguments), plan.workload, plan.strategy.noise
    share = float(budget) / len(plan.tables)
    # On its own results a record changes a product of its columns' norms; on its own data a query sums over the cells.
    changes = batch.products_of(lambda factor: float(column_norms(sparse.csr_array(factor.matrix), noise.norm).max()))
    cells = batch.products_of(lambda factor: float(np.square(factor.matrix).sum()) / factor.rows)
    alone = [plan.factor**2 * noise.variance(float(min(c**2, d)), share) for c, d in zip(changes, cells, strict=True)]
    rows = zip(plan.tables, errors.tolist(), np.sqrt(alone).tolist(), strict=True)
    return tuple(ExpectedStatement(table.name, table.queries, error, own) for table, error, own in rows)


def _squared_scale(statement: Statement, workload: Workload, matrix: sparse.csr_array, noise: Noise) -> float:
    """The mean over its queries of Δ² ‖B_i‖² for the better of the two simple mechanisms on these queries alone."""
    W = sparse.csr_array(matrix[list(statement.queries)])
    largest = workload.largest_by_block(column_norms(W, noise.norm))
    together = max(noise.together(largest[list(met)], at_right_angles=True) for met in workload.meetings)
    touched = workload.largest_by_block(column_norms(W, 1)) > 0
    cells = max(noise.together(1.0 * touched[list(met)], at_right_angles=True) for met in workload.meetings)
    return min(together**2, cells**2 * float(np.mean(_on_data(W))))


def _on_data(W: sparse.csr_array) -> Dense:
    """‖W_i‖² with columns that are alike taken as one."""
    used = sparse.csc_array(W)[:, np.flatnonzero(column_norms(W, 1))]
    if used.shape[0] * used.shape[1] > MOST_MERGED:
        return row_squares(W)
    return np.asarray(np.square(np.unique(used.toarray(), axis=1)).sum(axis=1))
