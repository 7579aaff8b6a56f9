"""What is charged against independent computations: never below, hardly above. benchmarks/accounting.py is longer."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import accounting
from batchdp.accounting import (
    APART,
    COORDINATES,
    ROUNDING,
    epsilon_of_mu2,
    epsilon_of_rho,
    epsilon_within,
    gaussian_delta,
    gaussian_mu2,
    laplace_rho,
    largest_mu2,
    largest_rho,
    rho_within,
    root_below,
    round_digits,
)
from batchdp.errors import PrivacyParameterError
from batchdp.mechanism.conversion import budget_of, epsilon_asking, epsilon_of, rho_for
from batchdp.privacy import GAUSSIAN, KNORM, LAPLACE, Budget, shortest

CASES = 8


# ── Laplace noise in ρ ──


@pytest.mark.parametrize("scale", [0.3, 1.0, 64.0, 1e4])
@pytest.mark.parametrize("moved", [1, 2, 3, 10, 1000])
def test_discrete_laplace_noise_has_the_kl_divergence_and_no_order_asks_for_more(scale: float, moved: int) -> None:
    """By adding up the distribution itself, in floats, for orders from 1.001 to a thousand."""
    reach = np.arange(-int(60 * scale) - 60, moved + int(60 * scale) + 60)
    log_p = -np.abs(reach) / scale
    log_p -= np.log(np.exp(log_p).sum())
    loss = (np.abs(reach - moved) - np.abs(reach)) / scale
    kl = float(np.exp(log_p) @ loss)
    charged = float(laplace_rho(Fraction(moved) / Fraction(scale), Fraction(scale)))
    assert kl * (1 - 1e-9) <= charged <= max(kl * (1 + 1e-9), kl + 1e-12)
    for order in (1.001, 1.1, 2, 5, 30, 1000):
        exponents = log_p + (order - 1) * loss
        most = exponents.max()
        renyi = (most + math.log(np.exp(exponents - most).sum())) / (order - 1)
        assert renyi / order <= charged * (1 + 1e-9) + 1e-12


def test_a_laplace_release_of_one_costs_three_quarters_of_what_it_did() -> None:
    assert laplace_rho(Fraction(1), Fraction(64)) <= Fraction("0.370")
    for scale in (64.0, 2.0**30):
        assert LAPLACE.charge(Fraction(1), "rho", scale) == laplace_rho(Fraction(1), Fraction(scale))
    assert LAPLACE.charge(Fraction(1), "rho") == KNORM.charge(Fraction(1), "rho", 64.0) == Fraction(1, 2)


@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**9), max_value=100, max_denominator=10**12),
    part=st.fractions(min_value=0, max_value=1, max_denominator=1000),
    scale=st.floats(min_value=64, max_value=2**55),
)
@settings(max_examples=50)
def test_several_coordinates_cost_at_most_what_one_with_all_of_it_does(
    epsilon: Fraction, part: Fraction, scale: float
) -> None:
    b = Fraction(scale)
    whole, halves = laplace_rho(epsilon, b), laplace_rho(epsilon * part, b) + laplace_rho(epsilon * (1 - part), b)
    assert halves <= whole * (1 + Fraction(1, 10**25))
    assert laplace_rho(epsilon, b) <= min(epsilon**2 / 2, laplace_rho(epsilon, Fraction(64)))
    assert laplace_rho(epsilon, b) <= laplace_rho(epsilon * (1 + part), b)


# ── Gaussian noise in (ε, δ) ──


@given(mu2=st.floats(min_value=1e-6, max_value=50), times=st.floats(min_value=0.01, max_value=6))
@settings(max_examples=60)
def test_the_profile_is_that_of_gaussian_noise_and_rounded_up(mu2: float, times: float) -> None:
    mu = math.sqrt(mu2)
    epsilon = times * mu
    expected = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    found = float(gaussian_delta(Fraction(mu2), Fraction(epsilon)))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-13)


def test_the_correction_is_what_the_proof_says() -> None:
    assert Fraction(4 * math.exp(-2 * math.pi**2 * ROUNDING)) < APART / COORDINATES < Fraction("2.2e-34")
    assert gaussian_mu2(Fraction(1, 2), Fraction(64)) >= Fraction(4096, 4092)
    assert gaussian_mu2(Fraction(1, 2), Fraction(64)) - Fraction(4096, 4092) < Fraction(1, 10**28)
    assert GAUSSIAN.charge(Fraction(1, 2), "mu2") is None  # any noise of this ρ


def test_one_gaussian_release_has_an_eighth_less_variance_than_through_rho() -> None:
    through_rho = largest_rho(Fraction(1), Fraction(1, 10**6))
    assert float(through_rho) == pytest.approx(0.02436, rel=1e-3)
    assert 1 - through_rho / shortest(rho_for(1.0, 1e-6)) >= Fraction("0.129")


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01, 0.5])
@pytest.mark.parametrize("epsilon", [0.001, 0.5, 8.0])
def test_what_is_found_by_searching_holds_and_hardly_anything_more_does(epsilon: float, delta: float) -> None:
    e, d = shortest(epsilon), shortest(delta)
    more = 1 + Fraction(1, 10**12)
    mu2, rho = largest_mu2(e, d), largest_rho(e, d)
    assert gaussian_delta(mu2, e) <= d < gaussian_delta(mu2 * more, e)
    assert epsilon_of_rho(rho, d) <= e < epsilon_of_rho(rho * more, d)
    again = epsilon_of_mu2(mu2, d)
    assert gaussian_delta(mu2, again) <= d
    assert e * (1 - Fraction(1, 10**9)) <= again <= e * (1 + Fraction(1, 10**7))
    for scale in (Fraction(64), Fraction(10**6)):
        assert mu2 * (1 - Fraction(1, 10**25)) <= gaussian_mu2(rho_within(mu2, scale), scale) <= mu2
        assert rho * (1 - Fraction(1, 10**12)) <= laplace_rho(epsilon_within(rho, scale), scale) <= rho
    assert root_below(e) ** 2 <= e <= root_below(e) ** 2 * more


def test_what_is_too_small_or_too_large_is_still_on_the_safe_side() -> None:
    assert gaussian_delta(Fraction(1), APART) == 1
    assert gaussian_delta(Fraction(1, 10**12), Fraction(1)) <= Fraction(1, 10**1000)
    assert gaussian_delta(Fraction(10**9), Fraction(1)) == 1
    assert laplace_rho(Fraction(1, 10**13), Fraction(64)) == Fraction(1, 2 * 10**26)
    assert Fraction(10**6 - 1) < laplace_rho(Fraction(10**6), Fraction(64)) < 10**6
    assert largest_mu2(APART, Fraction(1, 10**9)) == 0
    assert round_digits(Fraction(1, 3), up=True) > Fraction(1, 3) > round_digits(Fraction(1, 3), up=False)


def test_epsilon_and_delta_at_the_door() -> None:
    assert budget_of(LAPLACE, epsilon=0.5, delta=1e-6) == Budget(LAPLACE, 0.5)  # pure: with every δ
    gaussian = budget_of(GAUSSIAN, epsilon=1.0, delta=1e-6)
    assert float(gaussian) == rho_for(1.0, 1e-6)
    assert epsilon_of(gaussian, 1e-6, 64.0) <= 1.0
    assert epsilon_asking(rho_for(1.0, 1e-6), 1e-6) == pytest.approx(1.0, rel=1e-8)
    for wrong in ({"delta": 1e-6}, {"rho": 0.5, "delta": 1e-6}, {"epsilon": 1.0, "rho": 0.5, "delta": 1e-6}):
        with pytest.raises(PrivacyParameterError, match="delta=1e-06 goes with epsilon="):
            budget_of(GAUSSIAN, **wrong)
    for delta in (0, 1, -0.1, math.nan, True, "x", 1e-310):
        with pytest.raises(PrivacyParameterError, match="delta="):
            budget_of(GAUSSIAN, epsilon=1.0, delta=delta)  # type: ignore[arg-type]
    with pytest.raises(PrivacyParameterError, match="leaves no budget"):
        rho_for(1e-16, 1e-6)


# ── against 60 digits, and adaptive programmes ──


@pytest.mark.parametrize("kind", accounting.KINDS)
def test_charges_are_never_below_sixty_digits_and_hardly_above(kind: str) -> None:
    pytest.importorskip("mpmath")
    least, most = accounting.compare(kind, CASES, random.Random(37))
    assert 0 <= least <= most <= 1e-3


def test_the_counterexample_is_refused_and_would_have_twice_the_delta() -> None:
    by_composition, granted, delta = accounting.counterexample()
    assert by_composition == pytest.approx(1.98e-6, rel=0.01)
    assert granted == (True, True, False)  # the second one by Gaussian noise, and not by Laplace noise
    assert 0.9e-6 < delta <= 1e-6


def test_adaptive_programmes_stay_within_epsilon_and_delta() -> None:
    worst = accounting.programmes(40, random.Random(37))
    assert 0.5 < worst <= 1


def test_no_scale_makes_a_charge_too_small() -> None:
    for power in (18, 19, 25, 40, 78, 79, 80, 300):
        charge = laplace_rho(Fraction(1), Fraction(25 * 10**power))
        assert charge >= laplace_rho(Fraction(1), Fraction(2**64))
        assert float(charge) == pytest.approx(1 / math.e, rel=1e-15)
