"""The budget from the accuracy that is wanted, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import erfinv

from batchdp.errors import PrivacyParameterError, check_finite
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.conversion import check_delta, epsilon_asking
from batchdp.mechanism.law import checked_confidence
from batchdp.mechanism.measurement import IntegerMeasurement, Relation
from batchdp.mechanism.prepare import caps_of, lattice_of, quantise
from batchdp.plans.criteria import Criteria, Wanted
from batchdp.plans.planned import Plan, settle
from batchdp.privacy import GAUSSIAN, Budget, Noise
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.strategy import FactoredStrategy, Strategy

NO_NOISE = "the answers asked for need no noise: they are 0 whatever the data"
CLOSE = 1 + 1e-6
"""Makes up for lattices of other caps, and for rounding here and in the scale of the noise."""
ROUNDED = 1.005
"""What the lattice of a strategy over many columns may add to variances, and so to the budget."""
MOST_LOOKED = 100
"""Tables whose intervals are looked at one by one: those of the largest standard errors, where there are more."""


def epsilon_for(
    planned: Plan | Strategy,
    *,
    standard_error: float | None = None,
    half_width: float | None = None,
    confidence: float = 0.95,
    query: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    delta: float | None = None,
) -> float:
    """The least ε (ρ for a zCDP strategy) at which every answer, or a named one, is as accurate as asked.

    Args:
        planned: the plan or strategy that will be released.
        standard_error: the largest standard error that is good enough. Give this or `half_width`.
        half_width: the largest half width of an interval that is good enough.
        confidence: the confidence of that interval.
        query: the one query that has to be accurate enough, or the one table; all if left out.
        neighbours, rows_per_unit, max_rows: as in `answer`.
        delta: with it, the result is the ε that `answer` takes together with this δ, also for a zCDP strategy.
    """
    strategy, relation, max_rows = settle(planned, neighbours, rows_per_unit, max_rows)
    if (standard_error is None) == (half_width is None):
        raise PrivacyParameterError("give either standard_error or half_width, the accuracy that is wanted")
    goal = check_finite(
        *(("half_width", half_width) if standard_error is None else ("standard_error", standard_error)),
        above=0,
        error=PrivacyParameterError,
    )
    if delta is not None:
        check_delta(delta)
    tables = range(len(strategy.workload.tables)) if query is None else [_table(strategy, query)]
    of, slack = widths(strategy, relation.factor, max_rows)
    checked_confidence(confidence)
    worst = float(of(tables, None if half_width is None else confidence).max(initial=0.0))
    if worst == 0:
        raise PrivacyParameterError(NO_NOISE)
    found = float(_enough(worst / goal, strategy.noise, slack))
    return found if delta is None or strategy.noise.is_pure else epsilon_asking(found, delta)


def needed(plan: Plan, criteria: Criteria) -> list[tuple[Wanted, float]]:
    """For every accuracy that is wanted the least ε or ρ at which the plan has it; 0 where an answer has no noise."""
    return [(wanted, float(own.max(initial=0.0))) for wanted, own in needed_by_table(plan, criteria)]


def needed_by_table(plan: Plan, criteria: Criteria) -> list[tuple[Wanted, Dense]]:
    """The same for each of the tables that it is wanted of; over cells a table is a query."""
    of, slack = widths(plan.strategy, plan.factor, plan.protected.privacy.max_rows)

    def budgets(wanted: Wanted) -> Dense:
        errors = of(wanted.queries, None if wanted.criterion.margin is None else wanted.criterion.confidence)
        return np.asarray(_enough(errors / wanted.criterion.goal, plan.strategy.noise, slack))

    return [(wanted, budgets(wanted)) for wanted in criteria.wanted(plan.names, plan.statements)]


def margins(plan: Plan, confidence: float = 0.95) -> Dense:
    """Half the width of the widest interval of every table's answers at an ε or ρ of 1."""
    of, _ = widths(plan.strategy, plan.factor, plan.protected.privacy.max_rows)
    return of(range(len(plan.tables)), confidence)


