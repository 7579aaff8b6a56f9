"""Every statement beside answering it by itself: the one definition of what sharing a strategy gains.

By itself means: its queries alone, with an equal share of the budget, by noise on data or on results, whichever is
better for it. The gain is how many times smaller the error is than that. The parts of a derived answer are no
statements: all of them together have the share of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense, column_norms, plain, row_squares
from batchdp.plans.planned import Plan
from batchdp.plans.statements import Statement
from batchdp.plans.tabled import TablePlan
from batchdp.privacy import Budget, Noise
from batchdp.workloads.workload import MatrixWorkload

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
    gain: float
    """How many times smaller the one is than the other; not a number where there is no noise."""
    share: float = 1.0
    """Of one statement; the parts of a derived answer share it."""
    part_of: str = ""
    """The derived answer that it is a part of."""

    @property
    def is_worse(self) -> bool:
        """Whether sharing has made it worse."""
        return self.standard_error > WORSE * self.by_itself

    @property
    def gained(self) -> str:
        """The gain, for people."""
        return "–" if math.isnan(self.gain) else f"{self.gain:.2f}×"


def asked_for(statements: Sequence[ExpectedStatement]) -> int:
    """How many statements there are; the parts of a derived answer are one."""
    return round(sum(one.share for one in statements))


def explained(statements: Sequence[ExpectedStatement], kind: str = "statement") -> str:
    """What "by itself" and "gain" mean, in words."""
    count = asked_for(statements)
    share = "the whole budget" if count == 1 else f"1/{count:,} of the budget"
    apart = "; a derived answer part by part, each alone with an equal part of that" * any(
        one.part_of for one in statements
    )
    return (
        f"By itself: each {kind} alone with {share}, by noise on data or on results, whichever is better{apart}. "
        "Gain: how many times smaller its error is than that."
    )


def beside(plan: Plan, budget: Budget) -> tuple[ExpectedStatement, ...]:
    """Every statement of a plan at this budget."""
    variances = plan.standard_errors(**budget.arguments) ** 2
    made, times = [], dict.fromkeys((statement.name for statement in plan.statements), 0)
    for statement, alone in _alone(plan, budget):
        times[statement.name] += 1
        again = f" ({times[statement.name]})" if times[statement.name] > 1 else ""
        error = float(np.sqrt(np.mean(variances[list(statement.queries)])))
        by_itself = float(np.sqrt(np.mean(alone)))
        size, named = len(statement.queries), statement.name + again
        gain = _gain(by_itself, error)
        made.append(ExpectedStatement(named, size, error, by_itself, gain, statement.share, statement.of))
    return tuple(made)


def queries_alone(plan: Plan, budget: Budget) -> Dense:
    """The standard error of every query where the statement that asks for it is answered by itself."""
    found = np.full(len(plan.names), np.nan)
    for statement, alone in _alone(plan, budget):
        own = np.array(statement.queries)
        found[own] = np.where(np.isnan(found[own]), np.sqrt(alone), found[own])
    return found


def tables_beside(plan: TablePlan, budget: Budget) -> tuple[ExpectedStatement, ...]:
    """Every table of a plan of tables at this budget."""
    errors, batch, noise = plan.standard_errors(**budget.arguments), plan.workload, plan.strategy.noise
    share = float(budget) / len(plan.tables)
    # On its own results a record changes a product of its columns' norms; on its own data a query sums over the cells.
    changes = batch.products_of(
        lambda factor: (
            1.0 if factor.given is None else float(column_norms(sparse.csr_array(factor.given), noise.norm).max())
        )
    )
    cells = batch.products_of(
        lambda factor: 1.0 if factor.given is None else float(np.square(factor.given).sum()) / factor.rows
    )
    alone = [plan.factor**2 * noise.variance(float(min(c**2, d)), share) for c, d in zip(changes, cells, strict=True)]
    rows = zip(plan.tables, errors.tolist(), np.sqrt(alone).tolist(), strict=True)
    return tuple(
        ExpectedStatement(table.name, table.queries, error, by_itself, _gain(by_itself, error))
        for table, error, by_itself in rows
    )


def _gain(by_itself: float, error: float) -> float:
    """Not a number where a query can count nothing, and has rounding errors only."""
    return by_itself / error if error > 0 and by_itself > 0 else math.nan


def _alone(plan: Plan, budget: Budget) -> Iterator[tuple[Statement, Dense]]:
    """Every statement with the variances of its queries by itself, at its share of this budget."""
    noise, workload = plan.strategy.noise, plan.asked_workload
    matrix = sparse.csr_array(plain(workload.matrix))
    count = sum(statement.share for statement in plan.statements)
    for statement in plan.statements:
        share = float(budget) * statement.share / count
        squares = _squared_scales(statement, workload, matrix, noise)
        yield statement, plan.factor**2 * noise.variance(1.0, share) * squares


def _squared_scales(statement: Statement, workload: MatrixWorkload, matrix: sparse.csr_array, noise: Noise) -> Dense:
    """Δ² ‖B_i‖² of its queries for the better of the two simple mechanisms on these alone."""
    W = sparse.csr_array(matrix[list(statement.queries)])
    largest = workload.largest_by_block(column_norms(W, noise.norm))
    together = max(noise.together(largest[list(met)], at_right_angles=True) for met in workload.meetings)
    touched = workload.largest_by_block(column_norms(W, 1)) > 0
    cells = max(noise.together(1.0 * touched[list(met)], at_right_angles=True) for met in workload.meetings)
    on_data, on_results = cells**2 * _on_data(W), np.full(W.shape[0], together**2)
    return min(on_data, on_results, key=lambda squares: float(np.mean(squares)))


def _on_data(W: sparse.csr_array) -> Dense:
    """‖W_i‖² with columns that are alike taken as one."""
    used = sparse.csc_array(W)[:, np.flatnonzero(column_norms(W, 1))]
    if used.shape[0] * used.shape[1] > MOST_MERGED:
        return row_squares(W)
    return np.asarray(np.square(np.unique(used.toarray(), axis=1)).sum(axis=1))
