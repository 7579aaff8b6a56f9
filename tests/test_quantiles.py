from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise
from batchdp.queries.expressions import Asked, Crossing
from batchdp.queries.intervals import quantile

EDGES = np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0])
shares = st.sampled_from([0.1, 0.25, 0.5, 0.9])


def totals_of(values: Dense) -> Dense:
    found = np.searchsorted(np.sort(values), EDGES, side="left").astype(float)
    found[-1] = len(values)
    return found


def lower_and_upper(values: Dense, p: float) -> tuple[float, float]:
    """The least value with at least p of all at or below, and the least with more."""
    ordered, n = np.sort(values), len(values)
    lower = math.ceil(round(p * n, 9)) - 1
    upper = math.floor(round(p * n, 9))
    return float(ordered[max(lower, 0)]), float(ordered[min(upper, n - 1)])


@given(values=st.lists(st.floats(0, 15.99), min_size=1, max_size=40), p=shares)
def test_without_noise_the_value_is_within_a_bin_of_the_quantile_and_the_interval_holds_it(
    values: list[float], p: float
) -> None:
    x = np.array(values)
    found = quantile(totals_of(x), EDGES, p, np.full(6, 1e-9), margin_of_total=0.0)
    assert found is not None
    lower, upper = lower_and_upper(x, p)
    assert found.low <= lower <= upper <= found.high
    assert found.low <= found.value <= found.high
    bins = np.searchsorted(EDGES, [lower, upper], side="right")
    assert EDGES[max(bins[0] - 2, 0)] <= found.value <= EDGES[min(bins[1] + 1, 5)]


def test_the_value_is_linear_within_a_bin_and_in_the_middle_of_a_rest() -> None:
    def value(totals: list[float], p: float = 0.5) -> float:
        found = quantile(totals, EDGES[: len(totals)], p, np.zeros(len(totals)), margin_of_total=0.0)
        assert found is not None
        return found.value

    assert value([0, 4], 0.25) == 0.25
    assert value([0, 0, 0, 8, 10]) == 2 + 2 * 5 / 8
    assert value([0, 2, 2, 2, 4]) == 2.5


def test_totals_that_fall_are_levelled_first() -> None:
    found = quantile([0, 6, 2, 5, 10], [0, 1, 2, 3, 4], 0.5, np.full(5, 100.0), margin_of_total=1.0)
    assert found is not None
    # 6, 2, 5 fall: levelled they are 4, 4, 5, and 5 is half of 10.
    assert found == pytest.approx((3, 0, 4), abs=1e-9)


def test_an_interval_goes_up_to_the_first_edge_that_is_not_ruled_out() -> None:
    totals, edges = [0.0, 10.0, 80.0, 40.0, 120.0, 200.0], np.arange(6.0)
    found = quantile(totals, edges, 0.5, np.full(6, 25.0), margin_of_total=5.0)
    assert found is not None
    # 80 may be 100 or more, so what follows rules out nothing, although 40 cannot be.
    assert (found.low, found.high) == (1, 5)


def test_a_quantile_of_nobody_is_not_determined() -> None:
    band = np.full(3, 5.0)
    assert quantile([0, 3, 9], [0, 1, 2], 0.5, band, margin_of_total=10.0) is None
    assert quantile([0, -3, -9], [0, 1, 2], 0.5, band, margin_of_total=1.0) is None
    assert quantile([0, 1, math.nan], [0, 1, 2], 0.5, band, margin_of_total=1.0) is None


@pytest.mark.parametrize("heaped", [False, True])
def test_intervals_cover_and_are_no_wider_than_those_of_the_simultaneous_band(heaped: bool) -> None:
    """Also where all records of a bin are at its lower edge: nothing is assumed of where in a bin they are."""
    rng = np.random.default_rng(5)
    bins, size, runs = 16, 120, 500
    edges = np.arange(bins + 1.0)
    values = np.clip(rng.lognormal(1.6, 0.6, size), 0, bins - 0.01)
    values = np.floor(values) if heaped else values
    truth = np.append(np.searchsorted(np.sort(values), edges[:-1], side="left"), size)
    B = np.vstack([np.zeros(bins), np.tril(np.ones((bins, bins)))])
    law = NoiseLaw(B - 0.5 * B[-1], 1.0, LAPLACE)
    alone, together = law.half_widths(0.95), law.simultaneous_half_widths(0.95)
    of_total = float(NoiseLaw(B[-1:], 1.0, LAPLACE).half_widths(0.95)[0])
    lower, upper = np.sort(values)[[size // 2 - 1, size // 2]]
    covered = 0
    for totals in truth + rng.laplace(size=(runs, bins)) @ B.T:
        own = quantile(totals, edges, 0.5, alone, margin_of_total=of_total)
        wide = quantile(totals, edges, 0.5, together, margin_of_total=of_total)
        assert own is not None
        assert wide is not None
        assert wide.low <= own.low <= own.value <= own.high <= wide.high
        covered += own.low <= lower and upper <= own.high
    assert covered >= 0.93 * runs


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_only_margins_that_an_interval_may_end_within_are_worked_out(
    noise: Noise, confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval is that of all margins, to the bit."""
    rng = np.random.default_rng(3)
    bins, runs, inverted = 64, 20, []
    B = np.tril(np.ones((bins, bins)))
    law = NoiseLaw(B + 0.2 * rng.random((bins, bins)), 1.0, noise)
    own: Any = NoiseLaw.half_widths

    def half_widths(self: NoiseLaw, confidence: float) -> Dense:
        inverted.append(self.reconstruct.shape[0])
        return np.asarray(own(self, confidence))

    for p in (0.1, 0.5, 0.75):
        asked: list[Asked[int]] = [
            Asked("q", Crossing(p, tuple(map(float, range(bins + 1))), tuple(range(bins - 1)), bins - 1))
        ]
        band = np.append(own(law.law(law.rows(range(bins - 1)) - p * law.rows([bins - 1] * (bins - 1))), confidence), 0)
        of_total = float(own(law.law(law.rows([bins - 1])), confidence)[0])
        for _ in range(runs):
            values = np.cumsum(rng.exponential(20, bins)) + next(law.simulate(rng, 1))[:, 0]
            with monkeypatch.context() as patch:
                patch.setattr(NoiseLaw, "half_widths", half_widths)
                found = estimates(asked, values, law, confidence)
            wide = quantile([0, *values], np.arange(bins + 1.0), p, [0, *band], margin_of_total=of_total)
            assert wide is not None
            assert (found.values[0], found.low[0], found.high[0]) == wide
    assert sum(inverted) < 0.5 * 3 * runs * bins
