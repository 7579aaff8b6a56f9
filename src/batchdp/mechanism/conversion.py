"""Between (ε, δ)-differential privacy and the budgets of noise; the bounds themselves are in `batchdp.accounting`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

from batchdp.accounting import LEAST_SCALE, epsilon_of_mu2, epsilon_of_rho, gaussian_mu2, largest_mu2, rho_within
from batchdp.errors import PrivacyParameterError
from batchdp.privacy import (
    CURRENCIES,
    GAUSSIAN,
    LAPLACE,
    Amount,
    Budget,
    Currency,
    Noise,
    round_down,
    round_up,
    shortest,
)

GAUSSIAN_SHARE = Fraction(999, 1000)
"""Of δ, that Gaussian noise alone gets; the rest is for ledgers in which other noise is spent too."""


EPSILON_OF: dict[Currency, Callable[[Fraction, Fraction], Fraction]] = {
    "epsilon": lambda amount, _: amount,
    "rho": epsilon_of_rho,
    "mu2": epsilon_of_mu2,
}
"""From an amount of a currency and a δ."""


def epsilon_at(rho: float, delta: float) -> float:
    """The ε for which ρ-zCDP implies (ε, δ)-differential privacy."""
    return epsilons_at(rho, [delta])[0]


def epsilons_at(rho: float, deltas: Sequence[float]) -> list[float]:
    """The same for several δ."""
    amount = Budget(GAUSSIAN, rho).amount
    return [round_up(epsilon_of_rho(amount, shortest(check_delta(delta)))) for delta in deltas]


def epsilon_of(budget: Budget, delta: float, scale: float | None = None) -> float:
    """The ε of the (ε, δ)-differential privacy that a release stands for.

    Args:
        budget: what was asked for.
        delta: the δ.
        scale: `Noise.least_scale` of what was drawn, with which Gaussian noise has a smaller ε than by ρ alone.
    """
    charges = {unit: budget.noise.charge(budget.amount, unit, scale) for unit in CURRENCIES}
    return round_up(least_epsilon(charges, delta))


def add_up(amounts: Iterable[Fraction | None]) -> Fraction | None:
    """The sum of some amounts of one currency; None where one of them cannot be said in it."""
    total = Fraction(0)
    for one in amounts:
        if one is None:
            return None
        total += one
    return total


def least_epsilon(amounts: Mapping[Currency, Fraction | None], delta: Amount, found: Fraction | int = 0) -> Fraction:
    """The least ε with δ that follows from any of some amounts, all of which are of the same releases.

    Args:
        amounts: what was spent in every currency.
        delta: the δ.
        found: what of it went to values found by thresholds.
    """
    exact = exact_delta(delta) - found
    pure = amounts.get(LAPLACE.unit)
    if exact < 0 or (not exact and pure is None):
        raise PrivacyParameterError(
            f"delta={float(delta):g} is not above the {float(found):g} that values found by thresholds have spent; "
            "ask for a larger one"
        )
    if not exact:
        return pure or Fraction(0)
    return min(
        EPSILON_OF[unit](amount, exact) if amount else Fraction(0)
        for unit, amount in amounts.items()
        if amount is not None
    )


def describe_guarantee(amounts: Mapping[Currency, Fraction | None], delta: Amount, found: Fraction | int = 0) -> str:
    """Some amounts of the same releases beside each other: (ε, δ), or ε where it is pure, then ρ and μ where known."""
    pure, mu2 = None if found else amounts["epsilon"], amounts["mu2"]
    epsilon = float(least_epsilon(amounts, delta, found))
    parts = [f"ε = {float(pure):.6g}"] if pure is not None else []
    if pure is None or epsilon < float(pure):
        parts.append(f"(ε, δ) = ({epsilon:.6g}, {float(delta):g})")
    if not found:
        parts += [f"ρ = {float(amounts['rho'] or 0):.6g}"]
    return ", ".join(parts + ([f"μ = {math.sqrt(mu2):.6g}"] if mu2 is not None else []))


def describe_charges(budget: Budget, delta: Amount, scale: float | None = LEAST_SCALE) -> str:
    """What a release costs, in every currency that it has; for noise of this scale or larger."""
    charges = {unit: budget.noise.charge(budget.amount, unit, scale) for unit in CURRENCIES}
    return describe_guarantee(charges, delta)


def epsilon_asking(rho: float, delta: Amount) -> float:
    """The ε with which (ε, δ) gives Gaussian noise at least so much ρ."""
    mu2 = gaussian_mu2(Budget(GAUSSIAN, rho).amount, Fraction(LEAST_SCALE))
    found = round_up(epsilon_of_mu2(mu2, exact_delta(delta) * GAUSSIAN_SHARE))
    while rho_for(found, delta) < rho:
        found *= 1 + 1e-9
    return found


def rho_for(epsilon: Amount, delta: Amount) -> float:
    """The largest ρ of Gaussian noise that a ledger of (ε, δ) grants: by its exact profile, as it is drawn."""
    most = Budget(LAPLACE, epsilon).amount
    found = round_down(rho_within(largest_mu2(most, exact_delta(delta) * GAUSSIAN_SHARE)))
    if not found > 0:
        raise PrivacyParameterError(f"epsilon={epsilon!r} with delta={delta!r} leaves no budget; raise one of them")
    return found


def budget_of(
    noise: Noise, *, epsilon: Amount | None = None, rho: Amount | None = None, delta: Amount | None = None
) -> Budget:
    """From the arguments that a door has: ε or ρ, whichever the noise takes, or (ε, δ), which any noise takes.

    Pure noise promises ε with no δ at all, and so with every δ.
    """
    if delta is None:
        return Budget.of(noise, epsilon=epsilon, rho=rho)
    if epsilon is None or rho is not None:
        raise PrivacyParameterError(f"delta={delta!r} goes with epsilon=, and rho has none; give epsilon and delta")
    exact_delta(delta)
    return Budget(noise, epsilon if noise.is_pure else rho_for(epsilon, delta))


def check_delta(delta: Any) -> float:
    """The δ, checked to be a probability that can be meant."""
    return float(exact_delta(delta))


def exact_delta(delta: Any) -> Fraction:
    """The same, as the shortest decimal number that it stands for."""
    try:
        number = math.nan if isinstance(delta, bool) or not isinstance(delta, Real | Decimal) else float(delta)
    except (OverflowError, ValueError):  # a number beyond every float, a signaling NaN
        number = math.nan
    if not 0 < number < 1:
        raise PrivacyParameterError(f"delta={delta!r} must be between 0 and 1; below one over the number of people")
    exact = shortest(round_down(Fraction(delta)) if isinstance(delta, Fraction | Decimal) else number)
    if not math.log10(float(exact) or 1e-320) > -300:
        raise PrivacyParameterError(f"delta={delta!r} is as good as none; give at least 1e-300, or leave it out")
    return exact
