from __future__ import annotations

import json
import logging
import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtr

from batchdp import (
    STRATEGIES,
    BatchDPError,
    BudgetError,
    LatticeError,
    Ledger,
    MatrixWorkload,
    PairStrategy,
    PrivacyParameterError,
    Release,
    ReleaseError,
    answer,
    epsilon_for,
    load_release,
    low_rank,
    optimize,
    workloads,
)
from batchdp.linalg.matrix import dense
from batchdp.mechanism.conversion import epsilon_at
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.prepare import lattice_of
from batchdp.privacy import GAUSSIAN, LAPLACE, Privacy
from batchdp.private import CellCounts
from batchdp.release import answering
from cases import small_workloads
from mechanisms import released

W = workloads.ranges(8, 12)
COUNTS = np.arange(12) * 7


@cache
def best(privacy: Privacy = "pure") -> PairStrategy:
    """The strategy that most tests release by: frozen, so one search serves all of them."""
    return optimize(W, privacy=privacy)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=1000)


@pytest.fixture
def rho_ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "rho.db", rho=1e6)


def without_noise(strategy: PairStrategy, counts: Any, ledger: Ledger, **budget: float) -> Release:
    (amount,) = budget.values()
    read = lambda: CellCounts(np.asarray(counts, dtype=np.int64))  # noqa: E731
    found: Release = released(strategy, read, ledger, amount, label="counts", max_rows=10**6)
    return found


@pytest.mark.parametrize("method", STRATEGIES)
@pytest.mark.parametrize("name", ["example 1", "ranges", "related", "weighted", "sparse", "zero row", "one by one"])
def test_answers_without_noise_are_right_to_the_bias_bound(
    method: str, name: str, ledger: Ledger, rho_ledger: Ledger
) -> None:
    workload = small_workloads()[name]
    strategy = STRATEGIES[method](workload)
    counts = np.random.default_rng(0).integers(0, 1000, size=workload.cells)
    budget, books = ({"epsilon": 0.1}, ledger) if strategy.privacy == "pure" else ({"rho": 0.01}, rho_ledger)
    done = without_noise(strategy, counts, books, **budget)
    truth = dense(workload.matrix) @ counts
    bias = done.certificate.bias_share * done.standard_errors
    assert np.all(np.abs(done.values - truth) <= bias + 1e-12 * np.abs(truth))


def test_a_large_budget_gives_the_truth(ledger: Ledger) -> None:
    done = answer(best(), COUNTS, epsilon=900.0, ledger=ledger, max_rows=10**6)
    errors = done.standard_errors
    assert np.all(np.abs(done.values - dense(W.matrix) @ COUNTS) <= (12 + done.certificate.bias_share) * errors)
    assert errors.max() < 0.02


@pytest.mark.parametrize("rows", [1, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (30, 1000))])
@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_the_noise_of_releases_has_the_promised_variance(rows: int, privacy: Any, tmp_path: Path) -> None:
    workload = MatrixWorkload(sparse.eye_array(rows, format="csr"))
    strategy = PairStrategy(workload, sparse.eye_array(rows, format="csr"), workload.matrix, privacy=privacy)
    books = Ledger.create(tmp_path / "b.db", rho=1e6)
    budget: dict[str, Any] = {"epsilon": 0.5} if privacy == "pure" else {"rho": 0.5}
    repeats = 100 if rows < 1000 else 10
    noise = np.concatenate(
        [answer(strategy, np.zeros(rows, int), **budget, ledger=books).values for _ in range(repeats)]
    )
    variance = strategy.noise_variance(**budget)
    kurtosis = 6 if privacy == "pure" else 3
    spread = np.sqrt((kurtosis - 1) / len(noise))
    assert abs(np.mean(noise**2) / variance - 1) <= 5 * spread


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    B = np.vstack([np.eye(1, 20), np.ones((1, 20)), rng.standard_normal((3, 20)), np.full((1, 20), 1e-9)])
    draws = 200_000
    for kind in (LAPLACE, GAUSSIAN):
        law = NoiseLaw(B, 3.0, kind)
        eta = rng.laplace(scale=3.0, size=(20, draws)) if kind == LAPLACE else rng.normal(0, 3.0, (20, draws))
        noise = np.abs(B @ eta)
        for confidence in (0.5, 0.9, 0.95, 0.99):
            # The width is right to 1 %: 1 % narrower holds too rarely, 1 % wider too often (up to simulation error).
            half = law.half_widths(confidence)[:, None]
            slack = 5 * np.sqrt(confidence * (1 - confidence) / draws)
            assert np.all((noise <= 0.99 * half).mean(axis=1) <= confidence + slack)
            assert np.all((noise <= 1.01 * half).mean(axis=1) >= confidence - slack)
        together = law.simultaneous_half_widths(0.95)[:, None]
        assert (noise <= together).all(axis=0).mean() == pytest.approx(0.95, abs=0.006)


