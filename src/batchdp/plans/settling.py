"""What is measured, and whose privacy it is: given with a strategy, in its domain with a plan."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from batchdp.domain import Domain
from batchdp.errors import PrivacyParameterError, ReleaseError
from batchdp.mechanism.measurement import EVERY_ROW, Neighbours, Relation
from batchdp.mechanism.quantise import can_be_measured
from batchdp.plans.planned import Plan
from batchdp.workloads.workload import Workload


@singledispatch
def settle(
    planned: Any, neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None
) -> tuple[Any, Neighbours, int | None]:
    """The strategy, whose privacy is protected, and the cap: as given for a strategy, from the domain for a plan."""
    if not can_be_measured(planned):
        raise PrivacyParameterError(f"a {type(planned).__name__} is neither a plan nor a strategy; see plan, optimize")
    return planned, given_neighbours(neighbours, rows_per_unit), max_rows


@settle.register
def _(
    planned: Plan, neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None
) -> tuple[Any, Neighbours, int | None]:
    check_domain_says(neighbours, rows_per_unit, max_rows)
    return planned.strategy, declared_neighbours(planned.domain), planned.domain.privacy.max_rows


@settle.register
def _(
    planned: Workload, neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None
) -> tuple[Any, Neighbours, int | None]:
    raise ReleaseError(
        "planned is a Workload, a batch of queries; give the strategy that optimize(planned) finds for it"
    )


def check_domain_says(neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None) -> None:
    """Refuse what stands in the domain of a plan."""
    if (neighbours, rows_per_unit, max_rows) != (None, None, None):
        raise PrivacyParameterError("neighbours, rows_per_unit and max_rows of a plan stand in its domain; plan again")


def declared_neighbours(domain: Domain) -> Neighbours:
    """Whose privacy is protected, by the domain."""
    privacy = domain.privacy
    return Neighbours(privacy.neighbours, privacy.rows_per_unit, EVERY_ROW if privacy.unit is None else privacy.unit)


def given_neighbours(neighbours: Relation | None, rows_per_unit: int | None) -> Neighbours:
    """Whose privacy is protected where nobody but the caller knows: one record a person, unless they say otherwise."""
    return Neighbours(neighbours or "add-remove", 1 if rows_per_unit is None else rows_per_unit)
