"""What a spend costs, in whole billionths of the ledger's unit: exact fractions, rounded up, never floats.

| asked for | ledger in epsilon | ledger in rho |
|---|---|---|
| epsilon | epsilon: pure guarantees add up | epsilon²/2: epsilon-DP implies (epsilon²/2)-zCDP |
| rho | refused: zCDP implies no pure guarantee | rho: zCDP guarantees add up |
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Literal

from batchdp.errors import BudgetError, PrivacyParameterError

Unit = Literal["epsilon", "rho"]
Amount = float | Decimal | Fraction

BILLION = 10**9
MOST = 10**9
"""The largest epsilon or rho taken: it protects nothing, and its billionths still fit SQLite's 64-bit integers."""


def one_of(epsilon: Amount | None, rho: Amount | None) -> tuple[Unit, Amount]:
    """The one that was given."""
    if epsilon is not None and rho is None:
        return "epsilon", epsilon
    if rho is not None and epsilon is None:
        return "rho", rho
    raise PrivacyParameterError(f"epsilon={epsilon!r} and rho={rho!r}: give exactly one of them, e.g. epsilon=0.5")


def exact(unit: Unit, amount: Amount) -> Fraction:
    """The amount as a fraction; a float is the binary fraction that it holds, so 0.1 is slightly more than 1/10."""
    if isinstance(amount, bool) or not isinstance(amount, (Real, Decimal)):
        raise PrivacyParameterError(f"{unit}={amount!r} must be a number above 0; 0.1 to 1 is usual")
    try:
        if isinstance(amount, (int, Fraction)):
            fraction = Fraction(amount)
        elif hasattr(amount, "as_integer_ratio"):
            fraction = Fraction(*map(int, amount.as_integer_ratio()))
        else:
            fraction = Fraction(int(amount))  # NumPy's integers
    except (OverflowError, ValueError):  # infinity, NaN
        raise PrivacyParameterError(f"{unit}={amount!r} must be finite and above 0; 0.1 to 1 is usual") from None
    if fraction <= 0 or float(min(fraction, Fraction(MOST))) == 0:
        raise PrivacyParameterError(f"{unit}={amount!r} must be finite and above 0; 0.1 to 1 is usual")
    if fraction > MOST:
        raise PrivacyParameterError(f"{unit}={amount!r} protects nothing; give at most {MOST:g}, 0.1 to 1 is usual")
    return fraction


def billionths(amount: Fraction) -> int:
    """The least whole number of billionths that is not below the amount."""
    return math.ceil(amount * BILLION)


def charge(unit: Unit, amount: Fraction, *, ledger_unit: Unit) -> int:
    """What a release with this guarantee costs a ledger, in billionths of the ledger's unit."""
    if unit == ledger_unit:
        return billionths(amount)
    if unit == "epsilon":
        return billionths(amount**2 / 2)
    raise BudgetError(
        f"rho={float(amount)!r} cannot be charged to a ledger in epsilon: zCDP gives no pure epsilon guarantee; "
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