def test_one_laplace_term_has_the_textbook_quantile() -> None:
    law = NoiseLaw(np.array([[2.0]]), 1.5, LAPLACE)
    for confidence in (0.5, 0.95, 0.999, 0.99999):
        assert law.half_widths(confidence)[0] == pytest.approx(-3.0 * np.log(1 - confidence), rel=1e-3)


@pytest.mark.parametrize("confidence", [0, 1, -1, np.nan, True, "0.9", 0.9999999])
def test_an_impossible_confidence_is_refused(confidence: Any, ledger: Ledger) -> None:
    with pytest.raises(PrivacyParameterError, match="confidence"):
        answer(best(), COUNTS, epsilon=1.0, ledger=ledger, confidence=confidence)
    assert ledger.spent == 0


def test_covariance_and_standard_errors_agree(ledger: Ledger) -> None:
    done = answer(best(), COUNTS, epsilon=1.0, ledger=ledger)
    assert np.sqrt(np.diag(done.covariance)) == pytest.approx(done.standard_errors)
    assert [one.standard_error for one in done.answers] == pytest.approx(done.standard_errors)
    first = done.answers[0]
    assert (first.low + first.high) / 2 == pytest.approx(first.value)
    assert all(wide.high >= one.high for one, wide in zip(done.answers, done.simultaneous(), strict=True))
    assert all(wide.high > one.high for one, wide in zip(done.answers, done.with_confidence(0.99).answers, strict=True))


def test_the_same_id_returns_the_same_answers_and_costs_nothing_more(ledger: Ledger) -> None:
    strategy = best()
    first = answer(strategy, COUNTS, epsilon=1.0, ledger=ledger, release_id="monday")
    again = answer(strategy, COUNTS + 5, epsilon=1.0, ledger=ledger, release_id="monday")
    assert np.array_equal(first.values, again.values)
    assert first.certificate == again.certificate
    assert ledger.spent == pytest.approx(1.0)
    other = answer(strategy, COUNTS, epsilon=1.0, ledger=ledger)
    assert not np.array_equal(first.values, other.values)
    with pytest.raises(BudgetError, match="monday"):
        answer(strategy, COUNTS, epsilon=2.0, ledger=ledger, release_id="monday")


