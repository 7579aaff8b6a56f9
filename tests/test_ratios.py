from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.law import NoiseLaw
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise
from batchdp.queries.intervals import combined_intervals, ratio_intervals

CONFIDENCE = 0.95


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Pairs:
    """The noise in numerators and denominators, term × measurement, for any number of ratios at once."""

    numerators: Dense
    denominators: Dense
    noise: Noise = LAPLACE

    def law(self, a: Any, b: Any) -> NoiseLaw:
        weights = [np.asarray(x, float).reshape(len(self.numerators), -1) for x in (a, b)]
        rows = weights[0].T @ self.numerators + weights[1].T @ self.denominators
        return NoiseLaw(rows, 1.0, self.noise)

    def margin(self, a: Any, b: Any) -> Any:
        found = self.law(a, b).half_widths(CONFIDENCE)
        return found if isinstance(a, np.ndarray) else float(found[0])

    def deviation(self, a: Any, b: Any) -> Dense:
        return self.law(a, b).standard_errors

    def interval(self, *terms: tuple[float, float]) -> Interval | None:
        """Of the sum of these numerators over denominators."""
        N, D = np.array(terms, float).T[:, :, None]
        low, high = combined_intervals(N, D, self.margin, deviation=self.deviation)
        return None if np.isnan(low[0]) else Interval(float(low[0]), float(high[0]))


numbers = st.floats(-3, 3).map(lambda x: round(x, 3))
rows = st.lists(numbers, min_size=3, max_size=3).map(lambda x: np.array([x]))


@pytest.mark.parametrize("kind", [LAPLACE, GAUSSIAN])
@settings(max_examples=40)
@given(N=st.floats(-50, 50), D=st.floats(-20, 20), above=rows, below=rows)
def test_the_interval_holds_the_ratios_that_the_noise_allows(
    kind: Noise, N: float, D: float, above: Dense, below: Dense
) -> None:
    noise = Pairs(above, below, kind)
    found = noise.interval((N, D))
    if found is None:
        assert abs(D) <= noise.margin(0.0, 1.0) * (1 + 1e-9) or abs(D) < 1e-3
        return
    low, high = found
    assert low <= N / D <= high
    width, slack = high - low, 1e-6 * (1 + abs(N))
    for theta in np.linspace(low + 2e-3 * width, high - 2e-3 * width, 5):
        assert abs(N - theta * D) <= noise.margin(1.0, -theta) + slack
    for theta in (low - 4e-3 * width, high + 4e-3 * width, low - 3 * width, high + 3 * width, 1e9, -1e9):
        assert low <= theta <= high or abs(N - theta * D) >= noise.margin(1.0, -theta) - slack


def test_nothing_is_determined_where_the_denominator_may_be_zero() -> None:
    noise = Pairs(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    edge = noise.margin(0.0, 1.0)
    assert noise.interval((5.0, 0.999 * edge)) is None
    assert noise.interval((5.0, -0.999 * edge)) is None
    found = noise.interval((5.0, 1.001 * edge))
    assert found is not None
    assert found.high > 1000


def test_without_noise_the_interval_is_the_ratio() -> None:
    nothing = Pairs(np.zeros((1, 2)), np.zeros((1, 2)))
    assert nothing.interval((0.0, 10.0)) == (0, 0)
    assert nothing.interval((-3.0, 4.0)) == (-0.75, -0.75)
    for N, D in ((0.0, 0.0), (math.nan, 1.0), (math.inf, 1.0), (0.0, math.nan), (1e200, 1e-200)):
        assert nothing.interval((N, D)) is None


@pytest.mark.parametrize("size", [1e-100, 1e-9, 1e12, 1e100])
def test_units_do_not_matter(size: float) -> None:
    above, below = np.array([[3.0, 1.0, 0.0]]), np.array([[0.5, -1.0, 2.0]])
    plain, scaled = Pairs(above, below).interval((7.0, 12.0)), Pairs(size * above, below).interval((size * 7.0, 12.0))
    other = Pairs(above, size * below).interval((7.0, size * 12.0))
    assert plain is not None
    assert scaled == pytest.approx((size * plain.low, size * plain.high), rel=1e-6)
    assert other == pytest.approx((plain.low / size, plain.high / size), rel=1e-6)


def test_a_whole_over_itself_is_one() -> None:
    row = np.array([[1.0, 2.0]])
    assert Pairs(row, row).interval((30.0, 30.0)) == pytest.approx((1, 1), abs=1e-7)


def test_with_gaussian_noise_the_ends_solve_fiellers_quadratic_equation() -> None:
    above, below = np.array([[2.0, 1.0]]), np.array([[0.0, 1.5]])
    N, D, q = 9.0, 8.0, 1.959963984540054
    a, b, c = D**2 - q**2 * 2.25, -2 * (N * D - q**2 * 1.5), N**2 - q**2 * 5
    found = Pairs(above, below, GAUSSIAN).interval((N, D))
    assert found == pytest.approx(tuple(sorted(np.roots([a, b, c]))), rel=1e-9)


def test_many_at_once_are_as_one_by_one() -> None:
    above, below = np.array([[3.0, 1.0, 0.0]]), np.array([[0.5, -1.0, 2.0]])
    noise = Pairs(above, below)
    N, D = np.array([4.0, -30.0, 0.0, 2.0]), np.array([20.0, 9.0, -13.0, 0.1])
    low, high = ratio_intervals(N, D, noise.margin, deviation=noise.deviation)
    assert np.isnan([low[3], high[3]]).all()
    for k in range(3):
        assert noise.interval((N[k], D[k])) == pytest.approx((low[k], high[k]), rel=1e-6)


def test_large_denominators_have_the_interval_of_the_delta_method() -> None:
    noise = Pairs(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]))
    N, D = 2_000.0, 10_000.0
    found = noise.interval((N, D))
    assert found is not None
    delta = noise.margin(1.0, -N / D) / D
    assert found == pytest.approx((N / D - delta, N / D + delta), rel=1e-4)
    assert found.high - found.low <= 1.1 * 2 * delta


