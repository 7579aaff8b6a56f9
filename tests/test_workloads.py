from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchdp import MatrixWorkload, WorkloadError, workloads
from batchdp.linalg.matrix import dense


def test_discrete_draws_in_the_published_order() -> None:
    rng = np.random.default_rng(7)
    expected = np.where(rng.random((5, 30)) < 0.02, 1, -1)
    assert np.array_equal(dense(workloads.discrete(5, 30, 7).matrix), expected)


def test_ranges_draws_in_the_published_order() -> None:
    rng = np.random.default_rng(7)
    expected = np.zeros((6, 10))
    for row, ends in zip(expected, rng.integers(0, 10, size=(6, 2)), strict=True):
        row[min(ends) : max(ends) + 1] = 1
    assert np.array_equal(dense(workloads.ranges(6, 10, 7).matrix), expected)


def test_related_draws_in_the_published_order_and_has_rank_s() -> None:
    rng = np.random.default_rng(7)
    A = rng.standard_normal((3, 10))
    C = rng.standard_normal((8, 3))
    W = dense(workloads.related(8, 10, 3, 7).matrix)
    assert np.array_equal(W, C @ A)
    assert np.linalg.matrix_rank(W) == 3
    assert np.linalg.matrix_rank(dense(workloads.related(8, 10).matrix)) == 4


def test_prefix_sums_from_the_first_cell() -> None:
    assert np.array_equal(dense(workloads.prefix(4).matrix), np.tril(np.ones((4, 4))))


def test_all_ranges_has_every_interval_once() -> None:
    W = dense(workloads.all_ranges(5).matrix)
    assert W.shape == (15, 5)
    assert len(np.unique(W, axis=0)) == 15
    assert all(np.array_equal(np.flatnonzero(row), np.arange(row.sum()) + row.argmax()) for row in W)


def test_sliding_windows() -> None:
    expected = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert np.array_equal(dense(workloads.sliding(4, 2).matrix), expected)
    assert np.array_equal(dense(workloads.sliding(3, 3).matrix), [[1, 1, 1]])


def test_large_narrow_windows_are_sparse_and_right() -> None:
    workload = workloads.sliding(2000, 3)
    assert workload.is_sparse
    W = dense(workload.matrix)
    assert W.shape == (1998, 2000)
    assert all(W[i, i : i + 3].sum() == 3 == W[i].sum() for i in range(0, 1998, 111))


def test_marginals_count_every_combination() -> None:
    W = workloads.marginals((2, 3), 1)
    expected = [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]]
    assert np.array_equal(dense(W.matrix), expected)
    assert W.names == ("a1=0", "a1=1", "a2=0", "a2=1", "a2=2")
    total = workloads.marginals((2, 3), 0)
    assert np.array_equal(dense(total.matrix), np.ones((1, 6)))
    assert total.names == ("total",)
    assert np.array_equal(dense(workloads.marginals((2, 3), 2).matrix), np.eye(6))


@pytest.mark.parametrize(
    "make",
    [
        lambda: workloads.discrete(0, 3),
        lambda: workloads.ranges(3, -1),
        lambda: workloads.related(3, 3, 0),
        lambda: workloads.prefix(2.5),  # type: ignore[arg-type]
        lambda: workloads.sliding(3, 4),
        lambda: workloads.marginals((2, 0), 1),
        lambda: workloads.marginals((2, 2), 3),
        lambda: workloads.marginals((10,) * 20, 21),
        lambda: workloads.marginals((), 0),
        lambda: workloads.marginals(4, 1),  # type: ignore[arg-type]
        lambda: workloads.prefix(10**9),
        lambda: workloads.all_ranges(10**6),
        lambda: workloads.prefix(True),
        lambda: workloads.discrete(2, 2, -1),
    ],
)
def test_sizes_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(WorkloadError, match=r"must be|at most|fewer|shape"):
        make()


def test_the_same_seed_gives_the_same_workload() -> None:
    for make in (workloads.discrete, workloads.ranges, workloads.related):
        one, same, other = make(9, 50, seed=1), make(9, 50, seed=1), make(9, 50, seed=2)
        assert isinstance(one, MatrixWorkload)
        assert np.array_equal(dense(one.matrix), dense(same.matrix))
        assert not np.array_equal(dense(one.matrix), dense(other.matrix))