def test_the_ledger_is_charged_before_the_counts_are_measured(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        assert ledger.spent == pytest.approx(1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(answering, "add", crash)
    with pytest.raises(KeyboardInterrupt):
        answer(best(), COUNTS, epsilon=1.0, ledger=ledger, release_id="crashed")
    assert ledger.spent == pytest.approx(1.0)
    monkeypatch.undo()
    with pytest.raises(BudgetError, match="crashed"):
        answer(best(), COUNTS, epsilon=1.0, ledger=ledger, release_id="crashed")


def test_a_budget_that_is_not_there_is_refused_and_nothing_is_drawn(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "small.db", epsilon=1)
    answer(best(), COUNTS, epsilon=0.75, ledger=books)
    with pytest.raises(BudgetError, match=r"0\.75.*left"):
        answer(best(), COUNTS, epsilon=0.75, ledger=books)
    assert len(books.history()) == 1
    assert books.remaining == 0.25


def test_epsilon_and_delta_are_reported(ledger: Ledger, rho_ledger: Ledger) -> None:
    pure = answer(best(), COUNTS, epsilon=1.0, ledger=ledger)
    gauss = answer(best("zcdp"), COUNTS, rho=0.5, ledger=rho_ledger)
    assert pure.epsilon_at(1e-6) == 1.0 == ledger.epsilon_at(1e-6)
    mu = 1.0  # of ρ = ½; its own profile, and not what ρ-zCDP alone implies, 5.22
    found = gauss.epsilon_at(1e-6)
    assert ndtr(mu / 2 - found / mu) - math.exp(found) * ndtr(-mu / 2 - found / mu) == pytest.approx(1e-6, rel=1e-6)
    assert found < 0.95 * epsilon_at(0.5, 1e-6)
    assert rho_ledger.epsilon_at(1e-6) == pytest.approx(gauss.epsilon_at(1e-6))
    for one in (pure, gauss, ledger, rho_ledger):
        with pytest.raises(PrivacyParameterError, match="delta"):
            one.epsilon_at(0)


def test_ten_times_a_tenth_fits_into_one(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "tenths.db", epsilon=1)
    strategy = STRATEGIES["noise-on-data"](np.eye(2))
    losses = [answer(strategy, [1, 2], epsilon=0.1, ledger=books).certificate.loss for _ in range(10)]
    assert books.remaining == 0
    assert all(Fraction(loss) <= Fraction(1, 10) for loss in losses)


def test_pure_and_gaussian_releases_share_a_rho_ledger(rho_ledger: Ledger) -> None:
    answer(best(), COUNTS, epsilon=1.0, ledger=rho_ledger)
    answer(best("zcdp"), COUNTS, rho=0.25, ledger=rho_ledger)
    assert rho_ledger.spent == pytest.approx(math.exp(-1) + 0.25)


BAD_CALLS: dict[str, dict[str, Any]] = {
    "no budget": {},
    "both budgets": {"epsilon": 1.0, "rho": 1.0},
    "wrong budget": {"rho": 1.0},
    "zero": {"epsilon": 0.0},
    "NaN": {"epsilon": np.nan},
    "infinite": {"epsilon": np.inf},
    "tiny": {"epsilon": 1e-300},
    "text": {"epsilon": "1"},
    "counts in a text": {"epsilon": 1.0, "counts": "1" * 12},
    "too few texts": {"epsilon": 1.0, "counts": ["a"] * 11},
    "too few counts": {"epsilon": 1.0, "counts": COUNTS[:5]},
    "square counts": {"epsilon": 1.0, "counts": np.zeros((12, 12), int)},
    "no cap": {"epsilon": 1.0, "max_rows": 0},
    "huge cap": {"epsilon": 1.0, "max_rows": 2**60},
    "relation": {"epsilon": 1.0, "neighbours": "swap"},
    "rows": {"epsilon": 1.0, "rows_per_unit": 0},
    "half a row": {"epsilon": 1.0, "rows_per_unit": 0.5},
    "no noise left": {"epsilon": 1e9},
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_refused_before_anything_is_spent(name: str, ledger: Ledger) -> None:
    arguments = {"counts": COUNTS, **BAD_CALLS[name]}
    with pytest.raises(BatchDPError):
        answer(best(), arguments.pop("counts"), ledger=ledger, **arguments)
    assert ledger.spent == 0
    assert ledger.history() == ()


def test_a_relaxed_strategy_is_not_released(ledger: Ledger) -> None:
    with pytest.raises(ReleaseError, match="relax"):
        answer(low_rank(W, relaxation=0.5), COUNTS, epsilon=1.0, ledger=ledger)
    assert ledger.spent == 0


def test_a_bias_beyond_one_percent_of_the_noise_is_refused(ledger: Ledger) -> None:
    strategy = low_rank(workloads.related(8, 30, 4))
    with pytest.raises(LatticeError, match="more than 1 %"):
        answer(strategy, np.zeros(30, int), epsilon=1.0, ledger=ledger, max_rows=10**12)
    done = answer(strategy, np.zeros(30, int), epsilon=1.0, ledger=ledger)
    assert done.certificate.largest_total < 10**12
    assert done.certificate.bias_share <= 0.01


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, bool])
def test_counts_of_every_whole_type_and_any_value_are_taken(dtype: Any, ledger: Ledger) -> None:
    """What the counts are is never judged: an error would tell."""
    strategy = STRATEGIES["noise-on-data"](np.eye(3))
    info = np.iinfo(dtype) if dtype is not bool else None
    extremes = [True, False, True] if info is None else [info.min, info.max, 0]
    done = answer(strategy, np.array(extremes, dtype=dtype), epsilon=1.0, ledger=ledger)
    assert np.all(np.isfinite(done.values))


def test_replacing_and_more_rows_need_more_noise(tmp_path: Path) -> None:
    strategy = STRATEGIES["noise-on-data"](np.eye(2))
    relations: list[tuple[Any, int]] = [("add-remove", 1), ("add-remove", 3), ("replace", 1), ("replace", 3)]
    books = {
        relation: Ledger.create(tmp_path / relation, epsilon=2, neighbours=relation) for relation, _ in relations[1:3]
    }
    scales = [
        answer(
            strategy, [1, 2], epsilon=1.0, ledger=books[relation], neighbours=relation, rows_per_unit=rows
        ).standard_errors[0]
        for relation, rows in relations
    ]
    assert scales == pytest.approx(np.sqrt(2) * np.array([1, 3, 2, 6]))


def test_releases_are_saved_and_loaded_whole(ledger: Ledger, tmp_path: Path) -> None:
    for strategy in (best(), STRATEGIES["noise-on-data"](sparse.csr_array(dense(W.matrix)))):
        done = answer(strategy, COUNTS, epsilon=1.0, ledger=ledger)
        done.save(tmp_path / "release.npz")
        loaded = load_release(tmp_path / "release.npz")
        assert loaded.answers == done.answers
        assert loaded.certificate == done.certificate
        assert np.array_equal(loaded.covariance, done.covariance)
        assert np.array_equal(loaded.consistent().values, done.consistent().values)
        assert repr(loaded) == repr(done)
    assert [path.name for path in tmp_path.glob("*.part")] == []


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a release"])
def test_a_file_that_is_no_release_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    path.write_bytes(content)
    with pytest.raises(ReleaseError, match=r"r\.npz"):
        load_release(path)
    with pytest.raises(ReleaseError, match="cannot read"):
        load_release(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", header=np.array(json.dumps({"format": "other"})))
    with pytest.raises(ReleaseError, match="format"):
        load_release(tmp_path / "other.npz")


def test_saving_where_it_cannot_be_is_an_error_and_leaves_nothing(ledger: Ledger, tmp_path: Path) -> None:
    done = answer(best(), COUNTS, epsilon=1.0, ledger=ledger)
    with pytest.raises(ReleaseError, match="cannot write"):
        done.save(tmp_path / "missing" / "r.npz")


def test_post_processing_stands_beside_the_answers(ledger: Ledger) -> None:
    strategy = optimize(np.vstack([np.eye(4), np.ones((1, 4))]))
    done = answer(strategy, [0, 0, 0, 500], epsilon=0.5, ledger=ledger)
    before = done.values.copy()
    assert np.all(done.non_negative() >= 0)
    assert np.array_equal(done.rounded(), np.rint(before))
    consistent = done.consistent().values
    assert np.all(consistent >= 0)
    assert consistent[4] == pytest.approx(consistent[:4].sum())
    assert np.array_equal(done.values, before)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_epsilon_for_is_the_least_that_is_accurate_enough(privacy: Any, ledger: Ledger, rho_ledger: Ledger) -> None:
    strategy = best(privacy)
    name, books = ("epsilon", ledger) if privacy == "pure" else ("rho", rho_ledger)
    goals: list[dict[str, Any]] = [{"standard_error": 10.0}, {"half_width": 25.0, "confidence": 0.9}]
    for goal in goals:
        budget: dict[str, Any] = {name: epsilon_for(strategy, **goal)}
        done = answer(strategy, COUNTS, **budget, ledger=books)
        reached = done.standard_errors if "standard_error" in goal else done.with_confidence(0.9).half_widths
        wanted = next(iter(goal.values()))
        assert wanted * 0.9999 <= reached.max() <= wanted
    one = epsilon_for(strategy, standard_error=10.0, query="q1")
    assert one <= epsilon_for(strategy, standard_error=10.0)
    twice = epsilon_for(strategy, standard_error=10.0, rows_per_unit=2)
    assert twice == pytest.approx(epsilon_for(strategy, standard_error=10.0) * (2 if privacy == "pure" else 4))


@pytest.mark.parametrize("goal", [0.5, 10.0, 1e4])
@pytest.mark.parametrize("method", ["noise-on-results", "low-rank"])
def test_epsilon_for_is_enough_on_the_lattice_that_is_measured(method: str, goal: float, tmp_path: Path) -> None:
    strategy = STRATEGIES[method](small_workloads()["related"])  # whose errors differ by half between lattices
    counts = np.zeros(strategy.workload.cells, int)
    books = Ledger.create(tmp_path / "large.db", epsilon=1e9)
    done = answer(strategy, counts, epsilon=epsilon_for(strategy, standard_error=goal), ledger=books)
    assert done.standard_errors.max() <= goal


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"standard_error": 1.0, "half_width": 1.0},
        {"standard_error": 0},
        {"half_width": np.nan},
        {"standard_error": 1.0, "query": "unknown"},
        {"half_width": 1.0, "confidence": 2},
    ],
)
def test_impossible_accuracies_are_refused(arguments: Any) -> None:
    with pytest.raises(PrivacyParameterError):
        epsilon_for(STRATEGIES["noise-on-data"](np.eye(2)), **arguments)


