"""Between ρ-zCDP and (ε, δ)-differential privacy, by OpenDP's own conversion."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from batchdp.errors import PrivacyParameterError
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget

BISECTIONS = 60


def epsilon_at(rho: float, delta: float) -> float:
    """The ε for which ρ-zCDP implies (ε, δ)-differential privacy."""
    return float(_profile(float(Budget(GAUSSIAN, rho))).epsilon(checked_delta(delta)))


def epsilon_of(budget: Budget, delta: float) -> float:
    """The ε of the (ε, δ)-differential privacy that a budget stands for: its own, or converted from ρ."""
    checked_delta(delta)
    return float(budget) if budget.noise == LAPLACE else epsilon_at(float(budget), delta)


def rho_for(epsilon: float, delta: float) -> float:
    """The largest ρ (to within one part in 10^15) whose conversion is at most (ε, δ)."""
    epsilon = float(Budget(LAPLACE, epsilon))
    checked_delta(delta)
    low, high = 0.0, epsilon  # ρ-zCDP has ε(δ) > ρ for every δ < 1
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if middle > 0 and epsilon_at(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    if low == 0.0:
        raise PrivacyParameterError(f"epsilon={epsilon!r} with delta={delta!r} leaves no budget; raise one of them")
    return low


def checked_delta(delta: float) -> float:
    """The δ, checked to be a probability that can be meant."""
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < 1:
        raise PrivacyParameterError(f"delta={delta!r} must be between 0 and 1; below one over the number of people")
    return float(delta)


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
