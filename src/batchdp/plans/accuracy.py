"""The budget from the accuracy that is wanted, before anything is spent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import erfinv

from batchdp.components.strategy import Components
from batchdp.errors import PrivacyParameterError, StrategyError
from batchdp.linalg.matrix import Dense, plain
from batchdp.measuring.cap import caps_for
from batchdp.measuring.lattice import quantise
from batchdp.measuring.law import NoiseLaw, checked_confidence
from batchdp.measuring.neighbours import Neighbours, Relation
from batchdp.plans.criteria import Criteria, Wanted
from batchdp.plans.planned import Plan
from batchdp.plans.settling import given_neighbours, settled
from batchdp.privacy import Noise
from batchdp.strategies.strategy import Strategy


def epsilon_for(
    planned: Plan | Strategy | Components,
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
        query: only this one has to be accurate enough; a table's name for a strategy over many columns.
        neighbours, rows_per_unit, max_rows: as in `answer`.
    """
    if isinstance(planned, Components):
        factor = given_neighbours(neighbours, rows_per_unit).factor
        return _of_components(planned, factor, standard_error, half_width, confidence, query)
    strategy, relation, max_rows = settled(planned, neighbours, rows_per_unit, max_rows)
    goal = _goal(standard_error, half_width)
    names = strategy.workload.names
    if query is not None and query not in names:
        raise PrivacyParameterError(f"query={query!r} is not in the workload; one of its names is {names[0]!r}")
    law = _law(strategy, relation, max_rows)
    errors = law.standard_errors if half_width is None else law.half_widths(confidence)
    worst = float(np.max(errors) if query is None else errors[names.index(query)])
    if worst == 0:
        raise PrivacyParameterError("the answers asked for need no noise: they are 0 whatever the data")
    return float(_enough(worst / goal, strategy.noise))


def needed(plan: Plan, criteria: Criteria) -> list[tuple[Wanted, float]]:
    """For every accuracy that is wanted the least ε or ρ at which the plan has it; 0 where an answer has no noise."""
    return [(wanted, float(own.max(initial=0.0))) for wanted, own in needed_by_query(plan, criteria)]


def needed_by_query(plan: Plan, criteria: Criteria) -> list[tuple[Wanted, Dense]]:
    """The same for each of the queries that it is wanted of."""
    law = _law(*settled(plan, None, None, None))
    found = []
    for wanted in criteria.wanted(plan.names, plan.statements):
        own, criterion = list(wanted.queries), wanted.criterion
        part = NoiseLaw(plain(law.reconstruct)[own], law.scale, law.privacy)
        errors = part.standard_errors if criterion.margin is None else part.half_widths(criterion.confidence)
        found.append((wanted, _enough(errors / criterion.goal, plan.strategy.noise)))
    return found


def margins(plan: Plan, confidence: float = 0.95) -> Dense:
    """Half the width of every answer's interval at an ε or ρ of 1."""
    return _law(*settled(plan, None, None, None)).half_widths(confidence)


def _law(strategy: Strategy, relation: Neighbours, max_rows: int | None) -> NoiseLaw:
    """Of the answers at ε or ρ of 1, on the finest lattice of those that `answer` may take."""
    lattice = quantise(strategy, largest_total=caps_for(strategy.workload, max_rows)[-1])
    moved = lattice.sensitivity * relation.factor / 2.0**lattice.bits
    return NoiseLaw(lattice.reconstruct, strategy.noise.scale(moved, 1.0), strategy.privacy)


def _enough(times: Any, noise: Noise) -> Any:
    """The budget that makes errors so many times smaller than at 1: they go with 1/ε or 1/√ρ.

    A little more makes up for lattices of other caps, and for rounding here and in the scale of the noise.
    """
    return times**noise.norm * (1 + 1e-6)


ROUNDED = 1.005
"""Of variances: what the lattice of a strategy over many columns may add to them."""


def _of_components(
    strategy: Components,
    factor: int,
    standard_error: float | None,
    half_width: float | None,
    confidence: float,
    table: str | None,
) -> float:
    """The ρ at which every answer, or those of one table, is accurate enough; to half a percent."""
    goal = _goal(standard_error, half_width)
    if half_width is not None:
        checked_confidence(confidence)
        goal /= math.sqrt(2) * float(erfinv(confidence))
    if table is None:
        worst = strategy.worst_variance(rho=1.0)
    else:
        try:
            worst = float(strategy.variances(table, rho=1.0).max(initial=0.0))
        except StrategyError as error:
            raise PrivacyParameterError(f"query={table!r} is not a table of the batch: {error}") from error
    if worst == 0:
        raise PrivacyParameterError("the answers asked for need no noise: they are 0 whatever the data")
    return ROUNDED * factor**2 * worst / goal**2


def _goal(standard_error: float | None, half_width: float | None) -> float:
    if (standard_error is None) == (half_width is None):
        raise PrivacyParameterError("give either standard_error or half_width, the accuracy that is wanted")
    goal = standard_error if standard_error is not None else half_width
    assert goal is not None
    if isinstance(goal, bool) or not (math.isfinite(goal) and goal > 0):
        raise PrivacyParameterError(f"the accuracy wanted is {goal!r}; it must be finite and above 0")
    return goal
