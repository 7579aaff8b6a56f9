"""Weights of tables for plans whose answers will be denoised."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp.plans.for_estimates import BY_SIZE, ONE_WAY, _variances, weights_for_estimates
from batchdp.strategies.residual.strategy import closure, least_sum
from test_components import structure

SIZES = (20, 9, 6, 2)


def test_variances_are_those_of_the_best_plan_for_the_weights() -> None:
    batch: Any = structure(batchdp.workloads.marginals(SIZES, [1, 2]))
    chosen = weights_for_estimates(SIZES, 0.01, 1000)
    chosen = replace(chosen, one_way=7.0, by_size=0.5)
    weights = chosen.weights(SIZES, [table.columns for table in batch.tables])
    found = closure(batch)
    shares, _ = least_sum(found, weights)
    expected = {found.columns_of(a): found.freedom[a] / shares[a] / 0.02 for a in range(found.size)}
    ours = _variances(SIZES, 0.01, 7.0, 0.5)
    assert set(ours) == set(expected)
    for C, t in ours.items():
        assert t == pytest.approx(expected[C], rel=1e-9)


@pytest.mark.parametrize("rho", [1e-4, 0.5])
def test_weights_are_better_than_even_ones_and_always_the_same(rho: float) -> None:
    first, again = weights_for_estimates(SIZES, rho, 5000), weights_for_estimates(SIZES, rho, 5000)
    assert first == again
    assert first.one_way in ONE_WAY
    assert first.by_size in BY_SIZE
    assert first.distance <= 1.005 * first.even
    pairs = list(combinations(range(len(SIZES)), 2))
    assert first.weights(SIZES, pairs).mean() == pytest.approx(1)


def test_little_budget_asks_for_margins_first() -> None:
    assert weights_for_estimates(SIZES, 1e-5, 5000).one_way > weights_for_estimates(SIZES, 10.0, 5000).one_way


def test_one_column_and_columns_of_one_value() -> None:
    assert weights_for_estimates((5,), 0.1, 100).one_way == 1
    assert np.isfinite(weights_for_estimates((5, 1, 3), 0.1, 100).distance)
    assert np.isfinite(weights_for_estimates((400, 400, 2), 0.1, 100).distance)
