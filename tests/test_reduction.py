from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import batchdp
from batchdp import MatrixWorkload, PairStrategy
from batchdp.linalg.matrix import dense
from batchdp.workloads.matrix import Pair
from batchdp.workloads.reduction import reduce
from cases import small_workloads


@pytest.mark.parametrize("name", small_workloads())
def test_the_reduced_problem_reproduces_the_workload(name: str) -> None:
    workload = small_workloads()[name]
    reduction = reduce(workload)
    W = dense(reduction.lift_reconstruct(np.eye(reduction.rank))) @ dense(reduction.lift_measure(reduction.reduced))
    scale = np.abs(dense(workload.matrix)).max() or 1
    assert np.allclose(W / scale, dense(workload.matrix) / scale, atol=1e-12)
    assert reduction.rank == np.linalg.matrix_rank(dense(workload.matrix))
    assert np.all(np.abs(reduction.scales) <= 1)


small_integers = arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 8)), elements=st.integers(-2, 2).map(float)
)


@given(W=small_integers, seed=st.integers(0, 2**20), as_sparse=st.booleans(), weighted=st.booleans())
def test_a_lifted_pair_reproduces_w_and_has_the_reduced_problems_error(
    W: np.ndarray, seed: int, as_sparse: bool, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 10, size=len(W)) if weighted else None
    workload = MatrixWorkload(sparse.csr_array(W) if as_sparse else W, weights=weights)
    reduction = reduce(workload)
    R, p = reduction.reduced, reduction.columns
    L = np.vstack([np.eye(p), rng.uniform(-1, 1, size=(2, p))])
    L /= np.abs(L).sum(axis=0)
    B = R @ np.linalg.pinv(L)
    strategy = PairStrategy.lifted(reduction, Pair(L, B), method="random")  # refuses a pair that misses W
    assert strategy.sensitivity == pytest.approx(1.0 if p else 0.0)
    assert strategy.expected_squared_error(epsilon=1) == pytest.approx(2 * float(np.sum(B * B)), abs=1e-9)


@given(W=small_integers, seed=st.integers(0, 2**20))
def test_cells_merge_exactly_when_their_columns_are_parallel(W: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factors = rng.choice([1, -1, 0.5, 1 / 3, -0.1, 7], size=W.shape[1])
    reduction = reduce(MatrixWorkload(W * factors))
    directions = {tuple((c / c[np.flatnonzero(c)[0]]).round(9) + 0.0) for c in W.T if np.any(c)}
    assert reduction.columns == len(directions)


def test_dense_and_sparse_input_reduce_alike() -> None:
    rng = np.random.default_rng(3)
    W = rng.integers(0, 2, size=(6, 4))[:, rng.integers(0, 4, size=50)] * rng.choice([1, -2], size=50)
    one, other = reduce(MatrixWorkload(W)), reduce(MatrixWorkload(sparse.csr_array(W)))
    assert np.array_equal(one.classes, other.classes)
    assert np.array_equal(one.scales, other.scales)
    assert np.array_equal(one.reduced, other.reduced)


def test_minus_zero_is_zero() -> None:
    assert reduce(MatrixWorkload([[0.0, -0.0, 1.0], [1.0, 1.0, 0.0]])).columns == 2


def test_columns_point_the_same_way_after_alignment() -> None:
    reduction = reduce(small_workloads()["discrete"])
    assert np.all(reduction.reduced[0] >= 0)


def test_merged_cells_keep_their_order() -> None:
    W = np.tril(np.ones((4, 4)))
    assert list(reduce(MatrixWorkload(np.repeat(W, 3, axis=1))).classes) == sorted(np.arange(12) // 3)


def wide_workload() -> MatrixWorkload:
    """1000 × 100 000 with 12 distinct columns, about 5 million entries."""
    rng = np.random.default_rng(0)
    columns = sparse.csc_array(sparse.random_array((1000, 12), density=0.05, rng=rng))
    return MatrixWorkload(columns[:, rng.integers(0, 12, size=100_000)])


def test_a_wide_sparse_workload_is_reduced_in_little_memory() -> None:
    workload = wide_workload()
    tracemalloc.start()
    try:
        reduction = reduce(workload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reduction.columns == 12
    assert peak < 500e6


@pytest.mark.parametrize("density", [dense, sparse.csr_array])
def test_a_query_of_nothing_is_answered_without_noise_whatever_was_searched(
    density: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Rounding errors in its place would be noise, and far below the bias that the lattice has."""
    years = np.vstack([np.zeros((2, 5)), np.eye(5)[1:]])
    W = np.vstack([np.kron(np.eye(4), np.ones((1, 5))), np.kron(np.ones((1, 4)), years), np.ones((1, 20))])
    strategy = batchdp.low_rank(density(W))
    assert not dense(strategy.reconstruct)[[4, 5]].any()
    ledger = batchdp.Ledger.create(tmp_path / "x.db", epsilon=1.0)
    assert not batchdp.answer(strategy, [1000] * 20, epsilon=1.0, ledger=ledger).values[[4, 5]].any()
