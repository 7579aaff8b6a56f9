"""Algorithms 1 and 2 as printed: however fast, they take the steps that are printed."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
import pytest

from batchdp import workloads
from batchdp.linalg.l1_ball import project_columns
from batchdp.optimizer.families.low_rank import paper
from batchdp.optimizer.families.low_rank.fast import first_measure, revived
from batchdp.workloads.reduction import reduce
from reproduction import compiled

Matrix = np.ndarray


def plain(B: Matrix, target: Matrix, start: Matrix, beta: float, omega: float, steps: int) -> tuple[Matrix, float]:
    """Algorithm 2 line by line, with J written out in line 12."""

    def J(L: Matrix) -> float:  # noqa: N802
        return float(0.5 * beta * np.sum((B @ L) ** 2) - np.sum(target * (B @ L)))

    chi, omega = start.size * 1e-12, max(1.0, omega / 4)
    L = before = start
    older, newer = 0.0, 1.0
    for _ in range(steps):
        S = L + (older - 1) / newer * (L - before)
        slope = beta * (B.T @ (B @ S)) - B.T @ target
        while True:
            after = project_columns(S - slope / omega)
            D = after - S
            if np.linalg.norm(D) < chi:
                return after, omega
            size = 1e-12 * (abs(J(S)) + omega * np.sum(D * D))  # J's own rounding
            if J(after) <= J(S) + np.sum(slope * D) + omega / 2 * np.sum(D * D) + size:
                break
            omega *= 2
        before, L = L, after
        older, newer = newer, (1 + sqrt(1 + 4 * newer * newer)) / 2
    return L, omega


def states(R: Matrix, rank: int, rounds: int) -> Iterator[tuple[Matrix, Matrix, float, Matrix, Matrix, float]]:
    """Algorithm 1 line by line: L and target = β R + π before every alternation, β, and B, L and ω after it."""
    L = first_measure(R, rank, np.random.default_rng(0))
    pi, beta, omega = np.zeros_like(R), 1.0, 1.0
    for round_ in range(1, rounds + 1):
        target = beta * R + pi
        for _ in range(paper.ALTERNATIONS):
            B = np.linalg.solve(beta * (L @ L.T) + np.eye(rank), L @ target.T).T
            after, omega = plain(B, target, L, beta, omega, paper.STEPS)
            yield L, target, beta, B, after, omega
            L = after
        E = R - B @ L
        if round_ % 2 == 0:  # the printed tenth would take long
            beta *= 2
        pi = pi + beta * E
        L = revived(L, E, paper.HEIGHT)


def problem(kind: str) -> tuple[Matrix, int]:
    shape = (24, 70, 12) if kind == "related" else (24, 70)
    R = reduce(getattr(workloads, kind)(*shape, seed=1), merge=False).reduced
    return R, len(R) + 5


@pytest.fixture(params=["compiled", "dense", "either", "sparse"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> paper.Kernels:
    """Numba's, and NumPy's whatever share of the entries is not zero."""
    monkeypatch.setattr(paper, "FEW", {"dense": 0.0, "sparse": 1.0}.get(request.param, paper.FEW))
    monkeypatch.setattr(paper, "BLOCK_ENTRIES", 512)  # several blocks, the last one short
    return compiled.NUMBA if request.param == "compiled" else paper.NUMPY


@pytest.mark.parametrize("kind", ["discrete", "ranges", "related"])
def test_every_iterate_is_the_printed_one(kind: str, kernels: paper.Kernels) -> None:
    """From each state to the next; over many of them rounding grows, in the printed lines as in these."""
    R, rank = problem(kind)
    descent = paper.Descent(rank, R.shape[1], paper.STEPS, kernels)
    for L, target, beta, B, after, omega in states(R, rank, 6):
        assert np.abs(paper.best_reconstruct(L, target, beta, kernels) - B).max() <= 1e-10 * np.abs(B).max()
        assert np.abs(descent.least(B, target, L, beta) - after).max() <= 1e-12
        assert descent.omega == omega


@pytest.mark.parametrize("guess", [0.0, 0.5, 1 - 1e-15, 1.0, 1 + 1e-15, 1.1, 2.0, 1e9])
def test_the_compiled_projection_is_exact_wherever_its_search_begins(guess: float) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 37)) * np.logspace(-3, 3, 40)[:, None]  # some inside the ball
    X[3], X[4], X[5] = 0.0, 0.5, np.eye(37)[2]  # nothing, all alike, on the ball
    after, slope, zero = np.empty_like(X), np.empty_like(X), np.zeros_like(X)
    H, F = np.eye(37), np.zeros_like(X)
    thresholds = np.zeros(len(X))
    for factor in (0.0, guess):
        thresholds *= factor
        moved, bent = compiled.step(X, zero, X, zero, 0.0, 1.0, thresholds, H, F, after, slope)
        expected = project_columns(X.T).T
        assert np.abs(after - expected).max() <= 1e-15 * np.abs(X).max()
        assert np.abs(after).sum(axis=1).max() <= 1 + 1e-12
        np.testing.assert_array_equal(slope, after)
        assert moved == pytest.approx(np.sum((X - expected) ** 2), rel=1e-12)
        assert bent == pytest.approx(np.sum((X - expected) * -expected), rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_products_leave_out_zeros_alone(share: float, kernels: paper.Kernels) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((30, 13)) * (rng.random((30, 13)) < share)
    np.testing.assert_allclose(kernels.product(rows, H := rng.random((13, 7))), rows @ H, atol=1e-14)
    np.testing.assert_allclose(kernels.transposed_product(rows, M := rng.random((30, 7))), rows.T @ M, atol=1e-14)


def test_the_first_round_of_algorithm_1_is_the_printed_one(
    kernels: paper.Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[Matrix, Matrix]] = []
    monkeypatch.setattr(paper, "repaired", lambda R, L, B, rounds, outcome: ends.append((L, B)))
    R, rank = problem("ranges")
    paper.solve(R, rank, 0.0, 0, lambda *_: True, kernels=kernels)
    alternations = list(states(R, rank, 1))
    assert any(np.abs(ends[0][0] - one[4]).max() <= 1e-10 for one in alternations)


def test_most_entries_are_zero_where_it_is_fast() -> None:
    """Three in a hundred at 256 × 1024; what the fast product lives on."""
    R = reduce(workloads.ranges(64, 256, 0), merge=False).reduced
    rank = len(R) + 12
    L = first_measure(R, rank, np.random.default_rng(0))
    descent = paper.Descent(rank, 256, 10, paper.NUMPY)
    for _ in range(3):
        B = paper.best_reconstruct(L, R, 1.0, paper.NUMPY)
        L = descent.least(B, R, L, 1.0)
    assert np.abs(L).sum(axis=0).max() <= 1 + 1e-12
    assert np.count_nonzero(L) <= paper.FEW * L.size
