"""What a release would cost, said before anything is read or charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchdp.errors import ReleaseError
from batchdp.ledger import Ledger
from batchdp.ledger.chain import charge
from batchdp.mechanism.measurement import Neighbours
from batchdp.privacy import UNITS, Budget, Noise, round_down, round_up


@dataclass(frozen=True)
class Cost:
    """What a release would cost a ledger, and whose privacy it is about."""

    budget: Budget
    """What the release guarantees: the ε or ρ that was asked for, as it was written."""
    ledger: Noise
    """The noise whose unit the ledger counts in; that of the next three figures."""
    charged: float
    remaining: float
    """What the ledger has before."""
    left: float
    """What it would have afterwards; below 0 where it refuses the release."""
    neighbours: Neighbours
    """What two tables that must not be told apart differ by, and whose privacy that is."""
    is_new: bool
    """Whether the release's id was never charged; if it was, the stored answers are free, or it is refused."""

    @property
    def is_due(self) -> bool:
        """Whether the ledger would be charged: the id is new, and enough is left."""
        return self.is_new and self.left >= 0


Confirm = Callable[[Cost], bool]


def confirmed(confirm: Confirm, cost: Cost) -> None:
    """Go on only if that is wanted; what costs nothing, or will be refused, is not asked about."""
    if cost.is_due and not confirm(cost):
        raise ReleaseError("not confirmed, so nothing was read and nothing was spent")


def cost_of(budget: Budget, ledger: Ledger, release_id: str, neighbours: Neighbours) -> Cost:
    """What the ledger would charge for a release with this guarantee; charges nothing itself."""
    unit, there = UNITS[ledger.unit], ledger.exact_remaining
    due = charge(budget, unit)
    used = any(entry.release_id == release_id for entry in ledger.history())
    figures = round_up(due), round_down(there), round_down(there - due)
    return Cost(budget, unit, *figures, neighbours, is_new=not used)
