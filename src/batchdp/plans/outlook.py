"""What a plan promises before anything is spent: every table's expected error, the baselines', and budget advice."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import singledispatch
from statistics import median
from typing import Any

import numpy as np

from batchdp.errors import ReleaseError
from batchdp.plans.accuracy import epsilon_for
from batchdp.plans.baselines import ExpectedStatement, beside, explained, simple_variances, tables_alone
from batchdp.plans.derived_outlook import Assume, ExpectedDerived, expected_derived
from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.plans.planned import Plan
from batchdp.plans.targets import rounded, rounded_up
from batchdp.privacy import UNITS, Budget, Unit
from batchdp.queries.query import QUERY, Statement, tables_of
from batchdp.strategies.strategy import TOLERANCE
from batchdp.text import excerpt, full_title
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload, Workload


def objective_error(plan: Plan, budget: Budget) -> float:
    """What the plan minimises, for its strategy at this budget and for the domain's neighbours."""
    strategy = plan.strategy
    of = strategy.largest_variance if plan.options.objective == LARGEST else strategy.expected_squared_error
    return plan.factor**2 * of(**budget.arguments)


def lower_bound(plan: Plan, budget: Budget) -> float:
    """No strategy of this kind has a smaller one; 0 where nothing is proven."""
    strategy = plan.strategy
    of = strategy.largest_variance_bound if plan.options.objective == LARGEST else strategy.lower_bound
    return plan.factor**2 * of(**budget.arguments)


def described(options: Options, *, weighted: bool) -> str:
    """What is minimised, in words; whether errors other than those of statements are weighted."""
    if options.objective == LARGEST:
        if options.accuracy is not None:
            return "largest expected squared error, each relative to what is wanted"
        return "largest expected squared error" + _weighted_sum(weighted)
    if options.objective == FAIR:
        whole = "sum over statements of the mean squared error, relative to the most that one record can change"
        return whole + _weighted_sum(bool(options.weights))
    return "total expected squared error" + _weighted_sum(weighted)


def _weighted_sum(given: bool) -> str:
    return " times its weight" if given else ""


SHOWN = 5
"""Statements that a warning names."""


@dataclass(frozen=True)
class Expected:
    """One table's typical standard error, and what answering its statement by itself and the whole batch by one of the
    two simple mechanisms would give. A query that is in no table is one by itself."""

    name: str
    standard_error: float
    """The root of the mean square of its answers'."""
    by_itself: float
    noise_on_data: float
    noise_on_results: float
    answers: int = 1


@dataclass(frozen=True)
class ShownTable:
    """What is shown together: as many rows as fit, each with what tells it apart."""

    title: str
    rows_in_all: int
    standard_error: float
    """The median of its rows'."""
    rows: tuple[tuple[str, Expected], ...]
    single: bool = False
    """Whether its rows have nothing in common but the batch."""


