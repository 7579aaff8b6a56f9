"""Whether a spend is granted, what may still be asked for, and which promise follows from another one."""

from __future__ import annotations

import sys
from fractions import Fraction

from batchdp.accounting import LEAST_SCALE, largest_mu2
from batchdp.errors import BudgetError, LedgerError, PrivacyParameterError
from batchdp.ledger.account import DELTA, Account, Charges, Filter, cut_off
from batchdp.ledger.chain import LONGEST_TEXT, as_text
from batchdp.mechanism.conversion import exact_delta, least_epsilon
from batchdp.privacy import LAPLACE, UNITS, Amount, Budget, Currency, Noise

MOST_FLOAT = sys.float_info.max


def check_scale(scale: float) -> float:
    """The least λ or σ that is drawn, refused where it is none."""
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not LEAST_SCALE <= scale <= MOST_FLOAT:
        raise BudgetError(f"scale={scale!r} must be a finite number of lattice steps, at least {LEAST_SCALE:g}")
    return float(scale)


def check_text(name: str, value: str) -> str:
    """What an entry says, refused where it is empty, too long, or cannot be printed."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST_TEXT:
        raise BudgetError(f"{name}={str(value)[:50]!r} must be 1 to {LONGEST_TEXT} printable characters")
    return value


def check_admitted(
    account: Account, after: Account, asked: Budget, due: Charges, share: str, scale: float | None
) -> None:
    """Refuse a spend after which no filter admits the whole history."""
    if after.admitting:
        return
    of = f" of share {share!r}" if share else " of what no share has" if account.shares else ""
    if (found := due.get(DELTA) or Fraction(0)) > account.delta_left(share):
        raise BudgetError(
            f"delta={float(found):g} is more than is left{of} for values found by thresholds: "
            f"{as_text(account.delta_left(share), found)} of {as_text(account.thresholds)}; ask for at most that, or "
            "create a ledger with a larger thresholds="
        )
    told = []
    for unit in account.admitting:
        left, cost = account.left(unit, share) or Fraction(0), due[unit]
        part = account.filters[unit].total * account.part(share) / account.total
        figures = f"{as_text(part - left, part)} of {unit} {as_text(part)}{of} is spent"
        requested = "more" if cost is None else as_text(cost, left)
        told.append(f"{figures}, {requested} is requested, {as_text(left, cost or left)} is left")
    plain = account.filters.keys() == {asked.noise.unit} or len(account.filters) > 1
    price = "" if plain else f", which costs {account.unit} {as_text(due[account.unit] or Fraction(0))},"
    most = remaining_for(account, asked.noise, share, scale)
    others = (noise.unit for noise in UNITS.values() if remaining_for(account, noise, share))
    remedy = (
        f"ask for at most {asked.noise.unit} {as_text(most, asked.amount)}"
        if most
        else f"what is left can be asked for as {other} alone"
        if (other := next(others, None))
        else "only earlier releases can be had again, by their ids"
    )
    raise BudgetError(
        f"{asked.noise.unit}={float(asked)!r}{price} is more than is left: {'; or '.join(told)}; {remedy}"
    )


def remaining_for(account: Account, noise: Noise, share: str = "", scale: float | None = LEAST_SCALE) -> Fraction:
    """The largest budget of a kind of noise, of this scale or larger, that a share would be granted."""
    account.check_share(share)
    left = {unit: account.left(unit, share) for unit in account.filters}
    return max((noise.affordable(most, unit, scale) for unit, most in left.items() if most), default=Fraction(0))


def epsilon_spent(account: Account) -> Fraction:
    """The least ε that a filter's currency shows for all that was spent, at the δ of that filter."""
    sums, whole = {unit: account.sum(unit) for unit in account.admitting}, account.delta or Fraction(1, 2)
    return min(least_epsilon({unit: spent}, account.filters[unit].delta or whole) for unit, spent in sums.items())


def promise_with(account: Account, delta: Amount) -> Account:
    """A promise of (ε, δ) that the one of an ε or ρ ledger stands for already, and that has its filter among others.

    The old filter stays and keeps its part of δ, so that the promise also holds where it depends on earlier answers
    whether the ledger is carried over. With ρ it is half of δ; ε needs none.
    """
    if account.delta is not None or account.shares:
        raise LedgerError("a ledger that has a delta already, or shares, is not carried over to another promise")
    if UNITS[account.unit].is_pure:
        return Account.of(Budget(LAPLACE, account.total), delta)
    half = cut_off(exact_delta(delta) / 2)
    epsilon = least_epsilon({account.unit: account.total}, half)
    if not epsilon > 0:
        raise LedgerError(
            f"delta={delta} alone is as much as this ledger's {account.promise} stands for; give a smaller delta"
        )
    filters: dict[Currency, Filter] = {
        "mu2": Filter(largest_mu2(epsilon, half), half),
        account.unit: Filter(account.total, half),
    }
    held = {unit: one for unit, one in filters.items() if one.total > 0}
    return Account(LAPLACE.unit, epsilon, held, exact_delta(delta))


def with_delta(asked: Budget, delta: Amount | None) -> Budget:
    """The budget; refused where it is no ε and a δ goes with it."""
    if delta is not None and not asked.noise.is_pure:
        raise PrivacyParameterError(f"delta={delta!r} goes with epsilon=; values are not found with rho")
    return asked
