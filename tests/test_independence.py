from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from batchdp.linalg import matrix
from batchdp.linalg.matrix import Plain, dense, independent_rows, leading_signs


@pytest.fixture
def eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything were large."""
    monkeypatch.setattr(matrix, "LARGE", 1)
    monkeypatch.setattr(matrix, "MANY_ENTRIES", 1)
    monkeypatch.setattr(matrix, "FIRST_GUESS", 2)


def check(W: Plain, rank: int) -> tuple[Plain, np.ndarray]:
    U, R = independent_rows(W)
    assert R.shape == (rank, W.shape[1])
    assert dense(U).T @ dense(U) == pytest.approx(np.eye(rank), abs=1e-12)
    assert dense(U) @ R == pytest.approx(dense(W), abs=1e-12 * float(np.abs(dense(W)).max(initial=0.0)))
    return U, R


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (16, 400), (400, 16)])
@pytest.mark.parametrize("rank", [1, 2, 3, 7])
def test_a_low_rank_is_found_without_singular_values_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, rank: int, shape: tuple[int, int], as_sparse: bool
) -> None:
    if 8 * rank <= min(shape):
        monkeypatch.setattr(matrix, "_by_singular_values", None)
    rng = np.random.default_rng(rank)
    W = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    check(sparse.csr_array(W) if as_sparse else W, rank)


@pytest.mark.usefixtures("eagerly")
def test_independent_rows_stay_as_they_are() -> None:
    W = np.tril(np.ones((50, 50)))
    U, R = check(W, 50)
    assert sparse.issparse(U)
    assert R is W


@pytest.mark.usefixtures("eagerly")
def test_rows_that_are_nearly_dependent_or_of_odd_sizes_are_left_to_singular_values() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((20, 40))
    nearly = W.copy()
    nearly[3] = nearly[4] + 1e-9 * rng.standard_normal(40)
    assert check(nearly, 20)[0].shape == (20, 20)
    check(W * np.logspace(0, -12, 20)[:, None], 20)
    dependent = W.copy()
    dependent[3] = dependent[4] - dependent[5]
    check(dependent, 19)


@pytest.mark.usefixtures("eagerly")
def test_small_rows_are_not_lost_in_a_low_rank() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 60))
    W[7] = 1e-10 * rng.standard_normal(60)
    U, R = independent_rows(W)
    assert dense(U)[7] @ R == pytest.approx(W[7], rel=1e-4)


@given(seed=st.integers(0, 2**20))
def test_nothing_is_too_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = rng.integers(0, 4, size=2)
    W = rng.integers(-1, 2, size=(m, n)).astype(float)
    check(W, int(np.linalg.matrix_rank(W)) if W.size else 0)


def test_signs_follow_the_strongest_direction_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((30, 1)) @ rng.standard_normal((1, 90)) + 0.1 * rng.standard_normal((30, 90))
    by_values = leading_signs(independent_rows(W)[1])
    monkeypatch.setattr(matrix, "LARGE", 1)
    by_power = leading_signs(W)
    assert np.array_equal(by_values, by_power) or np.array_equal(by_values, -by_power)
