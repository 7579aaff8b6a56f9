"""The kinds of noise and the budget that each takes, as values.

Texts stay at the doors: "pure" and "zcdp" where people, files and the command line name a kind of privacy, `epsilon`
and `rho` where they give a budget. Behind the doors a `Noise` says what follows from the kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from batchdp.accounting import epsilon_within, gaussian_mu2, laplace_rho, rho_within, root_below
from batchdp.errors import PrivacyParameterError, StrategyError

Privacy = Literal["pure", "zcdp"]
"""The kind of privacy, as people, files and the command line name it."""
Unit = Literal["epsilon", "rho"]
"""The argument that a budget is given by."""
Currency = Literal["epsilon", "rho", "mu2"]
"""What adds up over releases: Σε, Σρ, or Σμ² of Gaussian noise alone."""
CURRENCIES: tuple[Currency, ...] = get_args(Currency)
LETTERS: dict[str, str] = {"epsilon": "ε", "rho": "ρ", "mu2": "μ²"}
"""The currencies, for people."""
Amount = float | Decimal | Fraction

MOST_PLACES = 1000
"""Of a decimal number, before or behind the point."""
MOST = 10**9
"""The largest ε or ρ that is taken: beyond it nothing is protected."""


@dataclass(frozen=True)
class Noise:
    """A kind of noise: how it is scaled, what it costs, what it is called."""

    privacy: Privacy
    name: str
    """The distribution."""
    norm: int
    """1 or 2: the noise is scaled to the largest L1 or L2 norm of a column of L."""
    unit: Unit
    letter: str
    """The unit's, for people."""
    described: str
    """Distribution and guarantee in a few words."""
    factor: float
    degree: int
    """The variance is factor · Δ² / budget^degree."""
    variance_at_one: float
    """The variance at scale 1: 2 for a Laplace distribution of λ = 1, 1 for a Gaussian one of σ = 1."""
    excess_kurtosis: float
    """Fourth moment over squared variance, less 3."""
    bound_is_tight: bool
    """Whether the convex lower bound can be reached with this noise."""

    def variance(self, squared_sensitivity: float, budget: float) -> float:
        """Of the noise on one measurement: 2 (Δ/ε)² or Δ²/2ρ."""
        found = self.factor * squared_sensitivity
        for _ in range(self.degree):  # a tiny budget squared would be 0
            found /= budget
        return found

    def scale(self, sensitivity: float, budget: float) -> float:
        """The λ = Δ/ε or σ = Δ/√2ρ that the budget asks for."""
        return sensitivity / (budget if self.norm == 1 else math.sqrt(2 * budget))

    def loss(self, moved: int, scale: float | Fraction) -> Fraction:
        """What noise of this scale loses, exactly: Δ / λ, or Δ² / 2 σ²; `moved` is Δ to the power of the norm."""
        return Fraction(moved) / (self.norm * Fraction(scale) ** self.norm)

    def charge(self, amount: Fraction, unit: Currency, scale: float | None = None) -> Fraction | None:
        """What a release with this budget costs where `unit` is counted; None where it promises none of it.

        Args:
            amount: the budget.
            unit: the currency.
            scale: `least_scale` of the noise that is drawn; None where nobody knows.
        """
        return amount if unit == self.unit else None

    def least_scale(self, scales: Iterable[float]) -> float | None:
        """The least λ or σ that is drawn, in lattice steps, where the charge depends on it; None of other noise."""
        return None

    def affordable(self, left: Fraction, unit: Currency, scale: float | None = None) -> Fraction:
        """The largest budget, rounded down, whose charge is at most so much."""
        return left if unit == self.unit else Fraction(0)

    @property
    def is_pure(self) -> bool:
        """Whether the promise is ε-differential privacy, with no δ."""
        return self.unit == "epsilon"

    def together(self, sensitivities: NDArray[Any], *, at_right_angles: bool) -> float:
        """The sensitivity of several blocks, in each of which a record has a cell.

        L2 norms of measurements that share no row add up by squares; all others add up.
        """
        return float(np.linalg.norm(sensitivities, ord=self.norm if at_right_angles else 1))

    def shares(self, errors: NDArray[Any], *, of_sum: bool) -> NDArray[np.float64]:
        """The sensitivities p of blocks with errors E_g / p_g² that leave the least sum, or the least largest.

        Σ p^q = 1 with q the norm. The sum is least where p^(q + 2) ∝ E, the largest where p² ∝ E.
        """
        parts = np.power(errors, 1 / (self.norm + 2 if of_sum else 2))
        return np.asarray(parts / np.linalg.norm(parts, ord=self.norm))

    def implied_by(self, epsilon: float) -> Budget:
        """The budget that ε-differential privacy implies: ε itself, or ρ = ε²/2."""
        return Budget(self, LAPLACE.charge(Budget(LAPLACE, epsilon).amount, self.unit))

    @cached_property
    def reference(self) -> Budget:
        """The budget that figures are compared at: ε = 1, or the ρ = ½ that it implies."""
        return self.implied_by(1.0)


