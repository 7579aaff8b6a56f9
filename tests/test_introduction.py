"""The two examples of the paper's introduction, total expected squared error at ε = 1."""

from __future__ import annotations

import numpy as np
import pytest

from batchdp import MatrixWorkload, PairStrategy
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.noise_on_results import noise_on_results
from cases import EXAMPLE_1, EXAMPLE_2


def error(strategy: PairStrategy) -> float:
    return strategy.expected_squared_error(epsilon=1.0)


def test_example_1() -> None:
    assert error(noise_on_results(EXAMPLE_1)) == pytest.approx(24)
    assert error(noise_on_data(EXAMPLE_1)) == pytest.approx(16)
    assert error(noise_on_data(EXAMPLE_1, merged=True)) == pytest.approx(8)
    assert noise_on_data(EXAMPLE_1, merged=True).per_query_variance(epsilon=1) == pytest.approx([4, 2, 2])


def test_example_2() -> None:
    assert error(noise_on_data(EXAMPLE_2)) == pytest.approx(40)
    assert noise_on_data(EXAMPLE_2).per_query_variance(epsilon=1) == pytest.approx([12, 10, 18])
    assert noise_on_results(EXAMPLE_2).sensitivity == 5


def test_the_strategy_that_the_paper_gives_for_example_2() -> None:
    L = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [1 / 3, 0, 1, 0], [2 / 3, 0, 0, 0]])
    B = np.array([[2, 1, 1, -1 / 2], [1, 2, 0, 0], [0, 2, 2, 1 / 2]])
    strategy = PairStrategy(MatrixWorkload(EXAMPLE_2), L, B)
    assert strategy.sensitivity == pytest.approx(1)
    assert strategy.per_query_variance(epsilon=1) == pytest.approx([12.5, 10, 16.5])
    assert error(strategy) == pytest.approx(39)
