"""Algorithms 1 and 2 as printed: however fast, they take the steps that are printed."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
import pytest

from batchdp import workloads
from batchdp.linalg.l1_ball import project_columns
from batchdp.strategies.low_rank import compiled, in_blocks, nesterov, paper
from batchdp.strategies.low_rank.program import first_measure, revived
from batchdp.strategies.low_rank.settings import SETTINGS
from batchdp.workloads.reduction import reduce

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
    schedule = SETTINGS.as_printed
    L = first_measure(R, rank, np.random.default_rng(0))
    pi, beta, omega = np.zeros_like(R), 1.0, 1.0
    for round_ in range(1, rounds + 1):
        target = beta * R + pi
        for _ in range(schedule.alternations):
            B = np.linalg.solve(beta * (L @ L.T) + np.eye(rank), L @ target.T).T
            after, omega = plain(B, target, L, beta, omega, schedule.steps)
            yield L, target, beta, B, after, omega
            L = after
        E = R - B @ L
        if round_ % 2 == 0:  # the printed tenth would take long
            beta *= 2
        pi = pi + beta * E
        L = revived(L, E, schedule.height)


def problem(kind: str) -> tuple[Matrix, int]:
    shape = (24, 70, 12) if kind == "related" else (24, 70)
    R = reduce(getattr(workloads, kind)(*shape, seed=1), merge=False).reduced
    return R, len(R) + 5


@pytest.fixture(params=["compiled", "dense", "either", "sparse"])
def either_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> nesterov.Kernels:
    """Numba's, and NumPy's whatever share of the entries is not zero."""
    kernels: nesterov.Kernels = compiled if request.param == "compiled" else in_blocks
    monkeypatch.setattr(in_blocks, "FEW", {"dense": 0.0, "sparse": 1.0}.get(request.param, in_blocks.FEW))
    monkeypatch.setattr(in_blocks, "BLOCK_ENTRIES", 512)  # several blocks, the last one short
    for module in (nesterov, paper):
        monkeypatch.setattr(module, "kernels", lambda: kernels)
    return kernels


@pytest.mark.usefixtures("either_kernels")
@pytest.mark.parametrize("kind", ["discrete", "ranges", "related"])
def test_every_iterate_is_the_printed_one(kind: str) -> None:
    """From each state to the next; over many of them rounding grows, in the printed lines as in these."""
    R, rank = problem(kind)
    descent = nesterov.Descent(rank, R.shape[1], SETTINGS.as_printed.steps)
    for L, target, beta, B, after, omega in states(R, rank, 6):
        assert np.abs(paper.ridge(L, target, beta) - B).max() <= 1e-10 * np.abs(B).max()
        assert np.abs(descent.least(B, target, L, beta) - after).max() <= 1e-12
        assert descent.omega == omega


def test_the_first_round_of_algorithm_1_is_the_printed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[tuple[Matrix, Matrix]] = []
    monkeypatch.setattr(paper, "repaired", lambda R, L, B, rounds, outcome: ends.append((L, B)))
    R, rank = problem("ranges")
    paper.solve(R, rank, 0.0, 0, lambda *_: True)
    alternations = list(states(R, rank, 1))
    assert any(np.abs(ends[0][0] - one[4]).max() <= 1e-10 for one in alternations)


def test_most_entries_are_zero_where_it_is_fast() -> None:
    """Three in a hundred at 256 × 1024; what the fast product lives on."""
    R = reduce(workloads.ranges(64, 256, 0), merge=False).reduced
    rank = len(R) + 12
    L = first_measure(R, rank, np.random.default_rng(0))
    descent = nesterov.Descent(rank, 256, 10)
    for _ in range(3):
        B = paper.ridge(L, R, 1.0)
        L = descent.least(B, R, L, 1.0)
    assert np.abs(L).sum(axis=0).max() <= 1 + 1e-12
    assert np.count_nonzero(L) <= in_blocks.FEW * L.size
