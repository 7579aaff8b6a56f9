from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from batchdp import Ledger, MatrixWorkload, WorkloadError, answer, load_release, load_strategy, optimize
from batchdp.linalg.matrix import dense, plain
from batchdp.release.counts import given_counts

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


def test_the_labels_of_a_frame_are_the_names(tmp_path: Path) -> None:
    rows = pd.MultiIndex.from_tuples([("all", 1), ("east", 2)], names=["where", "n"])
    frame = pd.DataFrame([[1, 1, 1], [1, 0, 1]], index=rows, columns=["NY", "CA", "NJ"])
    strategy = optimize(frame, seconds=0.2)
    assert strategy.workload.names == ("all, 1", "east, 2")
    assert strategy.workload.cell_names == ("NY", "CA", "NJ")
    strategy.save(tmp_path / "one.strategy")
    found: Any = load_strategy(tmp_path / "one.strategy")
    assert found.workload.cell_names == ("NY", "CA", "NJ")
    # In the order of value_counts, one state missing, one that no query knows, and one twice.
    counts = pd.Series([7, 5000, 100, 30], index=["WA", "NJ", "NY", "NY"])
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=2e3)
    release = answer(found, counts, epsilon=1e3, ledger=ledger)
    assert [one.name for one in release.answers] == ["all, 1", "east, 2"]
    assert release.values == pytest.approx([5130, 5130], abs=0.5)
    assert "Counts are found by their labels" in release.notes[0]
    release.save(tmp_path / "one.release")
    assert load_release(tmp_path / "one.release").notes == release.notes
    # Without labels of its own the order counts, as ever.
    for ordered in ([1, 2, 3], pd.Series([1, 2, 3])):
        assert answer(found, ordered, epsilon=100, ledger=ledger).values == pytest.approx([6, 4], abs=1)


def test_a_frame_that_numbers_its_rows_has_no_names_and_two_of_one_name_are_refused() -> None:
    assert MatrixWorkload(pd.DataFrame(np.eye(2))).names == ("q1", "q2")
    assert MatrixWorkload(pd.DataFrame(np.eye(2))).cell_names is None
    assert MatrixWorkload(pd.DataFrame(np.eye(2), index=["a", "b"]), ["x", "y"]).names == ("x", "y")
    with pytest.raises(WorkloadError, match="'a' twice; every query needs its own name"):
        MatrixWorkload(pd.DataFrame(np.eye(2), index=["a", "a"]))
    with pytest.raises(WorkloadError, match="'a' twice; every cell needs its own name"):
        MatrixWorkload(pd.DataFrame(np.eye(2), columns=["a", "a"]))


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", 1, None, "zz"]), st.integers(0, 9)), max_size=6), st.data())
def test_an_entry_more_moves_one_cell_by_itself_and_nothing_is_refused(entries: Any, data: Any) -> None:
    workload = MatrixWorkload(pd.DataFrame(np.eye(3), columns=["a", "b", "c"]))

    def counted(of: list[tuple[Any, int]]) -> np.ndarray:
        labels = pd.Index([label for label, _ in of], dtype=object)
        return given_counts(pd.Series([n for _, n in of], index=labels, dtype=object), workload)[0]()

    label, n = data.draw(st.tuples(st.sampled_from(["a", "c", Unspeakable()]), st.integers(0, 9)))
    moved = counted([*entries, (label, n)]) - counted(entries)
    assert moved.tolist() == [n if label == name else 0 for name in ("a", "b", "c")]
