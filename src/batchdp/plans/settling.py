"""What is measured, and whose privacy it is: given with a strategy, in its domain with a plan."""

from __future__ import annotations

from batchdp.errors import PrivacyParameterError, ReleaseError
from batchdp.measuring.neighbours import EVERY_ROW, Neighbours, Relation
from batchdp.plans.planned import Plan
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.structure import Products


def settled(
    planned: Plan | Strategy, neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None
) -> tuple[Strategy, Neighbours, int | None]:
    """The strategy, whose privacy is protected, and the cap: as given for a strategy, from the domain for a plan."""
    if isinstance(planned, Products):
        raise ReleaseError(
            "planned is a Products, a batch of queries; give the strategy that optimize(planned) finds for it"
        )
    if not isinstance(planned, Plan):
        if not isinstance(planned, Strategy):
            raise PrivacyParameterError(
                f"a {type(planned).__name__} is neither a plan nor a strategy; see plan, optimize"
            )
        return planned, given_neighbours(neighbours, rows_per_unit), max_rows
    if (neighbours, rows_per_unit, max_rows) != (None, None, None):
        raise PrivacyParameterError("neighbours, rows_per_unit and max_rows of a plan stand in its domain; plan again")
    privacy = planned.domain.privacy
    whose = EVERY_ROW if privacy.unit is None else privacy.unit
    return planned.strategy, Neighbours(privacy.neighbours, privacy.rows_per_unit, whose), privacy.max_rows


def given_neighbours(neighbours: Relation | None, rows_per_unit: int | None) -> Neighbours:
    """Whose privacy is protected where nobody but the caller knows: one record a person, unless they say otherwise."""
    return Neighbours(neighbours or "add-remove", 1 if rows_per_unit is None else rows_per_unit)
