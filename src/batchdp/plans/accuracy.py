"""The budget from the accuracy that is wanted, before anything is spent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import erfinv

from batchdp.errors import PrivacyParameterError, StrategyError
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.law import NoiseLaw, checked_confidence
from batchdp.mechanism.measurement import IntegerMeasurement, Neighbours, Relation
from batchdp.mechanism.quantise import TABLE_CAPS, caps_for, lattice_of, quantise
from batchdp.plans.criteria import Criteria, Wanted
from batchdp.plans.planned import Plan
from batchdp.plans.settling import settle
from batchdp.plans.statements import Statement
from batchdp.plans.tabled import TablePlan
from batchdp.privacy import Budget, Noise
from batchdp.strategies.factored import FactoredStrategy
from batchdp.strategies.pair import PairStrategy
from batchdp.weighted.strategy import MarginalStrategy


def epsilon_for(
    planned: Plan | TablePlan | PairStrategy | FactoredStrategy,
    *,
    standard_error: float | None = None,
    half_width: float | None = None,
    confidence: float = 0.95,
    query: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
) -> float:
    """The least ε (ρ for a zCDP strategy) at which every answer, or a named one, is as accurate as asked.

    Args:
        planned: what will be released.
        standard_error: the largest standard error that is good enough; or
        half_width: the largest half width of an interval of this `confidence`.
        query: only this one has to be accurate enough; a table's name for a plan of tables or a strategy over many
            columns.
        neighbours, rows_per_unit, max_rows: as in `answer`.
    """
    strategy, relation, max_rows = settle(planned, neighbours, rows_per_unit, max_rows)
    goal = _goal(standard_error, half_width)
    if isinstance(strategy, FactoredStrategy):
        worst = _worst_of_tables(strategy, query, None if half_width is None else confidence, max_rows)
        if worst == 0:
            raise PrivacyParameterError(NO_NOISE)
        return ROUNDED * float((relation.factor * worst / goal) ** strategy.noise.norm)
    names = strategy.workload.names
    if query is not None and query not in names:
        raise PrivacyParameterError(f"query={query!r} is not in the workload; one of its names is {names[0]!r}")
    law = _law(strategy, relation, max_rows)
    errors = law.standard_errors if half_width is None else law.half_widths(confidence)
    worst = float(np.max(errors) if query is None else errors[names.index(query)])
    if worst == 0:
        raise PrivacyParameterError(NO_NOISE)
    return float(_enough(worst / goal, strategy.noise))


def needed(plan: Plan, criteria: Criteria) -> list[tuple[Wanted, float]]:
    """For every accuracy that is wanted the least ε or ρ at which the plan has it; 0 where an answer has no noise."""
    return [(wanted, float(own.max(initial=0.0))) for wanted, own in needed_by_query(plan, criteria)]


def needed_by_query(plan: Plan, criteria: Criteria) -> list[tuple[Wanted, Dense]]:
    """The same for each of the queries that it is wanted of."""
    law = _law(*settle(plan, None, None, None))
    found = []
    for wanted in criteria.wanted(plan.names, plan.statements):
        own, criterion = list(wanted.queries), wanted.criterion
        part = replace(law, reconstruct=plain(law.reconstruct)[own])
        errors = part.standard_errors if criterion.margin is None else part.half_widths(criterion.confidence)
        found.append((wanted, _enough(errors / criterion.goal, plan.strategy.noise)))
    return found


def needed_by_table(plan: TablePlan, criteria: Criteria) -> list[tuple[Wanted, Dense]]:
    """The same for each of the tables of a plan of tables; a table is both a statement and a name."""
    names = [table.name for table in plan.tables]
    found = []
    for wanted in criteria.wanted(names, [Statement(name, (t,)) for t, name in enumerate(names)]):
        goal, confidence = wanted.criterion.goal, wanted.criterion.confidence
        width: dict[str, Any] = {"standard_error": goal} if wanted.criterion.margin is None else {"half_width": goal}
        every = len(wanted.queries) == len(names)
        asked = [None] if every else [names[t] for t in wanted.queries]  # the worst of all is quicker to find
        own = [epsilon_for(plan, **width, confidence=confidence, query=name) for name in asked]
        found.append((wanted, np.full(len(names), own[0]) if every else np.array(own)))
    return found


def margins(plan: Plan, confidence: float = 0.95) -> Dense:
    """Half the width of every answer's interval at an ε or ρ of 1."""
    return _law(*settle(plan, None, None, None)).half_widths(confidence)