@dataclass(frozen=True)
class Outlook:
    """All tables' expected errors at a budget, and advice."""

    tables: tuple[Expected, ...]
    unit: Unit
    budget: float
    method: str
    answers: int
    """That are shown, derived ones included."""
    measurements: int
    over: str
    """What is measured, in words."""
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
        typical = ", the root mean square of every table's answers," * any(row.answers > 1 for row in self.tables)
        return (
            f"Expected standard errors at {self}{typical} beside those of noise on data and of noise on results for "
            f"the whole batch{simple}."
        )

    def explained(self) -> str:
        """What "by itself" and "gain" are."""
        return explained(self.statements)

    def summary(self) -> str:
        """What the table does not say, in sentences."""
        times = f", {self.objective_error / self.lower_bound:.4g} times that" if self.lower_bound > 0 else ""
        lines = [
            f"Method: {self.method}; {self.measurements} measurements {self.over}, which reproduce every query to "
            f"{TOLERANCE:g} or better.",
            f"Minimised: the {self.minimised}. No strategy of this kind is below {self.lower_bound:,.4g} at {self}; "
            f"this one has {self.objective_error:,.4g}{times}."
            if not self.simulated
            else f"Minimised: the {self.minimised}, {self.objective_error:,.4g} at {self}, simulated to "
            f"{100 * self.simulated:.1g} %. No limit is proven for noise in the shape of the batch.",
        ]
        if math.isfinite(self.advised):
            enough = f"{UNITS[self.unit].letter} = {rounded_up(self.advised):g}"
            parts = ", parts of derived answers too," * bool(self.derived)
            lines.append(f"For ±{self.accuracy:g} at 95 % on every query{parts} you need {enough} (rounded up).")
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

    def excerpt(self, *, everything: bool = False) -> tuple[list[ShownTable], int]:
        """So much of everything as fits on a screen, or everything; and how many tables are not shown at all."""
        found = tables_of([row.name for row in self.tables])
        sizes = [len(one.answers) for one in found]
        shown = sizes if everything else excerpt(sizes)
        return [self._shown(one, rows) for one, rows in zip(found, shown, strict=False)], len(sizes) - len(shown)

    def _shown(self, one: Statement, rows: int) -> ShownTable:
        own = [self.tables[q] for q in one.answers]
        labels = (
            f"{label} ({row.answers:,})" if row.answers > 1 else label
            for label, row in zip(one.labels[:rows], own, strict=False)
        )
        return ShownTable(
            title=full_title(one.name, one.columns),
            rows_in_all=len(own),
            standard_error=median(row.standard_error for row in own),
            rows=tuple(zip(labels, own, strict=False)),
            single=one.columns == (QUERY,),
        )

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def outlook(
    plan: Plan, *, epsilon: float = 1.0, accuracy: float | None = None, assume: Assume | None = None
) -> Outlook:
    """The plan's expected errors at ε (at ρ = ε²/2 for Gaussian noise), beside those of the simple mechanisms.

    Args:
        plan: what would be released.
        epsilon: the budget.
        accuracy: a half width at 95 % for which the budget is worked out; a round one near the worst if left out.
        assume: how many records the groups of derived answers have, by name, "*" for all others; 1000 if left out.
    """
    if not isinstance(plan, Plan):
        raise ReleaseError(
            f"plan is a {type(plan).__name__}; an outlook needs a Plan, from plan(sql, domain): strategies say "
            "their errors by expected_squared_error"
        )
    strategy, options = plan.strategy, plan.options
    budget = strategy.noise.implied_by(epsilon)
    errors, answers = plan.typical_errors(**budget.arguments), plan.workload.table_sizes()
    simple = (plan.factor * np.sqrt(own) for own in simple_variances(plan.asked_workload, epsilon))
    worst = float(errors.max(initial=0.0))
    goal = accuracy if accuracy is not None else rounded(2 * worst)
    figures = (part.tolist() for part in (errors, tables_alone(plan, budget), *simple))
    return Outlook(
        tables=tuple(Expected(*row) for row in zip(plan.names, *figures, map(round, answers.tolist()), strict=True)),
        unit=budget.noise.unit,
        budget=float(budget),
        method=strategy.method,
        answers=len(plan.asked),
        measurements=strategy.measurements,
        over=told_over(plan.workload),
        objective=options.objective,
        minimised=described(options, weighted=_weighted(plan)),
        total_squared_error=float(answers @ errors**2),
        objective_error=objective_error(plan, budget),
        lower_bound=lower_bound(plan, budget),
        residual=strategy.residual,
        accuracy=goal,
        advised=epsilon_for(plan, half_width=goal) if worst > 0 else math.nan,
        statements=beside(plan, budget),
        wanted=options.accuracy is not None,
        reason=strategy.reason,
        derived=expected_derived(plan, budget, assume),
        simulated=strategy.simulation_error,
    )


def _weighted(plan: Plan) -> bool:
    weights = plan.workload.weights
    return weights is not None and not np.all(weights == 1)


@singledispatch
def told_over(workload: Workload) -> str:
    """What is measured for a batch, in words."""
    return ""


@told_over.register
def _(workload: MatrixWorkload) -> str:
    blocks = f" in {len(workload.blocks)} blocks" if len(workload.blocks) > 1 else ""
    return f"of {workload.cells} kinds of records{blocks}"


@told_over.register
def _(workload: KroneckerWorkload) -> str:
    tables = f"{len(workload.tables):,} tables over {len(workload.sizes)} columns"
    return f"for {workload.queries:,} counts and sums in {tables}"
