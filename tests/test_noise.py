from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from batchdp import LatticeError, MatrixWorkload, PrivacyParameterError
from batchdp.accounting import epsilon_of_rho, largest_rho
from batchdp.mechanism.calibrate import calibrate, float_below
from batchdp.mechanism.conversion import epsilon_at, epsilon_of, rho_for
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.measure import add
from batchdp.mechanism.measurement import GroupNoise
from batchdp.mechanism.sample import sample
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise, round_down, shortest
from batchdp.private import CellCounts
from mechanisms import calibrated, drawn

NOISES = [LAPLACE, GAUSSIAN]


def for_one_measurement(noise: Noise, sensitivity: int, amount: Any) -> GroupNoise:
    """The noise of one measurement that a record changes by so much, at what a user gives."""
    Q = sparse.csr_array(np.array([[sensitivity]], dtype=np.int64))
    lattice = Lattice(MatrixWorkload(np.eye(1)), Q, np.eye(1), 40, 10**6, noise)
    (found,) = calibrate(lattice, 1, Budget(noise, amount))
    return found


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("budget", [1e-6, 0.1, 1 / 3, 1.0, 7.7, 1e3])
@pytest.mark.parametrize("sensitivity", [1, 12345, 2**40 + 1])
def test_the_privacy_map_is_within_the_charge_and_not_much_below(noise: Noise, budget: float, sensitivity: int) -> None:
    if sensitivity / budget > 2**54:
        return
    if noise.scale(sensitivity, budget) < 64:
        with pytest.raises(LatticeError, match=f"too little to hide behind; lower {noise.unit}"):
            for_one_measurement(noise, sensitivity, budget)
        return
    made = for_one_measurement(noise, sensitivity, budget)
    assert made.moved == sensitivity**noise.norm
    assert noise.loss(made.moved, made.scale) <= made.loss <= budget
    assert made.loss >= budget * (1 - 1e-12)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, True])
def test_impossible_budgets_are_refused(noise: Noise, budget: Any) -> None:
    with pytest.raises(PrivacyParameterError, match=r"(epsilon|rho)=.* above 0"):
        for_one_measurement(noise, 2**40, budget)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("budget", [5e-324, 1e-300])
def test_budgets_for_more_noise_than_fits_are_refused(noise: Noise, budget: float) -> None:
    most = float_below(Budget(noise, budget).amount)
    with pytest.raises(LatticeError, match=rf"{noise.unit}={most!r} .* more than fits; raise {noise.unit}"):
        for_one_measurement(noise, 2**40, budget)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("moved", [0, -1, 1.5, True, "1", np.int64(2**40)])
def test_impossible_sensitivities_are_refused(noise: Noise, moved: Any) -> None:
    with pytest.raises(PrivacyParameterError, match="moved="):
        calibrated(noise, moved, 1e-3)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_has_the_promised_scale_and_centre(noise: Noise) -> None:
    made = calibrated(noise, 1000**noise.norm, 0.5)
    Q = sparse.csr_array(np.ones((40_000, 1), dtype=np.int64))
    lattice = Lattice(MatrixWorkload(np.eye(1)), Q, np.zeros((1, 40_000)), 0, 10**6, noise)
    draws = add(lattice, CellCounts(np.array([7])), sample(lattice, (made,))).astype(float) - 7
    spread = np.mean(np.abs(draws / made.scale) ** noise.norm)
    # Five standard errors of 40 000 draws.
    assert abs(spread - 1) <= 5 * math.sqrt(noise.norm) / 200
    assert abs(draws.mean()) <= 5 * math.sqrt(noise.variance_at_one * made.scale**2 / 40_000)


def test_two_draws_differ() -> None:
    made = calibrated(LAPLACE, 2**30, 1.0)
    assert drawn(LAPLACE, made.scale, 5) != drawn(LAPLACE, made.scale, 5)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (1e-12, 1e-9), (1e-6, 0.5), (1e9, 1e-6)])
def test_no_larger_rho_is_converted_to_as_little(epsilon: float, delta: float) -> None:
    rho = round_down(largest_rho(shortest(epsilon), shortest(delta)))
    assert epsilon_at(rho, delta) <= epsilon
    if rho < epsilon:
        above = Fraction(math.nextafter(rho, math.inf))
        assert epsilon_of_rho(above, shortest(delta)) > shortest(epsilon)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 1e3, 1e5, 1e9])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_rho_is_converted_as_opendp_does_and_never_worse_than_by_the_textbook(rho: float, delta: float) -> None:
    import opendp.prelude as dp

    found = epsilon_at(rho, delta)
    textbook = Decimal(rho) + 2 * (Decimal(rho) * (1 / Decimal(delta)).ln()).sqrt()
    assert 0 <= Decimal(found) <= textbook
    if rho <= 1e3:  # beyond some ten thousand it gives up
        space = dp.atom_domain(T="f64", nan=False), dp.absolute_distance(T="f64")
        gaussian: Any = dp.m.make_gaussian(*space, scale=1 / math.sqrt(2 * rho))
        converted: Any = dp.c.make_zCDP_to_approxDP(gaussian)
        assert found == pytest.approx(converted.map(1.0).epsilon(delta), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (5.0, 1e-5)])
def test_conversions_are_inverse_and_conservative(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta)
    assert epsilon * (1 - 1e-3) <= epsilon_of(Budget(GAUSSIAN, rho), delta, 64.0) <= epsilon  # which has a price
    # Noise of any other kind has more ε at this ρ, by some percents.
    assert epsilon * 1.02 < epsilon_at(rho, delta)
    assert epsilon_at(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("delta", [0, 1, -1e-6, math.nan, True, "1e-6"])
def test_impossible_deltas_are_refused(delta: Any) -> None:
    with pytest.raises(PrivacyParameterError, match="delta"):
        epsilon_at(0.5, delta)
    with pytest.raises(PrivacyParameterError, match="delta"):
        rho_for(0.5, delta)
