"""Groups of rows: any matrix whose rows can be split so that columns merge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from batchdp import MatrixWorkload, optimize
from batchdp.optimizer.blocks import by_rows, is_large, may_group
from batchdp.optimizer.families.p_identity.problem import by_entries
from batchdp.optimizer.families.p_identity.tournament import from_wide_rows
from batchdp.workloads.layers import layers, partitions

Dense = NDArray[np.float64]


def table(cells: int, labels: NDArray[np.int64]) -> Dense:
    """One row for every label."""
    return np.asarray(np.arange(labels.max() + 1)[:, None] == labels[None, :], dtype=float).reshape(-1, cells)


def two_tables(n: int = 12) -> sparse.csr_array:
    """Each value of one column with halves of the other, and the other way round: n² cells, two times 2 n in groups."""
    first, second = np.divmod(np.arange(n * n), n)
    half = (second >= n // 2).astype(np.int64)
    other = (first >= n // 2).astype(np.int64)
    return sparse.csr_array(np.vstack([table(n * n, first * 2 + half), table(n * n, second * 2 + other)]))


def test_rows_are_split_where_columns_merge() -> None:
    W = two_tables(60)
    known = layers(W)
    assert known is not None
    assert [len(one) for one in known] == [120, 120]
    found = by_rows(MatrixWorkload(W))
    assert found is not None
    assert "2 groups of queries" in found.method
    assert found.expected_squared_error(epsilon=1.0) == pytest.approx(2 * (2 * 120 ** (1 / 3)) ** 3, rel=1e-6)
    assert may_group(MatrixWorkload(sparse.vstack([W, sparse.csr_array(np.ones((1, 3600)))])))


def test_groups_that_exclude_each_other_share_nothing() -> None:
    own = two_tables(6).toarray()
    none = np.zeros_like(own)
    W = sparse.csr_array(np.block([[own, none], [none, own]]))
    alone, both = by_rows(MatrixWorkload(sparse.csr_array(own))), by_rows(MatrixWorkload(W))
    assert alone is not None
    assert both is not None
    assert both.sensitivity == pytest.approx(1)
    # Four groups would do it exactly; no more than that is lost by joining some.
    assert both.expected_squared_error(epsilon=1.0) <= 2 * alone.expected_squared_error(epsilon=1.0) * (1 + 1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_layers_hold_every_row_once_and_groups_answer_the_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 30))
    tables = [table(n, rng.integers(0, rng.integers(1, 6), n)) for _ in range(int(rng.integers(2, 5)))]
    W = np.vstack(tables) * rng.choice([1.0, -2.0, 0.5], size=(sum(map(len, tables)), 1))
    weights = rng.uniform(0.5, 2, len(W)) if rng.random() < 0.5 else None
    workload = MatrixWorkload(sparse.csr_array(W), weights=weights)
    known = layers(sparse.csr_array(W))
    assert known is not None
    assert np.array_equal(np.concatenate(known), np.arange(len(W)))
    for rows in known:
        assert np.count_nonzero(W[rows], axis=0).max() <= 1
    for groups in partitions(sparse.csr_array(W)):
        assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(len(W)))
    found = by_rows(workload)
    assert found is not None
    assert found.residual < 1e-9
    w = np.ones(len(W)) if weights is None else weights
    on_data = 2 * float(w @ np.square(W).sum(axis=1))
    assert found.expected_squared_error(epsilon=1.0) <= on_data * (1 + 1e-9)
    assert found.sensitivity == pytest.approx(float(np.abs(found.measure).sum(axis=0).max()))


def test_a_matrix_without_layers_is_left_alone() -> None:
    dense = np.random.default_rng(0).random((300, 80)) + 0.1
    assert layers(sparse.csr_array(dense)) is None
    assert list(partitions(sparse.csr_array(dense))) == []
    assert not may_group(MatrixWorkload(sparse.csr_array(dense)))
    assert not may_group(MatrixWorkload(dense))
    assert not is_large(MatrixWorkload(sparse.csr_array(dense)))


@pytest.mark.slow
def test_a_large_sparse_matrix_is_not_searched_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    n = 9000
    first, second = np.arange(n) // 3, rng.permutation(n) // 3
    W = sparse.csr_array(
        sparse.vstack([sparse.csr_array((np.ones(n), (own, np.arange(n)))) for own in (first, second)])
    )
    workload = MatrixWorkload(W)
    assert is_large(workload)
    found = optimize(workload)
    # Noise on results has a sensitivity of 2: 2 · 6000 · 4.
    assert found.expected_squared_error(epsilon=1.0) <= min(2 * W.nnz, 2 * 6000 * 4) * (1 + 1e-9)


def test_wide_queries_as_shared_ones() -> None:
    W = np.vstack([np.eye(64), np.ones((40, 64))])
    error, pair = from_wide_rows(sparse.csr_array(W))
    found = pair()
    assert found is not None
    assert error < 0.8 * np.square(W).sum()
    assert found.error == pytest.approx(error, rel=1e-9)
    assert np.allclose(found.reconstruct @ found.measure, W)
    R, rows = by_entries(sparse.csr_array(W)), np.random.default_rng(0).random((3, 64))
    assert np.allclose(R.answers(rows), rows @ W.T)
    assert np.allclose(R.combined(R.answers(rows)), rows @ W.T @ W)
