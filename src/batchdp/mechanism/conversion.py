"""Between ρ-zCDP and (ε, δ)-differential privacy, by OpenDP's own conversion, or by theorem where that gives up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Real
from typing import Any

from batchdp.errors import PrivacyParameterError
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget

LEAST = 1e-300
"""The least ρ that is looked for."""


def epsilon_at(rho: float, delta: float) -> float:
    """The ε for which ρ-zCDP implies (ε, δ)-differential privacy."""
    return epsilons_at(rho, [delta])[0]


def epsilons_at(rho: float, deltas: Sequence[float]) -> list[float]:
    """The same for several δ."""
    from opendp.mod import OpenDPException

    budget = float(Budget(GAUSSIAN, rho))
    try:
        return list(_convert(budget, tuple(map(check_delta, deltas))))
    except OpenDPException:  # beyond some ten thousand
        return by_theorem(budget, deltas)


def by_theorem(rho: float, deltas: Sequence[float]) -> list[float]:
    """An ε for each δ, a little larger, for any ρ: ρ + 2 √(ρ ln(1/δ)) (Bun and Steinke, 2016), rounded up."""
    return [(rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-12) for delta in deltas]


def epsilon_of(budget: Budget, delta: float) -> float:
    """The ε of the (ε, δ)-differential privacy that a budget stands for: its own, or converted from ρ."""
    check_delta(delta)
    return float(budget) if budget.noise.is_pure else epsilon_at(float(budget), delta)


def rho_for(epsilon: float, delta: float) -> float:
    """The largest ρ whose conversion is at most (ε, δ); never more than ε."""
    import opendp.prelude as dp

    most = float(Budget(LAPLACE, epsilon))
    check_delta(delta)

    def holds(rho: float) -> bool:
        return epsilon_at(rho, delta) <= most

    if holds(most):
        return most
    try:
        return float(dp.binary_search(holds, bounds=(LEAST, most)))
    except ValueError:
        raise PrivacyParameterError(
            f"epsilon={epsilon!r} with delta={delta!r} leaves no budget; raise one of them"
        ) from None


def check_delta(delta: float) -> float:
    """The δ, checked to be a probability that can be meant."""
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < 1:
        raise PrivacyParameterError(f"delta={delta!r} must be between 0 and 1; below one over the number of people")
    return float(delta)


@lru_cache(maxsize=256)
def _convert(rho: float, deltas: tuple[float, ...]) -> tuple[float, ...]:
    """Remembered: a conversion takes milliseconds, and releases from one ledger tend to cost the same."""
    profile = _profile(rho)
    return tuple(float(profile.epsilon(delta)) for delta in deltas)


def _profile(rho: float) -> Any:
    """OpenDP's privacy profile of a Gaussian mechanism with this ρ."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T="f64", nan=False), dp.absolute_distance(T="f64")
    scale = 1 / math.sqrt(2 * rho)
    while True:
        gaussian: Any = dp.m.make_gaussian(*space, scale=scale)
        if gaussian.map(1.0) >= rho:
            converted: Any = dp.c.make_zCDP_to_approxDP(gaussian)
            return converted.map(1.0)
        scale = math.nextafter(scale, 0.0)  # never convert a smaller ρ than was asked for
