from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from batchdp import PrivacyParameterError
from batchdp.measuring.conversion import epsilon_at, rho_for
from batchdp.measuring.mechanism import mechanism


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("budget", [1e-6, 0.1, 1 / 3, 1.0, 7.7, 1e3])
@pytest.mark.parametrize("sensitivity", [1, 12345, 2**40 + 1])
def test_the_privacy_map_is_within_the_charge_and_not_much_below(privacy: Any, budget: float, sensitivity: int) -> None:
    if sensitivity / budget > 2**54:
        return
    made = mechanism(privacy, sensitivity, budget)
    assert made.loss <= budget
    assert made.loss >= budget * (1 - 1e-12)


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, True, 5e-324, 1e-300])
def test_impossible_budgets_are_refused(budget: Any) -> None:
    for privacy in ("pure", "zcdp"):
        with pytest.raises(PrivacyParameterError, match=r"(epsilon|rho)=.* (above 0|scale)"):
            mechanism(privacy, 2**40, budget)


@pytest.mark.parametrize("sensitivity", [0, -1, 1.5, True, "1"])
def test_impossible_sensitivities_are_refused(sensitivity: Any) -> None:
    with pytest.raises(PrivacyParameterError, match="sensitivity"):
        mechanism("pure", sensitivity, 1.0)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_noise_has_the_promised_scale_and_centre(privacy: Any) -> None:
    made = mechanism(privacy, 1000, 0.5)
    draws = np.array(made.draw([7] * 40_000), dtype=float) - 7
    spread = np.abs(draws).mean() / made.scale if privacy == "pure" else np.square(draws).mean() / made.scale**2
    # Five standard errors of 40 000 draws.
    assert abs(spread - 1) <= 5 * (1 if privacy == "pure" else math.sqrt(2)) / 200
    assert abs(draws.mean()) <= 5 * math.sqrt(made.variance / 40_000)


def test_two_draws_differ() -> None:
    made = mechanism("pure", 2**30, 1.0)
    assert made.draw([0] * 5) != made.draw([0] * 5)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (1e-12, 1e-9), (1e-6, 0.5), (1e9, 1e-6)])
def test_no_larger_rho_is_converted_to_as_little(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta)
    assert epsilon_at(rho, delta) <= epsilon
    if rho < epsilon:
        with suppress(PrivacyParameterError):  # or it cannot be converted at all
            assert epsilon_at(math.nextafter(rho, math.inf), delta) > epsilon


@pytest.mark.parametrize("rho", [1e4, 125_000.0, 1e9])
def test_what_opendp_does_not_convert_is_converted_by_theorem(rho: float) -> None:
    for delta in (1e-3, 1e-12):
        bound = rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert rho < epsilon_at(rho, delta) <= bound * (1 + 1e-9)
        assert rho < 1e5 or epsilon_at(rho, delta) >= bound
    assert rho_for(1e5, 1e-6) < 1e5  # a search that comes across such amounts


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (5.0, 1e-5)])
def test_conversions_are_inverse_and_conservative(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta)
    assert epsilon * (1 - 1e-6) <= epsilon_at(rho, delta) <= epsilon
    # The textbook bound ε = ρ + 2 √(ρ log 1/δ) is never better.
    assert epsilon_at(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("delta", [0, 1, -1e-6, math.nan, True, "1e-6"])
def test_impossible_deltas_are_refused(delta: Any) -> None:
    with pytest.raises(PrivacyParameterError, match="delta"):
        epsilon_at(0.5, delta)
    with pytest.raises(PrivacyParameterError, match="delta"):
        rho_for(0.5, delta)
