from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import nnls

from batchdp.linalg.l1_ball import project_columns, projected_rows

matrices = arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)


@given(X=matrices, radius=st.sampled_from([0.5, 1.0, 10.0]))
def test_the_projection_meets_its_optimality_conditions(X: np.ndarray, radius: float) -> None:
    """P is nearest iff ⟨X − P, Z − P⟩ ≤ 0 for every vertex Z of the ball."""
    P = project_columns(X, radius)
    size = 1 + np.abs(X).max()
    assert np.all(np.abs(P).sum(axis=0) <= radius + 1e-14 * len(X) * size)
    G = X - P
    rounding = 4 * np.finfo(float).eps * len(X) * size**2  # P is right to eps · size an entry, G is of that size
    assert np.all(radius * np.abs(G).max(axis=0) - np.sum(G * P, axis=0) <= rounding)


@given(X=matrices)
def test_columns_inside_the_ball_stay_and_nothing_changes_sign(X: np.ndarray) -> None:
    P = project_columns(X)
    inside = np.abs(X).sum(axis=0) <= 1
    assert np.array_equal(P[:, inside], X[:, inside])
    assert np.all(P * X >= 0)
    assert P is not X


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_is_that_of_a_quadratic_program_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5, 4)) * rng.choice([0.1, 1, 5], size=4)
    P = project_columns(X)
    for x, p in zip(X.T, P.T, strict=True):
        assert np.allclose(solved_as_quadratic_program(x), p, atol=1e-7)


def solved_as_quadratic_program(x: np.ndarray) -> np.ndarray:
    """min ‖a − b − x‖² with a, b, slack ≥ 0 and Σ(a + b) + slack = 1, by an active-set solver."""
    r, heavy = len(x), 1e5  # the weight makes the equation hold to 1e-10
    signs = np.hstack([np.eye(r), -np.eye(r), np.zeros((r, 1))])
    z, _ = nnls(np.vstack([signs, np.full(2 * r + 1, heavy)]), np.append(x, heavy))
    return np.asarray(signs @ z)


def test_ties_zeros_and_large_entries() -> None:
    assert np.allclose(project_columns(np.ones((4, 1))), 0.25)
    assert np.array_equal(project_columns(np.zeros((3, 2))), np.zeros((3, 2)))
    assert np.allclose(project_columns(np.array([[1e9], [1.0]])), [[1.0], [0.0]])


@given(X=matrices, radius=st.sampled_from([0.5, 1.0, 10.0]), guess=st.sampled_from([0.0, 0.5, 0.9, 1.0, 1.1, 3.0, 1e3]))
def test_any_guess_of_the_thresholds_gives_the_same_projection(X: np.ndarray, radius: float, guess: float) -> None:
    P = project_columns(X, radius)
    true = np.abs(X - P).max(axis=0)  # t where a column has an entry left, and never above it
    rows, t = projected_rows(np.ascontiguousarray(X.T), guess * true + (guess > 1) * 1e-3, radius)
    assert pytest.approx(P, rel=1e-12, abs=1e-13 * (1 + np.abs(X).max())) == rows.toarray().T
    assert np.all(rows.data != 0)
    again, _ = projected_rows(np.ascontiguousarray(X.T), t, radius)
    assert again.toarray() == pytest.approx(rows.toarray(), rel=1e-12, abs=1e-13 * (1 + np.abs(X).max()))
