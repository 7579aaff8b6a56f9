"""Noise, budget and outcome: the values that stand for what used to be texts and pairs of numbers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from batchdp import LatticeError, MatrixWorkload, PairStrategy, PrivacyParameterError, ShapeLimits, StrategyError
from batchdp.mechanism.calibrate import calibrate
from batchdp.mechanism.prepare import lattice_of
from batchdp.optimizer.shapes import shaped_noise
from batchdp.privacy import GAUSSIAN, KNORM, LAPLACE, MOST, NAMED, Budget, Noise, noise_of
from batchdp.text import Outcome


def test_the_variances_are_those_of_the_mechanisms() -> None:
    assert Budget(LAPLACE, 0.5).variance(9.0) == Budget(KNORM, 0.5).variance(9.0) == 2 * (3 / 0.5) ** 2
    assert Budget(GAUSSIAN, 0.125).variance(9.0) == 9 / (2 * 0.125)
    assert LAPLACE.variance(1.0, 1e-200) == np.inf
    assert LAPLACE.reference == Budget(LAPLACE, 1)
    assert GAUSSIAN.reference == Budget(GAUSSIAN, 0.5)
    assert float(GAUSSIAN.implied_by(3.0)) == 4.5


def test_noise_costs_what_it_promises_or_what_that_implies() -> None:
    half = Fraction(1, 2)
    for noise in (LAPLACE, KNORM):
        assert noise.is_pure
        assert (noise.charge(half, "epsilon"), noise.charge(half, "rho")) == (half, Fraction(1, 8))
        assert noise.loss(3, 6.0) == half
    assert not GAUSSIAN.is_pure
    assert (GAUSSIAN.charge(half, "epsilon"), GAUSSIAN.charge(half, "rho")) == (None, half)
    assert GAUSSIAN.loss(9, 3.0) == half


def test_blocks_add_up_by_squares_only_for_l2_norms_at_right_angles() -> None:
    norms = np.array([3.0, 4.0])
    assert LAPLACE.together(norms, at_right_angles=True) == 7
    assert GAUSSIAN.together(norms, at_right_angles=True) == 5
    assert GAUSSIAN.together(norms, at_right_angles=False) == 7


def test_a_text_at_the_door_becomes_a_noise_or_is_refused() -> None:
    assert noise_of("pure") is LAPLACE
    assert noise_of("zcdp") is GAUSSIAN
    own = {name: noise.privacy for name, noise in NAMED.items() if name != "geometric"}  # which a test adds
    assert own == {"Laplace": "pure", "K-norm": "pure", "Gaussian": "zcdp"}
    for wrong in ("Pure", "", None, ["pure"], "K-norm"):
        with pytest.raises(StrategyError, match="privacy="):
            noise_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "amount",
    [0, -1, np.nan, np.inf, -np.inf, True, np.True_, "1", None, 1e-400, MOST * 1.1, 10**400, Decimal("NaN"), 1j],
)
def test_a_budget_that_protects_nothing_or_says_nothing_is_refused(amount: Any) -> None:
    for noise in (LAPLACE, KNORM, GAUSSIAN):
        with pytest.raises(PrivacyParameterError, match=noise.unit):
            Budget(noise, amount)


@pytest.mark.parametrize(
    "amount", [1, 0.1, Fraction(1, 3), Decimal("0.1"), np.float32(0.5), np.int64(2), np.longdouble(1)]
)
def test_a_budget_is_the_exact_number_that_was_given(amount: Any) -> None:
    assert Budget(LAPLACE, amount).amount == (amount if isinstance(amount, Fraction) else Fraction(str(amount)))


def one_group(noise: Noise, moved: int) -> Any:
    """Measurements of which nothing is known but how much a record changes them."""
    group = SimpleNamespace(moved=moved, share=Fraction(1))
    return SimpleNamespace(noise=noise, groups=(group,), shares=(group.share,), slack=0)


def two_bodies() -> Any:
    """Measurements with noise in two shapes, which share ε."""
    W = np.random.default_rng(0).standard_normal((4, 9))
    found = lattice_of(shaped_noise(MatrixWorkload(W), ShapeLimits(rank=2, directions=100)), largest_total=10**6)
    assert len(found.groups) == 2
    return found


def test_noise_is_made_for_no_more_than_the_number_that_was_written() -> None:
    known = [one_group(LAPLACE, 100), one_group(GAUSSIAN, 300**2), one_group(LAPLACE, 2**40 + 1), two_bodies()]
    for measurement in known:
        for i in range(1, 100):  # many of these floats are a little more than their decimal numbers
            noises = calibrate(measurement, 1, Budget(measurement.noise, i / 100))
            loss = sum(Fraction(own.loss) for own in noises)
            assert loss <= Fraction(i, 100)
            assert loss > Fraction(i, 100) * (1 - Fraction(1, 2**48))
    for noise, moved in ((LAPLACE, 1), (GAUSSIAN, 3**2)):
        with pytest.raises(LatticeError, match="too little to hide behind"):
            calibrate(one_group(noise, moved), 1, Budget(noise, 0.5))


def test_the_argument_of_the_other_noise_is_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="rho=1 is not the budget of Laplace noise; give epsilon"):
        Budget.of(LAPLACE, rho=1)
    with pytest.raises(PrivacyParameterError, match="rho is missing"):
        Budget.of(GAUSSIAN)
    with pytest.raises(PrivacyParameterError, match="epsilon=1"):
        Budget.of(GAUSSIAN, epsilon=1, rho=1)
    with pytest.raises(PrivacyParameterError, match="rho=1 is not the budget of K-norm noise; give epsilon"):
        Budget.of(KNORM, rho=1)
    assert str(Budget.of(GAUSSIAN, rho=0.25)) == "ρ = 0.25"


def test_every_outcome_but_a_proven_one_says_what_to_try_next() -> None:
    final = {Outcome.CLOSED_FORM, Outcome.OPTIMAL, Outcome.CONVERGED}
    assert {outcome for outcome in Outcome if not outcome.advice} == final
    assert Outcome.of_all([Outcome.OPTIMAL, Outcome.CANCELLED, Outcome.CLOSED_FORM]) is Outcome.CANCELLED
    assert Outcome.of_all([]) is Outcome.CLOSED_FORM


def test_a_status_from_a_file_is_an_outcome_even_if_another_version_wrote_it() -> None:
    def read(status: Any) -> Outcome:
        return PairStrategy(MatrixWorkload(np.eye(2)), np.eye(2), np.eye(2), status=status).status

    assert read("converged") is Outcome.CONVERGED
    assert read("closed form; optimal") is Outcome.UNKNOWN


def test_a_budget_is_an_amount_of_its_own_unit() -> None:
    assert Budget(LAPLACE, Budget(LAPLACE, 0.3)) == Budget(LAPLACE, 0.3)
    with pytest.raises(PrivacyParameterError, match="give it as rho"):
        Budget(LAPLACE, Budget(GAUSSIAN, 0.3))