def test_auto_chooses_the_smaller_error_and_says_why() -> None:
    few = optimize(np.eye(2), privacy="auto", epsilon=1.0, delta=1e-6)
    assert few.privacy == "pure"
    many = optimize(workloads.related(20, 200, 10), privacy="auto", epsilon=1.0, delta=0.1, seconds=0.5)
    assert many.privacy == "zcdp"
    assert "Laplace noise has" in few.reason
    assert "Gaussian noise has" in many.reason
    with pytest.raises(BatchDPError, match="delta"):
        optimize(np.eye(2), privacy="auto")


def test_ten_thousand_measurements_need_no_dense_matrix(ledger: Ledger) -> None:
    strategy = STRATEGIES["noise-on-data"](sparse.eye_array(10_000, format="csr"))
    done = answer(strategy, np.zeros(10_000, int), epsilon=1.0, ledger=ledger)
    assert len(done.values) == 10_000


def test_a_planted_count_appears_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The canary is the count of every cell, so it would also be found in any exact measurement of one."""
    canary = 987_654_321
    caplog.set_level(logging.DEBUG)
    books = Ledger.create(tmp_path / "canary.db", epsilon=10)
    strategy = STRATEGIES["noise-on-data"](MatrixWorkload(np.eye(3), names=("a", "b", "c")))
    counts = np.full(3, canary)
    # So much noise that an answer hits the canary by chance once in a hundred thousand runs.
    done = answer(strategy, counts, epsilon=1e-5, ledger=books)
    done.save(tmp_path / "release.npz")
    shown = [repr(done), str(done.certificate), repr(books), str(books.history()), repr(strategy), repr(done.answers)]
    calls: list[dict[str, Any]] = [{"epsilon": 100.0}, {"epsilon": -1.0}, {"rho": 1.0}, {"epsilon": 1e9}]
    for bad in calls:
        with pytest.raises(BatchDPError) as refused:
            answer(strategy, counts, ledger=books, **bad)
        shown.append(repr(refused.value))
    with np.load(tmp_path / "release.npz") as saved:
        shown += [str(saved[name].tolist()) for name in saved]
    captured = capfd.readouterr()
    shown += [caplog.text, captured.out, captured.err]
    for path in tmp_path.iterdir():
        raw = path.read_bytes()
        assert str(canary).encode() not in raw
        assert np.int64(canary).tobytes() not in raw
        assert np.float64(canary).tobytes() not in raw
    bits = lattice_of(strategy, largest_total=done.certificate.largest_total).bits
    for text in shown:
        assert str(canary) not in text
        assert str(canary << bits) not in text