class Pure(Noise):
    """Noise that promises ε-differential privacy."""

    def charge(self, amount: Fraction, unit: Currency, scale: float | None = None) -> Fraction | None:
        """ε itself, or ρ = ε²/2, which ε-differential privacy implies."""
        return amount**2 / 2 if unit == "rho" else super().charge(amount, unit, scale)

    def affordable(self, left: Fraction, unit: Currency, scale: float | None = None) -> Fraction:
        """ε itself, or √2ρ."""
        return root_below(2 * left) if unit == "rho" else super().affordable(left, unit, scale)


class Laplace(Pure):
    """Independent discrete Laplace noise on every measurement."""

    def charge(self, amount: Fraction, unit: Currency, scale: float | None = None) -> Fraction | None:
        """ε itself, or the ρ of what is drawn: about ε + e^−ε − 1."""
        if unit == "rho" and scale is not None:
            return laplace_rho(amount, Fraction(scale))
        return super().charge(amount, unit, scale)

    def affordable(self, left: Fraction, unit: Currency, scale: float | None = None) -> Fraction:
        """ε itself, or the one that costs so much ρ."""
        if unit == "rho" and scale is not None:
            return epsilon_within(left, Fraction(scale))
        return super().affordable(left, unit, scale)

    def least_scale(self, scales: Iterable[float]) -> float | None:
        """The least λ that is drawn."""
        return min(filter(None, scales), default=None)


class KNorm(Pure):
    """Noise in the shape of the measurements' own columns: its density falls with the norm whose ball is their hull.

    It costs what Laplace noise costs, and a sum of its squares has no closed form: figures come from a sample.
    """


class Gaussian(Noise):
    """Independent discrete Gaussian noise on every measurement."""

    def charge(self, amount: Fraction, unit: Currency, scale: float | None = None) -> Fraction | None:
        """ρ itself, or the μ² of what is drawn: a little above 2ρ."""
        if unit == "mu2" and scale is not None:
            return gaussian_mu2(amount, Fraction(scale))
        return super().charge(amount, unit, scale)

    def affordable(self, left: Fraction, unit: Currency, scale: float | None = None) -> Fraction:
        """ρ itself, or the one that costs so much μ²."""
        if unit == "mu2" and scale is not None:
            return rho_within(left, Fraction(scale))
        return super().affordable(left, unit, scale)

    def least_scale(self, scales: Iterable[float]) -> float | None:
        """The least σ that is drawn."""
        return min(filter(None, scales), default=None)


LAPLACE = Laplace("pure", "Laplace", 1, "epsilon", "ε", "Laplace (pure ε)", 2.0, 2, 2.0, 3.0, bound_is_tight=False)
KNORM = KNorm("pure", "K-norm", 1, "epsilon", "ε", "K-norm (pure ε)", 2.0, 2, 2.0, 3.0, bound_is_tight=False)
GAUSSIAN = Gaussian("zcdp", "Gaussian", 2, "rho", "ρ", "Gaussian (zCDP)", 0.5, 1, 1.0, 0.0, bound_is_tight=True)
NOISES: dict[str, Noise] = {noise.privacy: noise for noise in (LAPLACE, GAUSSIAN)}
"""By the text that names the kind of privacy."""
NAMED: dict[str, Noise] = {noise.name: noise for noise in (LAPLACE, KNORM, GAUSSIAN)}
"""By the name of the distribution, as certificates have it; a new kind of noise is added here."""
UNITS: dict[str, Noise] = {noise.unit: noise for noise in NOISES.values()}
"""By the unit of its budget, which is what a ledger knows."""


def noise_of(privacy: str) -> Noise:
    """The noise that a text at the door stands for."""
    try:
        return NOISES[privacy]
    except (KeyError, TypeError):
        raise StrategyError(f'privacy={privacy!r} must be "pure" (Laplace) or "zcdp" (Gaussian)') from None


