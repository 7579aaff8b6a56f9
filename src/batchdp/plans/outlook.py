"""What a plan promises before anything is spent: every query's expected error, the baselines', and budget advice."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, overload

import numpy as np

from batchdp.errors import QueryError, ReleaseError
from batchdp.excerpt import excerpt, full_title
from batchdp.linalg.matrix import Dense
from batchdp.plans.accuracy import epsilon_for
from batchdp.plans.alone import ExpectedStatement, beside, explained, queries_alone
from batchdp.plans.assuming import Assume, ExpectedDerived, expected_derived
from batchdp.plans.objectives import described, error_of, lower_bound
from batchdp.plans.options import FAIR
from batchdp.plans.planned import Plan
from batchdp.plans.rounding import rounded, rounded_up
from batchdp.plans.tabled import TablePlan
from batchdp.plans.tabled_outlook import TableOutlook, table_outlook
from batchdp.privacy import UNITS, Unit
from batchdp.queries.statements import QUERY, Statement, tables_of
from batchdp.strategies.families.noise_on_data import noise_on_data
from batchdp.strategies.families.noise_on_results import noise_on_results
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.strategy import TOLERANCE

SHOWN = 5
"""Statements that a warning names."""


@dataclass(frozen=True)
class Expected:
    """One query's expected standard error, and what answering its statement by itself and the whole batch by one of
    the two simple mechanisms would give."""

    name: str
    standard_error: float
    by_itself: float
    noise_on_data: float
    noise_on_results: float


@dataclass(frozen=True)
class ExpectedTable:
    """One table's typical error, and as many of its rows as are shown, each with what tells it apart."""

    title: str
    queries: int
    standard_error: float
    """The median of its queries'."""
    rows: tuple[tuple[str, Expected], ...]
    single: bool = False
    """Whether its queries have nothing in common but the batch."""


@dataclass(frozen=True)
class Outlook:
    """All queries' expected errors at a budget, and advice."""

    queries: tuple[Expected, ...]
    unit: Unit
    budget: float
    method: str
    cells: int
    blocks: int
    measurements: int
    objective: str
    """What the plan minimises."""
    minimised: str
    """The same in words."""
    total_squared_error: float
    """Over all queries, in their own units, whatever was minimised."""
    objective_error: float
    """Of what was minimised."""
    lower_bound: float
    """No strategy of this kind has a smaller `objective_error`."""
    residual: float
    accuracy: float
    """A half width at 95 %."""
    advised: float
    """The least budget at which every answer is that accurate; not a number where no answer needs noise."""
    statements: tuple[ExpectedStatement, ...] = ()
    wanted: bool = False
    """Whether the plan was made for accuracies by name: who names them says what may be worse."""
    reason: str = ""
    derived: tuple[ExpectedDerived, ...] = ()
    """What is computed from the queries, for groups of an assumed size."""
    simulated: float = 0.0
    """The standard error of `objective_error`, relative: 0 unless noise is shaped, whose errors are simulated."""

    def __str__(self) -> str:
        return f"{UNITS[self.unit].letter} = {self.budget:g}"

    def caption(self) -> str:
        """What the figures are."""
        simple = "" if UNITS[self.unit].is_pure else f" (Laplace noise at ε = {math.sqrt(2 * self.budget):g})"
        return (
            f"Expected standard errors at {self}, beside those of noise on data and of noise on results for the whole "
            f"batch{simple}."
        )

    def explained(self) -> str:
        """What "by itself" and "gain" are."""
        return explained(self.statements)

    def summary(self) -> str:
        """What the table does not say, in sentences."""
        times = f", {self.objective_error / self.lower_bound:.3g} times that" if self.lower_bound > 0 else ""
        blocks = f" in {self.blocks} blocks" if self.blocks > 1 else ""
        lines = [
            f"Method: {self.method}; {self.measurements} measurements of {self.cells} kinds of records{blocks}, "
            f"which reproduce every query to {TOLERANCE:g} or better.",
            f"Minimised: the {self.minimised}. No strategy of this kind is below {self.lower_bound:,.4g} at {self}; "
            f"this one has {self.objective_error:,.4g}{times}."
            if not self.simulated
            else f"Minimised: the {self.minimised}, {self.objective_error:,.4g} at {self}, simulated to "
            f"{100 * self.simulated:.1g} %. No limit is proven for noise in the shape of the batch.",
        ]
        if math.isfinite(self.advised):
            enough = f"{UNITS[self.unit].letter} = {rounded_up(self.advised):g}"
            lines.append(f"For ±{self.accuracy:g} at 95 % on every query you need {enough}.")
        return "\n".join(lines + [self.reason] * bool(self.reason) + [self.warning()] * bool(self.warning()))

    def warning(self) -> str:
        """Which statements sharing one strategy has made worse; nothing if it has none."""
        worse = sorted((one for one in self.statements if one.is_worse), key=lambda one: one.gain)
        if not worse or self.wanted:
            return ""
        listed = ", ".join(f"{one.name} ({one.standard_error:.3g}, not {one.by_itself:.3g})" for one in worse[:SHOWN])
        more = f" and {len(worse) - SHOWN} more" if len(worse) > SHOWN else ""
        remedy = "" if self.objective == FAIR else ', or objective="fair",'
        return (
            f"Worse than by itself with an equal share of the budget: {listed}{more}; a larger weight{remedy} moves "
            "budget there."
        )

    def tables(self, *, everything: bool = False) -> tuple[list[ExpectedTable], int]:
        """So much of every table as fits on a screen, or everything; and how many tables are not shown at all."""
        found = tables_of([row.name for row in self.queries])
        sizes = [len(one.answers) for one in found]
        shown = sizes if everything else excerpt(sizes)
        return [self._table(one, rows) for one, rows in zip(found, shown, strict=False)], len(sizes) - len(shown)

    def _table(self, one: Statement, rows: int) -> ExpectedTable:
        own = [self.queries[q] for q in one.answers]
        return ExpectedTable(
            title=full_title(one.name, one.columns),
            queries=len(own),
            standard_error=median(row.standard_error for row in own),
            rows=tuple(zip(one.labels[:rows], own, strict=False)),
            single=one.columns == (QUERY,),
        )

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


