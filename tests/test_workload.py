from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from batchdp import MatrixWorkload, WorkloadError
from batchdp.linalg.matrix import dense, plain

W = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])


@pytest.mark.parametrize(
    "given",
    [
        W,
        W.tolist(),
        W.astype(int),
        W.astype(np.int8),
        W.astype(np.float32),
        np.asfortranarray(W),
        W[:, ::-1][:, ::-1],
        sparse.csr_array(W),
        sparse.coo_matrix(W),
        sparse.csc_array(W.astype(int)),
        sparse.dok_array(W),
    ],
    ids=lambda given: type(given).__name__,
)
def test_any_form_of_the_same_numbers_is_the_same_workload(given: Any) -> None:
    workload = MatrixWorkload(given)
    assert np.array_equal(dense(workload.matrix), W)
    assert (workload.queries, workload.cells) == (2, 3)
    assert workload.names == ("q1", "q2")


def test_booleans_count_as_zero_and_one() -> None:
    assert np.array_equal(dense(MatrixWorkload(W > 0).matrix), [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def test_a_read_only_array_is_accepted_and_the_callers_array_stays_writable() -> None:
    mine = W.copy()
    mine.flags.writeable = False
    assert np.array_equal(dense(MatrixWorkload(mine).matrix), W)
    mine = W.copy()
    workload = MatrixWorkload(mine)
    mine[0, 0] = 99
    assert dense(workload.matrix)[0, 0] == 1


def test_the_sparse_original_can_change_without_changing_the_workload() -> None:
    mine = sparse.csr_array(W)
    workload = MatrixWorkload(mine)
    mine.data[:] = 99
    assert np.array_equal(dense(workload.matrix), W)


def test_a_workload_cannot_be_changed() -> None:
    workload = MatrixWorkload(W, weights=[1, 2])
    assert workload.weights is not None
    with pytest.raises(FrozenInstanceError):
        workload.names = ("a", "b")  # type: ignore[misc]
    for array in (dense(workload.matrix), workload.weights, plain(MatrixWorkload(sparse.csr_array(W)).matrix).data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


BAD = {
    "NaN": ([[1.0, np.nan]], "NaN or infinite"),
    "infinite": ([[1.0, -np.inf]], "NaN or infinite"),
    "sparse NaN": (sparse.csr_array([[1.0, np.nan]]), "NaN or infinite"),
    "no rows": (np.zeros((0, 3)), r"shape \(0, 3\)"),
    "no columns": (np.zeros((3, 0)), r"shape \(3, 0\)"),
    "empty list": ([], "at least one query"),
    "sparse without rows": (sparse.csr_array((0, 3)), "at least one query"),
    "ragged": ([[1, 2], [3]], "same length"),
    "a single row": ([1, 2, 3], "1 dimension"),
    "a cube": (np.ones((2, 2, 2)), "3 dimension"),
    "a number": (3, "0 dimension"),
    "None": (None, "real number"),
    "texts": ([["a", "b"]], "real number"),
    "complex": ([[1j, 2]], "real number"),
    "objects": (np.array([[object(), 1]]), "real number"),
    "huge integers": ([[2**60 + 1, 1]], "float64 cannot hold"),
    "huge": ([[1e200, 1]], "rescale"),
    "vanishing": ([[1e-200, 1]], "set it to 0"),
    "masked": (np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]), "masked"),
    "too wide floats": ([[np.longdouble("1e400")]], "infinite"),
    "sparse huge integers": (sparse.lil_array(np.array([[2**60 + 1]])), "float64 cannot hold"),
    "a text": ("abc", "real number"),
    "sparse complex": (sparse.csr_array([[1j]]), "real number"),
    "sparse one-dimensional": (sparse.coo_array(np.array([1.0, 2.0])), "1 dimension"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_matrices_are_refused_with_the_argument_and_a_remedy(name: str) -> None:
    given, message = BAD[name]
    with pytest.raises(WorkloadError, match=message) as caught:
        MatrixWorkload(given)
    assert "workload" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "1 entries for 2"),
        (["a", "a"], "twice"),
        (["a", " "], "not blank"),
        (["a", 3], "must be a text"),
        ("ab", "one text"),
        (5, "not a list"),
    ],
)
def test_bad_names_are_refused(names: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        MatrixWorkload(W, names=names)


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, -1], [1, np.nan], [1, np.inf], ["a", "b"], [[1, 2]], [1j, 2]])
def test_bad_weights_are_refused(weights: Any) -> None:
    with pytest.raises(WorkloadError, match="weights"):
        MatrixWorkload(W, weights=weights)


def test_duplicates_of_small_integers_add_up() -> None:
    matrix = sparse.coo_array((np.array([100, 100], dtype=np.int8), ([0, 0], [1, 1])), shape=(1, 2))
    assert np.array_equal(dense(MatrixWorkload(matrix).matrix), [[0, 200]])


def test_weights_scale_the_rows_whose_error_they_weigh() -> None:
    for matrix in (W, sparse.csr_array(W)):
        weighted = dense(MatrixWorkload(matrix, weights=[4, 9]).weighted)
        assert np.allclose(weighted, [[2, 4, 0], [0, -3, 9]])


def test_repr_shows_the_shape_and_no_coefficients() -> None:
    assert repr(MatrixWorkload(W)) == "Workload(2 queries × 3 cells, dense)"
    assert "sparse, weighted" in repr(MatrixWorkload(sparse.csr_array(W), weights=[1, 2]))