@dataclass(frozen=True, init=False)
class Budget:
    """ε or ρ: the exact number that was given, finite and above 0.

    A float is read as the shortest decimal number that stands for it, as people write it: 0.1 is 1/10.
    """

    noise: Noise
    amount: Fraction

    def __init__(self, noise: Noise, amount: Amount | Any) -> None:
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "amount", _exact(noise.unit, amount))

    @classmethod
    def of(cls, noise: Noise, *, epsilon: Amount | None = None, rho: Amount | None = None) -> Budget:
        """From the two arguments that a door has: the one that this noise takes, and not the other."""
        given = {"epsilon": epsilon, "rho": rho}
        amount = given.pop(noise.unit)
        for other, value in given.items():
            if value is not None:
                raise PrivacyParameterError(
                    f"{other}={value!r} is not the budget of {noise.name} noise; give {noise.unit} instead"
                )
        if amount is None:
            raise PrivacyParameterError(f"{noise.unit} is missing; give the privacy budget, e.g. {noise.unit}=1.0")
        return cls(noise, amount)

    @classmethod
    def either(cls, *, epsilon: Amount | None = None, rho: Amount | None = None) -> Budget:
        """From the two arguments where any noise will do: exactly one of them must be given."""
        given = {unit: amount for unit, amount in (("epsilon", epsilon), ("rho", rho)) if amount is not None}
        if len(given) != 1:
            raise PrivacyParameterError(
                f"epsilon={epsilon!r} and rho={rho!r}: give exactly one of them, e.g. epsilon=0.5"
            )
        ((unit, amount),) = given.items()
        return cls(UNITS[unit], amount)

    def variance(self, squared_sensitivity: float) -> float:
        """Of the noise on one measurement."""
        return self.noise.variance(squared_sensitivity, float(self))

    @property
    def arguments(self) -> dict[str, Any]:
        """The budget as the keyword argument that public functions take."""
        return {self.noise.unit: float(self)}

    def __float__(self) -> float:
        return float(self.amount)

    def __str__(self) -> str:
        return f"{self.noise.letter} = {float(self):g}"


def shortest(number: float) -> Fraction:
    """The shortest decimal number that a float stands for: 1/10 for 0.1, which as a binary number is a little more."""
    return Fraction(repr(float(number)))


def round_down(amount: Fraction) -> float:
    """The nearest float that, read as its shortest decimal number, is not above the amount."""
    nearest = float(amount)
    return nearest if shortest(nearest) <= amount else math.nextafter(nearest, -math.inf)


def round_up(amount: Fraction) -> float:
    """The nearest float that, read as its shortest decimal number, is not below the amount."""
    nearest = float(amount)
    return nearest if shortest(nearest) >= amount else math.nextafter(nearest, math.inf)


def _exact(unit: Unit, amount: Any) -> Fraction:
    if isinstance(amount, Budget):  # as `plan_for` says what is needed
        if amount.noise.unit != unit:
            raise PrivacyParameterError(f"{unit} is given as a budget of {amount}; give it as {amount.noise.unit}")
        return amount.amount
    if isinstance(amount, bool | np.bool_) or not isinstance(amount, (Real, Decimal)):
        raise PrivacyParameterError(f"{unit}={amount!r} must be a number above 0; 0.1 to 1 is usual")
    number: Any = amount.item() if isinstance(amount, np.generic) else amount
    if isinstance(number, Decimal) and number.is_finite() and abs(number.adjusted()) > MOST_PLACES:
        raise PrivacyParameterError(f"{unit}={number:.3e} must be finite and above 0; 0.1 to 1 is usual")
    try:
        fraction = shortest(number) if isinstance(number, float) else Fraction(*map(int, number.as_integer_ratio()))
    except (OverflowError, ValueError):  # infinity, NaN
        raise PrivacyParameterError(f"{unit}={amount!r} must be finite and above 0; 0.1 to 1 is usual") from None
    if fraction > MOST:
        raise PrivacyParameterError(f"{unit}={amount!r} protects nothing; give at most {MOST:g}, 0.1 to 1 is usual")
    if fraction <= 0 or float(fraction) == 0:
        raise PrivacyParameterError(f"{unit}={amount!r} must be finite and above 0; 0.1 to 1 is usual")
    return fraction
