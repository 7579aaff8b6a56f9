"""The convex bound's own promises, on matrices that are hard on it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense, dense
from batchdp.strategies.bounds import convex
from batchdp.strategies.bounds.convex import Optimum, solve
from batchdp.text import Outcome


def _hostile() -> dict[str, Dense]:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 60))
    grades = np.logspace(0, -6, 12)[:, None]
    turn = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    return {
        "random": A,
        "square": A[:, :12],
        "identity": np.eye(7),
        "prefix": np.tril(np.ones((64, 64))),
        "graded": grades * A,
        "graded and turned": turn @ (grades * A),
        "graded columns": A * np.logspace(0, -12, 60),
        "one entry": np.array([[3.0]]),
        "one row": A[:1],
        "zero columns": np.where(np.arange(60) % 3 == 0, 0.0, A),
        "duplicated columns": np.hstack([A, A, -A]),
        "tiny": A * 1e-140,
        "huge": A * 1e140,
        "many columns": rng.standard_normal((5, 3000)),
    }


HOSTILE = _hostile()


def _check(R: Dense, ended: Optimum) -> None:
    """Everything that a certificate says, from R and its fields alone."""
    B, L, v = ended.pair.reconstruct, dense(ended.pair.measure), ended.bound.weights
    assert ended.bound.lower_bound <= ended.bound.upper_bound * (1 + 1e-12)
    assert np.square(L).sum(axis=0).max() <= 1 + 1e-12
    assert np.sum(np.square(B / ended.bound.upper_bound**0.5)) == pytest.approx(1, rel=1e-9)
    misses = np.linalg.norm(B @ L - R, axis=1)
    assert np.all(misses <= 1e-9 * np.linalg.norm(R, axis=1))
    assert v.min() >= 0
    norm = float(np.abs(R).max())
    nuclear = np.linalg.svd(R / norm * np.sqrt(v), compute_uv=False).sum()
    assert nuclear**2 / v.sum() * norm**2 == pytest.approx(ended.bound.lower_bound, rel=1e-9)


@pytest.fixture(params=["double", "single", "coarse"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way through the search, whatever the size that it is meant for."""
    monkeypatch.setattr(convex, "WORTH_ROUNDING", 0.0 if request.param == "single" else np.inf)
    monkeypatch.setattr(convex, "SMALLEST_COARSENED", 8 if request.param == "coarse" else np.inf)
    return str(request.param)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_certificate_holds_in_every_precision(name: str, path: str) -> None:
    R = HOSTILE[name]
    ended = solve(R)
    _check(R, ended)
    assert ended.bound.outcome is Outcome.OPTIMAL
    assert ended.bound.gap <= 1e-3


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("name", ["random", "graded and turned", "many columns"])
def test_a_certificate_holds_when_the_search_is_cut_short(name: str, rounds: int, path: str) -> None:
    ended = solve(HOSTILE[name], tolerance=1e-4, max_rounds=rounds)
    _check(HOSTILE[name], ended)
    assert ended.bound.rounds <= rounds
    cancelled = solve(HOSTILE[name], tolerance=1e-4, progress=lambda done, low, high: done == rounds)
    _check(HOSTILE[name], cancelled)


@pytest.mark.parametrize("name", ["random", "graded", "prefix", "many columns"])
def test_rounding_and_coarse_starts_change_no_bound(name: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = solve(HOSTILE[name])
    monkeypatch.undo()
    exact = solve(HOSTILE[name], tolerance=1e-7)
    assert found.bound.lower_bound <= exact.bound.upper_bound
    assert found.bound.upper_bound >= exact.bound.lower_bound


def test_few_columns_give_the_bounds_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    R = np.random.default_rng(1).standard_normal((20, 6000))
    few = solve(R)
    monkeypatch.setattr(convex, "_all_but_the_first", lambda order, k: np.zeros(order.size, dtype=bool))
    every = solve(R)
    _check(R, few)
    assert few.bound.lower_bound == pytest.approx(every.bound.lower_bound, rel=1e-3)
    assert few.bound.upper_bound == pytest.approx(every.bound.upper_bound, rel=1e-3)


def test_columns_that_were_left_out_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poor first choice costs rounds, never validity: here it is the columns that matter least."""
    R = np.random.default_rng(2).standard_normal((6, 1500))

    def worst(order: Dense, k: int) -> NDArray[np.bool_]:
        return np.asarray(np.argsort(np.argsort(order)) >= 300)

    monkeypatch.setattr(convex, "_all_but_the_first", worst)
    ended = solve(R)
    _check(R, ended)
    assert ended.bound.gap <= 1e-3


def test_single_precision_gives_way_where_it_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convex, "WORTH_ROUNDING", 0.0)
    monkeypatch.setattr(convex, "MOST_GRADED", 0.0)
    R = HOSTILE["graded and turned"] + 1e-8 * HOSTILE["random"]
    ended = solve(R)
    _check(R, ended)
    assert ended.bound.gap <= 1e-3


@pytest.mark.slow
def test_a_quarter_of_the_running_totals_saves_all_rounds_but_one() -> None:
    R = np.tril(np.ones((2048, 2048)))
    ended = solve(R, tolerance=1e-2)
    _check(R, ended)
    assert (ended.bound.outcome, ended.bound.rounds) == (Outcome.OPTIMAL, 1)
