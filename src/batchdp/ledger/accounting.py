"""What a spend costs, in whole billionths of the ledger's unit: exact fractions, rounded up, never floats.

| asked for | ledger in epsilon | ledger in rho |
|---|---|---|
| epsilon | epsilon: pure guarantees add up | epsilon²/2: epsilon-DP implies (epsilon²/2)-zCDP |
| rho | refused: zCDP implies no pure guarantee | rho: zCDP guarantees add up |
"""

from __future__ import annotations

import math
from fractions import Fraction

from batchdp.errors import BudgetError
from batchdp.privacy import Budget, Noise

BILLION = 10**9
"""Parts of a unit; a total of `privacy.MOST` in them still fits SQLite's 64-bit integers."""


def billionths(amount: Fraction) -> int:
    """The least whole number of billionths that is not below the amount."""
    return math.ceil(amount * BILLION)


def charge(budget: Budget, ledger: Noise) -> int:
    """What a release with this guarantee costs, in billionths of the unit of a ledger that counts in `ledger.unit`."""
    due = budget.noise.charge(budget.amount, ledger.unit)
    if due is not None:
        return billionths(due)
    raise BudgetError(
        f"rho={float(budget)!r} cannot be charged to a ledger in epsilon: zCDP gives no pure epsilon guarantee; "
        "ask for epsilon= (Laplace noise), or create a ledger with rho="
    )


def as_float(count: int) -> float:
    """Billionths as the nearest float."""
    return count / BILLION


def as_float_below(count: int) -> float:
    """Billionths as the nearest float that is not above: what is left can be asked for and is not refused."""
    nearest = as_float(count)
    return nearest if Fraction(nearest) <= Fraction(count, BILLION) else math.nextafter(nearest, -math.inf)


def as_text(count: int) -> str:
    """Billionths as an exact decimal number, for people."""
    whole, rest = divmod(count, BILLION)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")
