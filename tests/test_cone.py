"""Matrices brought to the positive definite cone by the few eigenvectors that leave it, against all of them."""

from __future__ import annotations

import numpy as np
import pytest

from batchdp.linalg import cone
from batchdp.linalg.matrix import Dense
from batchdp.optimizer.families.matrix_mechanism import FLOOR, _Objective, matrix_mechanism
from batchdp.workloads import discrete, ranges, related
from batchdp.workloads.matrix import MatrixWorkload

SIZE = cone.ITERATIVE_FROM + 44


def spectrum(low: list[float], size: int = SIZE, seed: int = 0) -> tuple[Dense, Dense, Dense]:
    """A symmetric matrix with these eigenvalues and others from 0.01 to 1, and its eigenvalues and vectors."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((size, size)))[0]
    eigenvalues = np.concatenate([low, np.linspace(0.01, 1, size - len(low))])
    return (V * eigenvalues) @ V.T, eigenvalues, V


def by_all(M: Dense) -> Dense:
    eigenvalues, V = np.linalg.eigh(M)
    return np.asarray((V * np.maximum(eigenvalues, eigenvalues[-1] * FLOOR)) @ V.T)


def never(directions: Dense, height: float) -> bool:
    return False


@pytest.mark.parametrize("low", [[-1e-3], [-0.5, -0.2, -1e-5], [-2e-8], [1e-10], list(np.linspace(-0.3, -0.01, 20))])
def test_a_few_eigenvectors_give_the_projection_that_all_would(
    low: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    M, _, _ = spectrum(low)
    expected = by_all(M)
    assert cone.inside(M, FLOOR) is None
    with monkeypatch.context() as patch:
        patch.setattr(np.linalg, "eigh", None)  # not needed here
        found = cone.project(M, FLOOR, never)
    assert found is not None
    np.testing.assert_allclose(found.matrix, expected, atol=1e-9)
    np.testing.assert_allclose(found.divided(found.matrix), np.eye(SIZE), atol=1e-5)
    assert np.linalg.eigvalsh(found.matrix)[0] == pytest.approx(FLOOR, rel=0.05)


@pytest.mark.parametrize(("low", "size"), [(list(np.linspace(-0.3, -0.01, 50)), SIZE), ([-0.1], 40), ([-1.0], 2)])
def test_many_directions_and_small_matrices_take_all_eigenvectors(low: list[float], size: int) -> None:
    M, _, _ = spectrum(low, size)
    found = cone.project(M, FLOOR, never)
    assert found is not None
    np.testing.assert_allclose(found.matrix, by_all(M), atol=1e-9)
    np.testing.assert_allclose(found.divided(found.matrix), np.eye(size), atol=1e-5)


def test_what_is_inside_stays_as_it_is_and_what_is_too_near_the_edge_does_not() -> None:
    M, eigenvalues, V = spectrum([1e-4])
    found = cone.inside(M, FLOOR)
    assert found is not None
    assert found.matrix is M
    np.testing.assert_allclose(found.divided(V[:3]), ((V[:3] @ V) / eigenvalues) @ V.T, atol=1e-7)
    assert cone.inside(spectrum([1e-9])[0], FLOOR) is None
    assert cone.inside(np.zeros((3, 3)), FLOOR) is None


@pytest.mark.parametrize("seed", range(5))
def test_what_is_said_of_directions_holds_of_the_projection(seed: int) -> None:
    """The height bounds uᵀPu in every direction that is named, so that nothing is called hopeless that is not."""
    low = [-0.2, -1e-2, -1e-2, -1e-4, -1e-6, 5e-9, 1e-7, 1e-5]
    M, _, _ = spectrum(low, seed=seed)
    P = by_all(M)
    said = []

    def heard(directions: Dense, height: float) -> bool:
        said.append((directions, height))
        return False

    cone.project(M, FLOOR, heard)
    assert said
    for directions, height in said:
        np.testing.assert_allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-9)
        assert np.linalg.eigvalsh(directions.T @ P @ directions)[-1] <= height * (1 + 1e-6)
    assert cone.project(M, FLOOR, lambda directions, height: True) is None


@pytest.mark.parametrize("low", [[-0.2], [-0.1, -1e-2, -1e-2, -1e-3], list(np.linspace(-0.3, -0.01, 20))])
@pytest.mark.parametrize("queries", [1, 5])
def test_a_trial_is_refused_just_where_its_value_is_above_the_ceiling(low: list[float], queries: int) -> None:
    M, _, V = spectrum(low)
    R = V[:, :1].T if queries == 1 else np.random.default_rng(1).standard_normal((queries, SIZE))
    objective = _Objective(R, mu=0.001)
    found = objective(M)
    assert found is not None
    value = found[1]
    assert objective(M, value * (1 + 1e-6)) is not None
    assert objective(M, value * (1 - 1e-6)) is None
    assert objective(M, 0.0) is None


@pytest.mark.parametrize("size", [1, 2, SIZE])
@pytest.mark.parametrize("scale", [0.0, 1e-60, 1e50])
def test_matrices_that_iteration_cannot_take_are_projected_all_the_same(size: int, scale: float) -> None:
    M = scale * np.eye(size)
    M[0, 0] *= -1
    found = cone.project(M, FLOOR, never)
    assert found is not None
    assert np.linalg.eigvalsh(found.matrix)[0] >= 0
    np.testing.assert_allclose(found.matrix[1:, 1:], M[1:, 1:], atol=1e-300)


def test_projections_are_the_same_in_every_run() -> None:
    """Where ARPACK exhausts its space it makes up vectors: here all of thirty eigenvalues are equal."""
    H = np.ones((1, 1))
    while len(H) < cone.ITERATIVE_FROM:
        H = np.block([[H, H], [H, -H]])
    V = H / np.sqrt(len(H))
    M = (V * np.where(np.arange(len(H)) < 30, -(2.0**-20), 1.0)) @ V.T
    results = [cone.project(M, FLOOR, never) for _ in range(3)]
    assert len({one.matrix.tobytes() for one in results if one is not None}) == 1


@pytest.mark.parametrize(
    "workload",
    [discrete(64, 320, 0), ranges(64, 320, 0), related(64, 320, 20, 0)],
    ids=("discrete", "ranges", "related"),
)
def test_the_matrix_mechanism_takes_the_same_steps_with_a_few_eigenvectors_as_with_all(
    workload: MatrixWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = matrix_mechanism(workload, max_rounds=6)
    monkeypatch.setattr(cone, "ITERATIVE_FROM", 10**9)
    monkeypatch.setattr(cone, "_factor", lambda M: None)
    everything = matrix_mechanism(workload, max_rounds=6)
    assert few.expected_squared_error(epsilon=1.0) == pytest.approx(
        everything.expected_squared_error(epsilon=1.0), rel=1e-6
    )