def law_at(plan: Plan, budget: Budget) -> Any:
    """The joint law of the noise in a plan's queries at this budget, on the finest lattice that `answer` may take."""
    measurement = plan.finest_lattice
    return measurement.reader(_scales(measurement, plan.factor, float(budget)))


Widths = Callable[[Sequence[int], float | None], Dense]
"""From tables and a confidence, None for standard errors: of each the largest error, or half width, at an ε or ρ of 1.
"""


@singledispatch
def widths(strategy: Any, factor: int, max_rows: int | None) -> tuple[Widths, float]:
    """How wide errors are where two neighbouring tables differ by so many rows; and what the budget is multiplied by
    for safety.
    """
    raise PrivacyParameterError(f"a {type(strategy).__name__} is neither a plan nor a strategy; see plan, optimize")


@widths.register
def _(strategy: PairStrategy, factor: int, max_rows: int | None) -> tuple[Widths, float]:
    lattice = lattice_of(strategy, largest_total=caps_of(strategy, max_rows)[-1])
    law = lattice.law(_scales(lattice, factor, 1.0))
    starts = np.concatenate([[0], np.cumsum(strategy.workload.table_sizes())]).astype(np.int64)

    def of(tables: Sequence[int], confidence: float | None) -> Dense:
        if not len(tables):
            return np.zeros(0)
        rows = np.concatenate([np.arange(starts[t], starts[t + 1]) for t in tables])
        part = law if len(rows) == starts[-1] else replace(law, reconstruct=plain(law.reconstruct)[rows])
        errors = part.standard_errors if confidence is None else part.half_widths(confidence)
        ends = np.cumsum([0, *(int(starts[t + 1] - starts[t]) for t in tables[:-1])])
        return np.asarray(np.maximum.reduceat(errors, ends))

    return of, CLOSE


@widths.register
def _(strategy: FactoredStrategy, factor: int, max_rows: int | None) -> tuple[Widths, float]:
    noise, unit = strategy.noise, Budget(strategy.noise, 1)
    errors = factor * np.sqrt(unit.variance(1.0) * strategy.worst_variances())

    def of(tables: Sequence[int], confidence: float | None) -> Dense:
        own = errors[np.asarray(tables, dtype=np.int64)]
        if confidence is None or not len(own):
            return own
        if noise == GAUSSIAN:
            return np.asarray(math.sqrt(2) * float(erfinv(confidence)) * own)
        lattice = quantise(strategy, largest_total=caps_of(strategy, max_rows)[-1], budget=unit, factor=1)
        reader = lattice.reader(_scales(lattice, 1, 1.0))
        # How wide an interval is for its standard error differs from answer to answer.
        looked = np.argsort(-own, kind="stable")[:MOST_LOOKED]
        found = np.array([factor * float(reader.half_widths(int(tables[k]), confidence).max()) for k in looked])
        widest = float(np.max(found[own[looked] > 0] / own[looked][own[looked] > 0], initial=0.0))
        wide = np.minimum(widest * own, found.max())  # of the others, no wider than the widest
        wide[looked] = found
        return np.asarray(wide)

    return of, ROUNDED


def _table(strategy: Strategy, query: str) -> int:
    """The number of the table of this name; another is refused."""
    tables = strategy.workload.tables
    found = next((t for t, table in enumerate(tables) if table.name == query), None)
    if found is None:
        raise PrivacyParameterError(f"query={query!r} is not in the workload; one of its names is {tables[0].name!r}")
    return found


def _scales(measurement: IntegerMeasurement, factor: int, budget: float) -> Dense:
    """About those of the noise that would be drawn, for estimates."""
    norm, scale = measurement.noise.norm, measurement.noise.scale
    groups = measurement.groups
    return np.array([scale(factor * group.moved ** (1 / norm), budget * float(group.share)) for group in groups])


def _enough(times: Any, noise: Noise, slack: float) -> Any:
    """The budget that makes errors so many times smaller than at 1: they go with 1/ε or 1/√ρ."""
    return times**noise.norm * slack
