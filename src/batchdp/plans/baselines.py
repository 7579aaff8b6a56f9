"""A plan beside the simple mechanisms: the whole batch by either of them, and every statement by itself.

By itself is the one definition of what sharing a strategy gains. It means: the statement's queries alone, with an equal
share of the budget, by noise on data or on results, whichever is better for it. The gain is how many times smaller the
error is than that. The parts of a derived answer are no statements: all of them together have the share of one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense, column_norms, plain, row_squares
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.optimizer.marginal.problem import largest_change
from batchdp.optimizer.residual.splits import Batch
from batchdp.plans.criteria import Statement, describe_parts
from batchdp.plans.planned import Plan
from batchdp.privacy import LAPLACE, Budget, Noise
from batchdp.workloads.kronecker import Factor, KroneckerWorkload

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
    adds: str = ""
    """What it adds up, where its name does not say that."""

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


def gained_in_all(statements: Sequence[ExpectedStatement]) -> list[str]:
    """From the least to the largest gain, in a sentence; nothing for a single statement."""
    gains = [one.gain for one in statements if not math.isnan(one.gain)]
    if len(statements) < 2 or not gains:
        return []
    ends = sorted({f"{min(gains):.2f}", f"{max(gains):.2f}"}, key=float)
    times = " to ".join(ends)
    return [f"Standard errors are {times} times smaller than those of every statement by itself; --verbose has each."]


def explained(statements: Sequence[ExpectedStatement], replaced: int = 0) -> str:
    """What "by itself" and "gain" mean, in words.

    Args:
        statements: the plan's.
        replaced: how many rows a replaced unit counts as; 0 where units are added and removed.
    """
    count = asked_for(statements)
    share = "the whole budget" if count == 1 else f"1/{count:,} of the budget"
    apart = "; a derived answer part by part, each alone with an equal part of that" * any(
        one.part_of for one in statements
    )
    text = (
        f"By itself: each statement alone with {share}, by noise on data or on results, whichever is better, with what "
        f"a unit can change bounded as in the plan{apart}. Gain: how many times smaller its error is than that."
    )
    if replaced:
        text += (
            f" A replaced unit counts as one removed and one added, {replaced:,} rows: errors, limits and gains are "
            "for that, and a statement alone may need less noise, a total half as much."
        )
    return f"{text} {describe_parts((one.name, one.adds) for one in statements)}".rstrip()


def beside(plan: Plan, budget: Budget) -> tuple[ExpectedStatement, ...]:
    """Every statement of a plan at this budget."""
    variances, answers = plan.typical_errors(**budget.arguments) ** 2, plan.workload.table_sizes()
    made, times = [], Counter[str]()
    for one, alone in _alone(plan, budget):
        times[one.name] += 1
        again = f" ({times[one.name]})" if times[one.name] > 1 else ""
        own = list(one.queries)
        error, by_itself = (float(np.sqrt(np.average(each, weights=answers[own]))) for each in (variances[own], alone))
        size = round(float(answers[own].sum()))
        # Not a number where a query can count nothing, and has rounding errors only.
        gain = by_itself / error if error > 0 and by_itself > 0 else math.nan
        made.append(ExpectedStatement(one.name + again, size, error, by_itself, gain, one.share, one.of, one.adds))
    return tuple(made)


def tables_alone(plan: Plan, budget: Budget) -> Dense:
    """The typical standard error of every table where the statement that asks for it is answered by itself."""
    found = np.full(len(plan.tables), np.nan)
    for statement, alone in _alone(plan, budget):
        own = np.array(statement.queries)
        found[own] = np.where(np.isnan(found[own]), np.sqrt(alone), found[own])
    return found


def _alone(plan: Plan, budget: Budget) -> Iterator[tuple[Statement, Dense]]:
    """Every statement with the mean variances of its tables by itself, at its share of this budget."""
    noise = plan.strategy.noise
    squared_scales = by_itself(plan.asked_workload, noise)
    count = sum(statement.share for statement in plan.statements)
    for statement in plan.statements:
        share = float(budget) * statement.share / count
        yield statement, plan.factor**2 * noise.variance(1.0, share) * squared_scales(statement)


@singledispatch
def by_itself(workload: Any, noise: Noise) -> Callable[[Statement], Dense]:
    """From a statement to Δ² ‖B_i‖², the mean of each of its tables, for the better of the simple mechanisms on it."""
    matrix = sparse.csr_array(plain(workload.matrix))

    def squared_scales(statement: Statement) -> Dense:
        W = sparse.csr_array(matrix[list(statement.queries)])
        largest = workload.largest_by_block(column_norms(W, noise.norm))
        together = max(noise.together(largest[list(met)], at_right_angles=True) for met in workload.meetings)
        touched = workload.largest_by_block(column_norms(W, 1)) > 0
        cells = max(noise.together(1.0 * touched[list(met)], at_right_angles=True) for met in workload.meetings)
        on_data, on_results = cells**2 * _on_data(W), np.full(W.shape[0], together**2)
        return min(on_data, on_results, key=lambda squares: float(np.mean(squares)))

    return squared_scales


def _on_data(W: sparse.csr_array) -> Dense:
    """‖W_i‖² with columns that are alike taken as one."""
    used = sparse.csc_array(W)[:, np.flatnonzero(column_norms(W, 1))]
    if used.shape[0] * used.shape[1] > MOST_MERGED:
        return row_squares(W)
    return np.asarray(np.square(np.unique(used.toarray(), axis=1)).sum(axis=1))


@by_itself.register
def _(workload: KroneckerWorkload, noise: Noise) -> Callable[[Statement], Dense]:
    def largest_norm(factor: Factor) -> float:
        return 1.0 if factor.given is None else float(column_norms(sparse.csr_array(factor.given), noise.norm).max())

    # Of a table's own results a record changes a product of its columns' norms; of its own data a query sums cells.
    changes, cells = workload.products_of(largest_norm), workload.products_of(_mean_square)
    answers, sizes = workload.table_sizes(), np.array(workload.sizes, dtype=np.float64)

    def squared_scales(statement: Statement) -> Dense:
        own = list(statement.queries)
        on_results = np.full(len(own), noise.together(changes[own], at_right_angles=True) ** 2)
        looked = [set(workload.tables[t].columns) for t in own]
        beside = set().union(*looked)
        on_data = cells[own] * [math.prod(sizes[c] for c in beside - one) for one in looked]
        return min(on_data, on_results, key=lambda squares: float(np.average(squares, weights=answers[own])))

    return squared_scales


def _mean_square(factor: Factor) -> float:
    """The mean of the squared norms of a factor's queries."""
    return 1.0 if factor.given is None else float(np.square(factor.given).sum()) / factor.rows


@singledispatch
def simple_variances(workload: Any, epsilon: float) -> tuple[Dense, Dense]:
    """For every table the mean variance by noise on data and by noise on results, both of Laplace noise at this ε."""
    on_data, on_results = (method(workload).mean_variances() for method in (noise_on_data, noise_on_results))
    unit = Budget(LAPLACE, epsilon).variance(1.0)
    return unit * on_data, unit * on_results


@simple_variances.register
def _(workload: KroneckerWorkload, epsilon: float) -> tuple[Dense, Dense]:
    unit, whole = Budget(LAPLACE, epsilon).variance(1.0), Batch(workload)
    change = largest_change(whole, whole.terms(np.ones(len(workload.weights))))
    return unit * _cells_a_query(workload), np.full(len(workload.tables), unit * change**2)


def _cells_a_query(batch: KroneckerWorkload) -> Dense:
    """For every table the mean of its queries' squared norms over all cells; infinite beyond what floats hold."""
    cells = float(np.log(np.array(batch.sizes, dtype=np.float64)).sum())
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.exp(cells + np.log(batch.products_of(lambda own: _mean_square(own) / own.size))))
