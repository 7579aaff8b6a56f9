"""The budget from the accuracy that is wanted, before anything is spent."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfinv

from batchdp.components.strategy import Components
from batchdp.errors import PrivacyParameterError, StrategyError
from batchdp.measuring.amounts import lattice_of
from batchdp.measuring.cap import caps_for
from batchdp.measuring.law import NoiseLaw, checked_confidence
from batchdp.measuring.neighbours import Relation
from batchdp.plans.planned import Plan
from batchdp.plans.settling import given_neighbours, settled
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
    # The finest lattice of those that `answer` may take.
    lattice = lattice_of(strategy, largest_total=caps_for(strategy.workload, max_rows)[-1])
    moved, noise = lattice.sensitivity * relation.factor / 2.0**lattice.bits, strategy.noise
    law = NoiseLaw(lattice.reconstruct, noise.scale(moved, 1.0), strategy.privacy)  # at ε or ρ of 1
    errors = law.standard_errors if half_width is None else law.half_widths(confidence)
    worst = float(np.max(errors) if query is None else errors[names.index(query)])
    if worst == 0:
        raise PrivacyParameterError("the answers asked for need no noise: they are 0 whatever the data")
    # Errors go with 1/ε or 1/√ρ. A little more makes up for lattices of other caps, and for rounding here and in the
    # scale of the noise.
    return float((worst / goal) ** noise.norm) * (1 + 1e-6)


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