@overload
def outlook(
    plan: Plan, *, epsilon: float = 1.0, accuracy: float | None = None, assume: Assume | None = None
) -> Outlook: ...


@overload
def outlook(
    plan: TablePlan, *, epsilon: float = 1.0, accuracy: float | None = None, assume: Assume | None = None
) -> TableOutlook: ...


def outlook(
    plan: Plan | TablePlan, *, epsilon: float = 1.0, accuracy: float | None = None, assume: Assume | None = None
) -> Outlook | TableOutlook:
    """The plan's expected errors at ε (at ρ = ε²/2 for Gaussian noise), beside those of the simple mechanisms.

    Args:
        plan: what would be released.
        epsilon: the budget.
        accuracy: a half width at 95 % for which the budget is worked out; a round one near the worst if left out.
        assume: how many records the groups of derived answers have, by name, "*" for all others; 1000 if left out.

    Returns: an `Outlook`, or a `TableOutlook` with a line a table for a plan of tables.
    """
    if isinstance(plan, TablePlan):
        if assume:
            raise QueryError("assume: a plan of tables has no derived answers; leave it out")
        return table_outlook(plan, epsilon, accuracy)
    if not isinstance(plan, Plan):
        raise ReleaseError(
            f"plan is a {type(plan).__name__}; an outlook needs a Plan, from plan(sql, domain): other strategies, "
            "those over many columns among them, say their errors by expected_squared_error"
        )
    strategy = plan.strategy
    budget = strategy.noise.implied_by(epsilon)
    errors = plan.standard_errors(**budget.arguments)
    # Both simple mechanisms add Laplace noise, at the same ε.
    on_data = plan.factor * _deviations(noise_on_data(plan.asked_workload), epsilon)
    on_results = plan.factor * _deviations(noise_on_results(plan.asked_workload), epsilon)
    worst = float(errors.max(initial=0.0))
    options = plan.options
    figures = (errors, queries_alone(plan, budget), on_data, on_results)
    goal = accuracy if accuracy is not None else rounded(2 * worst)
    return Outlook(
        queries=tuple(Expected(*row) for row in zip(plan.names, *(part.tolist() for part in figures), strict=True)),
        unit=budget.noise.unit,
        budget=float(budget),
        method=strategy.method,
        cells=plan.workload.cells,
        blocks=len(plan.workload.blocks),
        measurements=strategy.measurements,
        objective=options.objective,
        minimised=described(options, weighted=plan.workload.weights is not None),
        total_squared_error=float(errors @ errors),
        objective_error=error_of(plan.asked_workload, options, errors**2),
        lower_bound=plan.factor**2 * budget.variance(lower_bound(plan)),
        residual=strategy.residual,
        accuracy=goal,
        advised=epsilon_for(plan, half_width=goal) if worst > 0 else math.nan,
        statements=beside(plan, budget),
        wanted=options.accuracy is not None,
        reason=strategy.reason,
        derived=expected_derived(plan, budget, assume),
        simulated=strategy.simulation_error,
    )


def _deviations(strategy: PairStrategy, epsilon: float) -> Dense:
    return np.asarray(np.sqrt(strategy.per_query_variance(epsilon=epsilon)))
