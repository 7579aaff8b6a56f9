"""What a spend costs, exactly: decimal numbers, and a float is the shortest one that it stands for.

| asked for | ledger in epsilon | ledger in rho |
|---|---|---|
| epsilon | epsilon: pure guarantees add up | epsilon²/2: epsilon-DP implies (epsilon²/2)-zCDP |
| rho | refused: zCDP implies no pure guarantee | rho: zCDP guarantees add up |
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from batchdp.errors import BudgetError
from batchdp.privacy import Budget, Noise

PLACES = 650
"""Decimal places that are counted: half the square of any float has fewer. Only a fraction such as 1/3 is rounded."""
BILLION = 10**9
"""Earlier versions counted whole billionths; `privacy.MOST` in them still fits SQLite's 64-bit integers."""
SHOWN = 30
"""Decimal places that are written out for people."""
EXACT = re.compile(rf"[0-9]{{1,10}}\.[0-9]{{1,{PLACES}}}")


def grant(budget: Budget) -> Fraction:
    """What a ledger with this total grants: never more than it says."""
    return Fraction(math.floor(budget.amount * 10**PLACES), 10**PLACES)


def charge(budget: Budget, ledger: Noise) -> Fraction:
    """What a release with this guarantee costs, in the unit of a ledger that counts in `ledger.unit`: never less."""
    due = budget.noise.charge(budget.amount, ledger.unit)
    if due is None:
        raise BudgetError(
            f"rho={float(budget)!r} cannot be charged to a ledger in epsilon: zCDP gives no pure epsilon guarantee; "
            "ask for epsilon= (Laplace noise), or create a ledger with rho="
        )
    return Fraction(math.ceil(due * 10**PLACES), 10**PLACES)


def in_billionths(cost: Fraction) -> Fraction:
    """What earlier versions charged: the least whole billionths that are not below."""
    return Fraction(math.ceil(cost * BILLION), BILLION)


def as_decimal(amount: Fraction, places: int = PLACES) -> str:
    """An amount as a decimal number, cut off behind so many places."""
    whole, rest = divmod(math.floor(amount * 10**places), 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


def as_text(amount: Fraction) -> str:
    """An amount for people: exact, or with dots where it is cut off."""
    shown = as_decimal(amount, SHOWN)
    return shown if Fraction(shown) == amount else f"{shown}…"