def law_at(plan: Plan, budget: Budget) -> NoiseLaw:
    """Of a plan's queries at this budget."""
    return _law(*settle(plan, None, None, None), budget=float(budget))


def _law(strategy: PairStrategy, relation: Neighbours, max_rows: int | None, budget: float = 1.0) -> NoiseLaw:
    """Of the answers at an ε or ρ, on the finest lattice of those that `answer` may take."""
    lattice = lattice_of(strategy, largest_total=caps_for(strategy.workload, max_rows)[-1])
    return lattice.law(_scales(lattice, relation.factor, budget))


def _scales(measurement: IntegerMeasurement, factor: int, budget: float) -> Dense:
    """About those of the noise that would be drawn, for estimates."""
    norm, groups = measurement.noise.norm, zip(measurement.groups, measurement.shares, strict=True)
    scale = measurement.noise.scale
    return np.array([scale(factor * group.moved ** (1 / norm), budget * float(share)) for group, share in groups])


def _enough(times: Any, noise: Noise) -> Any:
    """The budget that makes errors so many times smaller than at 1: they go with 1/ε or 1/√ρ.

    A little more makes up for lattices of other caps, and for rounding here and in the scale of the noise.
    """
    return times**noise.norm * (1 + 1e-6)


NO_NOISE = "the answers asked for need no noise: they are 0 whatever the data"
ROUNDED = 1.005
"""What the lattice of a strategy over many columns may add to variances, and so to the budget."""
MOST_LOOKED = 100
"""Tables whose intervals are looked at: those of the largest standard errors, where there are more."""


def _worst_of_tables(
    strategy: FactoredStrategy, table: str | None, confidence: float | None, max_rows: int | None
) -> float:
    """The largest standard error at ε or ρ of 1, of all answers or of one table's; or half width, at a confidence."""
    unit = Budget(strategy.noise, 1).arguments
    try:
        worst = strategy.worst_variance(**unit) if table is None else float(strategy.variances(table, **unit).max())
    except StrategyError as error:
        raise PrivacyParameterError(f"query={table!r} is not a table of the batch: {error}") from error
    if confidence is None:
        return math.sqrt(worst)
    checked_confidence(confidence)
    if not isinstance(strategy, MarginalStrategy):
        return math.sqrt(2 * worst) * float(erfinv(confidence))
    cap = TABLE_CAPS[-1] if max_rows is None else max_rows
    lattice = quantise(strategy, largest_total=cap, budget=Budget(strategy.noise, 1), factor=1)
    reader = lattice.reader(_scales(lattice, 1, 1.0))
    # How wide an interval is for its standard error differs from answer to answer.
    tables = np.argsort(-strategy.worst_variances(), kind="stable")[:MOST_LOOKED].tolist()
    if table is not None:
        tables = [t for t, one in enumerate(strategy.workload.tables) if one.name == table][:1]
    return max(float(reader.half_widths(t, confidence).max(initial=0.0)) for t in tables)


def _goal(standard_error: float | None, half_width: float | None) -> float:
    if (standard_error is None) == (half_width is None):
        raise PrivacyParameterError("give either standard_error or half_width, the accuracy that is wanted")
    goal = standard_error if standard_error is not None else half_width
    assert goal is not None
    if isinstance(goal, bool) or not (math.isfinite(goal) and goal > 0):
        raise PrivacyParameterError(f"the accuracy wanted is {goal!r}; it must be finite and above 0")
    return goal