def test_a_plain_answer_is_one_over_one() -> None:
    plain = Pairs(np.array([[3.0, 0.0]]), np.zeros((1, 2)))
    half = plain.margin(1.0, 0.0)
    assert plain.interval((8.0, 1.0)) == pytest.approx((8 - half, 8 + half), rel=1e-6)


def test_sums_of_ratios_combine_their_intervals_as_deviations() -> None:
    above, below = np.array([[1.0, 0, 0, 0], [0, 0, 2.0, 0]]), np.array([[0, 1.0, 0, 0], [0, 0, 0, 1.0]])
    noise = Pairs(above, below)
    terms = [(5.0, 11.0), (-7.0, 14.0)]
    found = noise.interval(*terms)
    assert found is not None
    below_it, above_it = [], []
    for k, (N, D) in enumerate(terms):
        own = Pairs(above[[k]], below[[k]]).interval((N, D))
        assert own is not None
        below_it.append(N / D - own.low)
        above_it.append(own.high - N / D)
    low, high = 5 / 11 - 0.5 - math.hypot(*below_it), 5 / 11 - 0.5 + math.hypot(*above_it)
    assert found == pytest.approx((low, high), rel=1e-6)


def test_a_ratio_added_to_itself_has_twice_its_interval() -> None:
    above, below = np.array([[1.0, 0.3], [1.0, 0.3]]), np.array([[0.2, 1.0], [0.2, 1.0]])
    noise, one = Pairs(above, below), Pairs(above[:1], below[:1]).interval((5.0, 11.0))
    assert one is not None
    found = noise.interval((5.0, 11.0), (5.0, 11.0))
    assert found == pytest.approx((2 * one.low, 2 * one.high), rel=1e-6)


def test_a_sum_is_not_determined_where_one_of_its_ratios_is_not() -> None:
    noise = Pairs(np.eye(4)[:2], np.eye(4)[2:])
    N, D = np.array([[5.0, 5.0], [7.0, 7.0]]), np.array([[11.0, 11.0], [12.0, 0.5]])
    low, high = combined_intervals(N, D, noise.margin, deviation=noise.deviation)
    assert np.array_equal(np.isnan(low), [False, True])
    assert np.array_equal(np.isnan(high), [False, True])


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 100, 10_000])
def test_averages_shares_and_their_differences_cover(size: int) -> None:
    import derived as benchmark

    for row in benchmark.ratios(size, 1000, 1.0, seed=3):
        if row.answer in benchmark.OVER_THE_GROUP:
            assert row.determined > 0.9
            assert row.coverage >= 0.93 - 0.012, row  # two standard errors of a thousand runs
            assert row.coverage <= 0.975 + 0.012 or "−" in row.answer, row
        assert row.wrong <= 0.07
        assert size < 10_000 or row.width <= 1.1
