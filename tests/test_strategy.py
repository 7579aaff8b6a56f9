from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import batchdp
from batchdp import MatrixWorkload, PairStrategy, PrivacyParameterError, StrategyError, workloads
from batchdp.linalg.matrix import plain
from batchdp.optimizer.families.noise_on_data import noise_on_data

W = MatrixWorkload([[1.0, 2.0], [0.0, 1.0], [1.0, 1.0]])


def pair(privacy: Any = "pure") -> PairStrategy:
    L = np.array([[1.0, 1.0], [0.0, 2.0]])
    return PairStrategy(W, L, np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 0.0]]), privacy=privacy)


def test_the_formulas_by_hand() -> None:
    pure = pair()
    assert pure.sensitivity == 3.0
    assert pure.expected_squared_error(epsilon=0.5) == pytest.approx(2 * 9 / 0.25 * 2.5)
    assert pure.per_query_variance(epsilon=1) == pytest.approx([22.5, 4.5, 18.0])
    gaussian = pair("zcdp")
    assert gaussian.sensitivity == pytest.approx(np.sqrt(5))
    assert gaussian.expected_squared_error(rho=0.5) == pytest.approx(5 * 2.5)


def test_weights_count_in_the_total_but_not_in_a_querys_own_variance() -> None:
    weighted = MatrixWorkload(W.matrix, weights=[2, 3, 4])
    strategy = PairStrategy(weighted, pair().measure, pair().reconstruct)
    assert strategy.per_query_variance(epsilon=1) == pytest.approx([22.5, 4.5, 18.0])
    assert strategy.expected_squared_error(epsilon=1) == pytest.approx(2 * 22.5 + 3 * 4.5 + 4 * 18)


def test_a_pair_that_misses_the_workload_is_refused() -> None:
    L, B = np.eye(2), np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 1.0 + 1e-7]])
    with pytest.raises(StrategyError, match="misses the workload"):
        PairStrategy(W, L, B)
    PairStrategy(W, L, np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 1.0 + 1e-12]]))


def test_a_strategy_whose_measurements_lost_rank_is_refused() -> None:
    L = np.array([[1.0, 1.0]])
    with pytest.raises(StrategyError, match="misses the workload"):
        PairStrategy(W, L, np.asarray(W.matrix @ np.linalg.pinv(L)))


@pytest.mark.parametrize(
    ("L", "B"),
    [
        (np.eye(3), np.ones((3, 3))),
        (np.eye(2), np.ones((2, 2))),
        (np.ones((1, 2)), np.ones((3, 2))),
        (np.ones(2), np.ones((3, 1))),
    ],
)
def test_shapes_that_do_not_fit_are_refused(L: Any, B: Any) -> None:
    with pytest.raises(StrategyError, match="shape"):
        PairStrategy(W, L, B)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrices_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(StrategyError, match="NaN or infinite"):
        PairStrategy(W, np.array([[1.0, bad], [0.0, 1.0]]), np.asarray(W.matrix))


def test_an_unknown_kind_of_privacy_is_refused() -> None:
    with pytest.raises(StrategyError, match="privacy='approximate'"):
        pair("approximate")


@pytest.mark.parametrize("epsilon", [0, -1, np.nan, np.inf, True, "1", None])
def test_budgets_that_are_not_positive_numbers_are_refused(epsilon: Any) -> None:
    for ask in (pair().expected_squared_error, pair().per_query_variance, pair().lower_bound):
        with pytest.raises(PrivacyParameterError, match="epsilon"):
            ask(epsilon=epsilon)


def test_the_budget_must_be_of_the_strategys_kind() -> None:
    with pytest.raises(PrivacyParameterError, match="rho=1"):
        pair().expected_squared_error(rho=1)
    with pytest.raises(PrivacyParameterError, match="epsilon=1"):
        pair("zcdp").expected_squared_error(epsilon=1)


def test_the_matrices_are_numpy_arrays_that_cannot_be_written_to() -> None:
    for strategy in (pair(), noise_on_data(sparse.csr_array(plain(W.matrix)))):
        for array in (strategy.measure, strategy.reconstruct):
            assert type(array) is np.ndarray
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 5


def test_an_array_too_large_for_memory_is_refused_with_the_way_out() -> None:
    strategy = noise_on_data(sparse.csr_array((np.ones(1), ([0], [0])), shape=(1, 100_000)))
    assert strategy.expected_squared_error(epsilon=1) == 2
    with pytest.raises(StrategyError, match=r"75 GiB.*measurement"):
        _ = strategy.measure


def test_every_kind_is_a_strategy_and_every_batch_a_workload() -> None:
    """One base each; the base called with matrices makes the kind that holds matrices."""
    W = batchdp.Workload([[1, 1], [1, 0]])
    assert type(W) is batchdp.MatrixWorkload
    made: Any = batchdp.Strategy
    assert type(made(W, np.eye(2), np.array([[1.0, 1.0], [1.0, 0.0]]))) is batchdp.PairStrategy
    batch = workloads.marginals((3,) * 12, [0, 1, 2])
    assert isinstance(batch, batchdp.KroneckerWorkload)
    found: list[batchdp.Strategy] = [batchdp.optimize(W), batchdp.optimize(batch), batchdp.optimize(batch, "zcdp")]
    assert [type(one) for one in found] == [batchdp.PairStrategy, batchdp.MarginalStrategy, batchdp.ResidualStrategy]
    for one in found:
        assert isinstance(one, batchdp.Strategy)
        assert isinstance(one.workload, batchdp.Workload)
        budget = one.noise.reference.arguments
        variances = one.per_query_variance(**budget)
        weights = one.workload.weights
        assert weights is None or np.all(weights == 1)
        assert one.expected_squared_error(**budget) == pytest.approx(variances.sum())
        assert one.largest_variance(**budget) == pytest.approx(variances.max())
        assert one.worst_variance(**budget) == pytest.approx(variances.max())
        assert one.lower_bound(**budget) <= variances.sum() * (1 + 1e-9)
        assert one.largest_variance_bound(**budget) <= variances.max() * (1 + 1e-9)
        tables = [one.variances(t, **budget) for t in range(len(one.workload.tables))]
        assert np.concatenate([table.reshape(-1) for table in tables]) == pytest.approx(variances)
        unit = one.noise.reference.variance(1.0)
        assert unit * one.mean_variances() == pytest.approx([table.mean() for table in tables])
        assert unit * one.worst_variances() == pytest.approx([table.max() for table in tables])
        assert "total expected squared error" in one.certified(**budget)
