"""Groups of records, and queries that are asked of a group alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchdp.queries.amounts import Amount, Choice, Constant
from batchdp.queries.conditions import All, Condition

_NOTHING = Constant(0.0)


@dataclass(frozen=True)
class Group:
    """The records for which the first condition that is true is one of the group's; or none is, if `rest`."""

    title: str
    cases: tuple[tuple[Condition, bool], ...]
    """Conditions in the order of the CASE, each with whether it leads here."""
    rest: bool = False

    @property
    def condition(self) -> Condition | None:
        """The one condition that says it all; None for a CASE."""
        return self.cases[0][0] if len(self.cases) == 1 and self.cases[0][1] and not self.rest else None

    def of(self, amount: Amount) -> Amount:
        """The amount for records in the group, nothing for others."""
        found: Amount = amount if self.rest else _NOTHING
        for holds, here in reversed(self.cases):
            found = Choice(holds, amount if here else _NOTHING, found)
        return found


def restricted(amount: Amount, groups: Sequence[Group], where: Condition | None) -> Amount:
    """The amount for records in all of these groups that fulfil the condition, nothing for others."""
    conditions = [group.condition for group in groups if group.condition is not None]
    conditions += [] if where is None else [where]
    for group in reversed(groups):
        if group.condition is None:
            amount = group.of(amount)
    if not conditions:
        return amount
    return Choice(conditions[0] if len(conditions) == 1 else All(tuple(conditions)), amount, _NOTHING)
