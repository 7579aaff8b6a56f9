"""The budget from the accuracy that is wanted, before anything is spent."""

from __future__ import annotations

import math

import numpy as np

from batchdp.errors import PrivacyParameterError
from batchdp.measuring.cap import caps_for
from batchdp.measuring.lattice import quantise
from batchdp.measuring.law import NoiseLaw
from batchdp.measuring.neighbours import Relation
from batchdp.plans.planned import Plan
from batchdp.plans.settling import settled
from batchdp.strategies.strategy import Strategy


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
) -> float:
    """The least ε (ρ for a zCDP strategy) at which every answer, or a named one, is as accurate as asked.

    Args:
        planned: what will be released.
        standard_error: the largest standard error that is good enough; or
        half_width: the largest half width of an interval of this `confidence`.
        query: only this one has to be accurate enough.
        neighbours, rows_per_unit, max_rows: as in `answer`.
    """
    strategy, relation, max_rows = settled(planned, neighbours, rows_per_unit, max_rows)
    if (standard_error is None) == (half_width is None):
        raise PrivacyParameterError("give either standard_error or half_width, the accuracy that is wanted")
    goal = standard_error if standard_error is not None else half_width
    assert goal is not None
    if isinstance(goal, bool) or not (math.isfinite(goal) and goal > 0):
        raise PrivacyParameterError(f"the accuracy wanted is {goal!r}; it must be finite and above 0")
    names = strategy.workload.names
    if query is not None and query not in names:
        raise PrivacyParameterError(f"query={query!r} is not in the workload; one of its names is {names[0]!r}")
    # The finest lattice of those that `answer` may take.
    lattice = quantise(strategy, largest_total=caps_for(strategy.workload, max_rows)[-1])
    moved, noise = lattice.sensitivity * relation.factor / 2.0**lattice.bits, strategy.noise
    law = NoiseLaw(lattice.reconstruct, noise.scale(moved, 1.0), strategy.privacy)  # at ε or ρ of 1
    errors = law.standard_errors if half_width is None else law.half_widths(confidence)
    worst = float(np.max(errors) if query is None else errors[names.index(query)])
    if worst == 0:
        raise PrivacyParameterError("the answers asked for need no noise: they are 0 whatever the data")
    # Errors go with 1/ε or 1/√ρ. A little more makes up for lattices of other caps, and for rounding here and in the
    # scale of the noise.
    return float((worst / goal) ** noise.norm) * (1 + 1e-6)
