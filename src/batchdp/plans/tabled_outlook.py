"""What a plan of tables promises before anything is spent: every table's typical error, the baselines', advice."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from batchdp.components.search import Batch
from batchdp.linalg.matrix import Dense
from batchdp.plans.accuracy import epsilon_for
from batchdp.plans.alone import ExpectedStatement, explained, tables_beside
from batchdp.plans.objectives import described
from batchdp.plans.rounding import rounded, rounded_up
from batchdp.plans.tabled import TablePlan
from batchdp.privacy import LAPLACE, UNITS, Budget, Unit
from batchdp.strategies.strategy import TOLERANCE
from batchdp.weighted.results import largest_change
from batchdp.workloads.structure import KroneckerWorkload


@dataclass(frozen=True)
class ExpectedTable:
    """One table's typical standard error (root mean square), and what the two simple mechanisms would give."""

    name: str
    answers: int
    standard_error: float
    noise_on_data: float
    noise_on_results: float


@dataclass(frozen=True)
class TableOutlook:
    """All tables' expected errors at a budget, and advice."""

    tables: tuple[ExpectedTable, ...]
    unit: Unit
    budget: float
    method: str
    answers: int
    columns: int
    total_squared_error: float
    lower_bound: float
    residual: float
    accuracy: float
    """A half width at 95 %."""
    advised: float
    """The least budget at which every answer is that accurate; not a number where no answer needs noise."""
    statements: tuple[ExpectedStatement, ...] = ()
    """The same tables beside answering each by itself."""
    minimised: str = "total expected squared error"
    """What the total and the limit are of."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{UNITS[self.unit].letter} = {self.budget:g}"

    def caption(self) -> str:
        """What the figures are."""
        return f"Expected standard errors at {self}, the root mean square of every table's answers."

    def explained(self) -> str:
        """What "by itself" and "gain" are."""
        return explained(self.statements, "table")

    def summary(self) -> str:
        """What else there is to know, in sentences."""
        times = f", {self.total_squared_error / self.lower_bound:.4g} times that" if self.lower_bound > 0 else ""
        lines = [
            f"Method: {self.method}; {self.answers:,} answers in {len(self.tables):,} tables over {self.columns} "
            f"columns are reproduced to {TOLERANCE:g} or better.",
            f"Minimised: the {self.minimised}. No strategy of this kind is below {self.lower_bound:,.4g} at {self}; "
            f"this one has {self.total_squared_error:,.4g}{times}.",
        ]
        if math.isfinite(self.advised):
            enough = f"{UNITS[self.unit].letter} = {rounded_up(self.advised):g}"
            lines.append(f"For ±{self.accuracy:g} at 95 % on every answer you need {enough}.")
        return "\n".join(lines + [self.reason] * bool(self.reason))

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def table_outlook(plan: TablePlan, epsilon: float, accuracy: float | None) -> TableOutlook:
    """The plan's expected errors at ε (at ρ = ε²/2 for Gaussian noise), beside those of the simple mechanisms."""
    strategy, batch = plan.strategy, plan.workload
    budget = strategy.noise.implied_by(epsilon)
    errors = plan.standard_errors(**budget.arguments)
    # Both simple mechanisms add Laplace noise, at the same ε.
    simple = Budget(LAPLACE, epsilon)
    on_data = plan.factor * np.sqrt(simple.variance(1.0) * _cells_a_query(batch))
    whole = Batch(batch)
    on_results = plan.factor * math.sqrt(
        simple.variance(largest_change(whole, whole.terms(np.ones(len(batch.weights)))) ** 2)
    )
    sizes = batch.table_sizes()
    worst = float(errors.max(initial=0.0))
    goal = accuracy if accuracy is not None else rounded(2 * worst)
    rows = zip(plan.tables, sizes, errors.tolist(), on_data.tolist(), strict=True)
    return TableOutlook(
        tables=tuple(ExpectedTable(t.name, int(n), error, data, on_results) for t, n, error, data in rows),
        unit=budget.noise.unit,
        budget=float(budget),
        method=strategy.method,
        answers=batch.queries,
        columns=len(batch.sizes),
        total_squared_error=plan.factor**2 * strategy.expected_squared_error(**budget.arguments),
        lower_bound=plan.factor**2 * strategy.lower_bound(**budget.arguments),
        residual=strategy.residual,
        accuracy=goal,
        advised=epsilon_for(plan, half_width=goal) if worst > 0 else math.nan,
        statements=tables_beside(plan, budget),
        minimised=described(plan.options, weighted=bool(plan.options.weights)),
        reason=strategy.reason,
    )


def _cells_a_query(batch: KroneckerWorkload) -> Dense:
    """For every table the mean of its queries' squared norms over all cells; infinite beyond what floats hold."""
    most = max(1, max(map(len, batch.factors)))
    squares = np.zeros((len(batch.sizes), most))
    for c, own in enumerate(batch.factors):
        for k, factor in enumerate(own):
            squares[c, k] = 1.0 if factor.given is None else float(np.square(factor.given).sum()) / factor.rows
    sizes = np.log(np.array(batch.sizes, dtype=np.float64))
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(squares[batch.columns, batch.chosen]) - sizes[batch.columns]
        table = np.repeat(np.arange(len(batch.starts) - 1), np.diff(batch.starts))
        return np.asarray(np.exp(sizes.sum() + np.bincount(table, logs, minlength=len(batch.starts) - 1)))
