"""`release.denoised()`: estimates of every kind of release, smaller errors, honest risks, and what never happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from scipy import sparse

import batchdp
from batchdp.linalg.matrix import dense
from batchdp.release.consistency import cells
from batchdp.release.consistency.faces import split_table
from batchdp.release.denoise import denoised, shrink, smooth, tables, target
from batchdp.release.denoise.mixing import best_mix
from batchdp.release.denoise.tables import denoise_tables
from batchdp.text import Outcome
from commands import make_study, run, succeeds
from kinds import MAKERS, kind
from test_components import structure
from test_consistent_release import ASKED, PETS

Floats = NDArray[np.float64]


def release_of(strategy: Any, data: Any, folder: Path, **budget: Any) -> batchdp.Release:
    found = batchdp.answer(strategy, data, ledger=batchdp.Ledger.create(folder / "ledger.db", **budget), **budget)
    assert isinstance(found, batchdp.Release)
    return found


def invented(sizes: tuple[int, ...], count: int, seed: int = 0) -> NDArray[np.int64]:
    """Codes of records that hang together, with skewed margins."""
    rng = np.random.default_rng(seed)
    common = rng.uniform(size=count)
    mixed = np.where(
        rng.uniform(size=(count, len(sizes))) < 0.5, common[:, None], rng.uniform(size=(count, len(sizes)))
    )
    found: NDArray[np.int64] = np.minimum((mixed**2 * sizes).astype(np.int64), np.array(sizes) - 1)
    return found


def exact(codes: NDArray[np.int64], sizes: tuple[int, ...], columns: tuple[int, ...]) -> Floats:
    found = np.zeros([sizes[i] for i in columns])
    np.add.at(found, tuple(codes[:, i] for i in columns), 1)
    return found


def noisy_parts(truth: Mapping[Any, Floats], t: dict[Any, float], rng: Any) -> dict[tuple[int, ...], Floats]:
    """Components of true tables with noise of these variances."""
    found: dict[tuple[int, ...], Floats] = {}
    for A, x in truth.items():
        for C, part in split_table(x, A).items():
            if C not in found:
                found[C] = part + split_table(rng.standard_normal(part.shape), C)[C] * t[C] ** 0.5
    return found


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("whole", [False, True])
def test_every_kind_of_release_has_estimates(name: str, whole: bool, tmp_path: Path) -> None:
    one = kind(name)
    release = release_of(one.strategy, one.data, tmp_path, **one.budget)
    found = release.denoised(whole)
    again = release.denoised(whole)
    assert found.values.shape == release.values.shape
    np.testing.assert_array_equal(found.values, again.values)
    assert np.all(np.isfinite(found.values))
    assert 0 <= found.risk <= found.raw_risk
    assert found.raw_risk == pytest.approx(np.square(release.standard_errors).mean(), rel=1e-6)
    assert len(found.risks) == len(found.raw_risks) == len(release.tables)
    assert found.method
    assert all(note.endswith(".") for note in found.notes)
    if whole and name not in ("amounts", "blocks"):
        np.testing.assert_allclose(found.values, np.rint(found.values), atol=1e-9)
    if name not in ("amounts", "K-norm", "blocks"):
        assert found.values.min() >= 0
    if name == "blocks":  # given by hand, so that nobody knows which records there can be
        np.testing.assert_array_equal(found.values, release.values)
        assert "raw" in found.notes[-1]


def test_the_exact_data_is_never_looked_at(tmp_path: Path) -> None:
    """A release that was loaded from its file is denoised in the same way."""
    one = kind("tables, Gaussian")
    release = release_of(one.strategy, one.data, tmp_path, **one.budget)
    release.save(tmp_path / "a.release")
    loaded: Any = batchdp.load_release(tmp_path / "a.release")
    np.testing.assert_allclose(loaded.denoised().values, release.denoised().values, rtol=1e-9, atol=1e-9)


def test_tables_agree_and_are_closer(tmp_path: Path) -> None:
    sizes = (12, 9, 7, 5, 2)
    codes = invented(sizes, 3000)
    strategy = batchdp.optimize(structure(batchdp.workloads.marginals(sizes, [2, 3])), privacy="zcdp")
    release = release_of(strategy, codes, tmp_path, rho=0.05)
    found = release.denoised()
    shared: dict[tuple[str, ...], Floats] = {}
    ours = raw = 0.0
    for t, table in enumerate(found.tables):
        values = found.array(t)
        truth = exact(codes, sizes, tuple(release.column_names.index(one) for one in table.columns))
        ours += float(np.square(values - truth).sum())
        raw += float(np.square(release.array(t) - truth).sum())
        for kept in combinations(range(values.ndim), 2):
            margin = values.sum(axis=tuple(axis for axis in range(values.ndim) if axis not in kept))
            known = shared.setdefault(tuple(table.columns[i] for i in kept), margin)
            np.testing.assert_allclose(margin, known, atol=1e-6 * max(1.0, float(known.max())))
    assert ours < 0.5 * raw
    assert found.risk < 0.6 * found.raw_risk
    frame = found.table(*release.tables[0].columns)
    assert list(frame.columns[-2:]) == ["value", "raw"]


def test_the_estimated_risk_is_that_of_the_error() -> None:
    sizes = (20, 14, 9, 6, 4)
    codes = invented(sizes, 8000)
    asked = list(combinations(range(len(sizes)), 2))
    truth = {A: exact(codes, sizes, A) for A in asked}
    for scale in (100.0, 3000.0):
        t = dict.fromkeys([(), *((i,) for i in range(len(sizes))), *asked], scale)
        said = true = raw = 0.0
        for seed in range(3):
            made = denoise_tables(noisy_parts(truth, t, np.random.default_rng(seed)), t, asked, sizes, seed)
            for A in asked:
                ours, before = made.risks(A)
                said, raw = said + ours, raw + before
                true += float(np.square(made.fitted.table(A) - truth[A]).sum())
        assert true < 0.8 * raw
        assert 0.7 < said / true < 1.4


def test_small_tables_do_not_lose() -> None:
    """Two columns of two values that hang together: the noise is all there is to know them by."""
    truth = {(0, 1): np.array([[900.0, 10.0], [20.0, 700.0]])}
    t = {(): 10.0, (0,): 10.0, (1,): 10.0, (0, 1): 400.0}
    ratio = []
    for seed in range(200):
        noisy = noisy_parts(truth, t, np.random.default_rng(seed))
        found = denoise_tables(noisy, t, [(0, 1)], (2, 2), 0).fitted.table((0, 1))
        own = split_table(found - truth[0, 1], (0, 1))[0, 1]
        raw = noisy[0, 1] - split_table(truth[0, 1], (0, 1))[0, 1]
        ratio.append([np.square(own).sum(), np.square(raw).sum()])
    ours, raw = np.mean(ratio, axis=0)
    assert ours <= 1.03 * raw


def test_an_error_of_the_total_is_in_the_estimated_risk() -> None:
    """All records are in one cell, and so is every error of the total, which no table sees by its own noise."""
    truth = {(0, 1): np.zeros((12, 8))}
    truth[0, 1][5, 3] = 10_000
    t = {(): 96 * 200.0, (0,): 8 * 200.0, (1,): 12 * 200.0, (0, 1): 200.0}  # cells that are counted one by one
    said = true = 0.0
    for seed in range(60):
        made = denoise_tables(noisy_parts(truth, t, np.random.default_rng(seed)), t, [(0, 1)], (12, 8), seed)
        said += made.risks((0, 1))[0]
        true += float(np.square(made.fitted.table((0, 1)) - truth[0, 1]).sum())
    assert 0.6 < said / true < 1.7


@pytest.mark.parametrize("counts", [np.zeros(16), np.eye(1, 16, 5)[0] * 10_000, np.full(16, 2.0), np.arange(16.0)])
@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_spikes_and_nothing_at_all(counts: Floats, privacy: Any, tmp_path: Path) -> None:
    strategy = batchdp.optimize(batchdp.workloads.prefix(16), privacy=privacy, seconds=0.2)
    budget = {"epsilon": 0.1} if privacy == "pure" else {"rho": 0.005}
    found = release_of(strategy, counts.astype(np.int64), tmp_path, **budget).denoised()
    assert np.all(found.values >= 0)
    assert np.all(np.diff(found.values) >= -1e-6)


def test_one_cell_and_one_value(tmp_path: Path) -> None:
    assert release_of(batchdp.optimize(np.ones((1, 1))), [7], tmp_path, epsilon=1.0).denoised().values.shape == (1,)
    sizes = (1, 3, 1)
    batch = structure(batchdp.workloads.marginals(sizes, [0, 1, 2]))
    folder = tmp_path / "tables"
    folder.mkdir()
    found = release_of(batchdp.optimize(batch, privacy="zcdp"), np.zeros((5, 3), np.int64), folder, rho=0.5).denoised()
    assert np.all(found.values >= 0)


def test_few_records_are_said_to_be_few(tmp_path: Path) -> None:
    sizes = (10, 8, 6)
    strategy = batchdp.optimize(structure(batchdp.workloads.marginals(sizes, [2])), privacy="zcdp")
    found = release_of(strategy, invented(sizes, 30), tmp_path, rho=0.0001).denoised()
    assert any("next to nothing" in note for note in found.notes)
    assert np.all(found.values >= 0)


def test_ctrl_c_gives_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kind("tables, Gaussian")
    release = release_of(one.strategy, one.data, tmp_path, **one.budget)

    def stop_once(right: Any) -> Any:
        presses = iter([KeyboardInterrupt])

        def work(*given: Any, **named: Any) -> Any:
            for press in presses:
                raise press
            return right(*given, **named)

        return work

    for where, name in ((tables, "denoise_margin"), (tables, "fit_target"), (tables, "shrink"), (tables, "scale_to")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, stop_once(getattr(where, name)))
            found = release.denoised()
        assert found.status is Outcome.CANCELLED
        assert denoised.STOPPED in found.notes
        assert np.all(found.values >= 0)
    folder = tmp_path / "pair"
    folder.mkdir()
    other = kind("pair, Laplace")
    ordinary = release_of(other.strategy, other.data, folder, **other.budget)
    for where, name in ((smooth, "smooth_cells"), (smooth, "_projected"), (cells, "_step")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, stop_once(getattr(where, name)))
            found = ordinary.denoised()
        assert found.status is Outcome.CANCELLED
        assert found.values.min() >= 0
        assert not any("too many cells" in note for note in found.notes)


def test_ctrl_c_while_the_error_is_looked_at_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kind("tables, Gaussian")
    release = release_of(one.strategy, one.data, tmp_path, **one.budget)
    usual = release.denoised()

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "split_table", stop)  # of pairs alone, nothing else needs it
    found = release.denoised()
    assert found.status is Outcome.CONVERGED
    np.testing.assert_array_equal(found.values, usual.values)


def record(told: list[tuple[float, str]], share: float, what: str) -> None:
    told.append((share, what))


def test_progress_is_told(tmp_path: Path) -> None:
    for name in ("tables, Laplace", "pair, Gaussian"):
        one = kind(name)
        told: list[tuple[float, str]] = []
        folder = tmp_path / name.replace(", ", "-")
        folder.mkdir()
        release_of(one.strategy, one.data, folder, **one.budget).denoised(progress=partial(record, told))
        assert told
        assert all(0 <= share <= 1 for share, _ in told)


def test_ranges_of_a_column_and_amounts_follow(tmp_path: Path) -> None:
    """Tables that are not whole are answers of one table of cells."""
    batch = batchdp.workloads.products(
        (6, 4), [[np.tri(6), None], [np.arange(6.0)[None], np.eye(4)], [None, np.eye(4)]]
    )
    strategy = batchdp.optimize(structure(batch), privacy="zcdp")
    codes = invented((6, 4), 500)
    found = release_of(strategy, codes, tmp_path, rho=0.5).denoised()
    assert np.all(found.values >= -1e-9)
    assert found.array(0)[-1] == pytest.approx(found.array(2).sum(), rel=1e-6)


def test_the_best_mix_is_the_least_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        ways = rng.standard_normal((2, 5))
        M, g = ways @ ways.T, rng.standard_normal(2) * 3
        a = best_mix(M, g)
        grid = [np.array([i, j]) / 50 for i in range(51) for j in range(51 - i)]
        assert a @ M @ a - 2 * g @ a <= min(b @ M @ b - 2 * g @ b for b in grid) + 1e-9
        assert a.min() >= 0
        assert a.sum() <= 1 + 1e-9


def test_smooth_margins_are_closer_and_spikes_stay() -> None:
    rng = np.random.default_rng(0)
    even = 5000 * np.exp(-np.square(np.arange(60) - 30) / 200)
    spike = np.zeros(60)
    spike[7] = even.sum()
    for truth, most in ((even, 0.75), (spike, 0.3)):
        ratio = []
        for _ in range(10):
            noise = rng.standard_normal(60) * 100
            found = smooth.denoise_margin(truth + noise - noise.mean(), 100.0**2, float(truth.sum()))
            ratio.append(float(np.square(found.values - truth).sum()) / found.raw_risk)
            assert found.values.sum() == pytest.approx(truth.sum())
        assert np.mean(ratio) < most


def test_a_very_long_margin_is_quick() -> None:
    rng = np.random.default_rng(0)
    truth = 20 * (1 + np.sin(np.arange(100_000) / 3000))
    noise = rng.standard_normal(len(truth)) * 30
    found = smooth.denoise_margin(truth + noise - noise.mean(), 900.0, float(truth.sum()))
    assert float(np.square(found.values - truth).sum()) < 0.2 * found.raw_risk


def test_soft_cells_solve_their_equation() -> None:
    rng = np.random.default_rng(0)
    y, P, c = rng.standard_normal(100) * 50, rng.gamma(1, size=100) * 10, 1 + rng.gamma(1, size=100) * 5
    x = shrink.soft(y, P, c)
    np.testing.assert_allclose(x - y + c * np.log(x / P), 0, atol=1e-6)


def test_a_batch_in_blocks_is_denoised_by_kinds_of_records(tmp_path: Path) -> None:
    """The closest non-negative answers are those that the solver found, not where it began."""
    planned = batchdp.plan(ASKED, PETS, privacy="zcdp", max_cells=60, seconds=0.5)
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        {
            "species": rng.choice(["dog", "cat", "rabbit", "newt"], 2000, p=[0.5, 0.3, 0.15, 0.05]),
            "ill": rng.choice(["yes", "no"], 2000, p=[0.1, 0.9]),
            "clinic": rng.choice(list("abcdefgz"), 2000),
            "age": rng.integers(0, 20, 2000),
        }
    )
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", rho=2e6)
    truth = batchdp.answer(planned, rows, rho=1e6, ledger=ledger).values
    for rho in (0.5, 0.005):
        release = batchdp.answer(planned, rows, rho=rho, ledger=ledger)
        found = release.denoised()
        errors = [np.square((v - truth) / release.standard_errors).mean() for v in (found.values, release.values)]
        assert errors[0] <= 1.5 * errors[1] + 0.5


def test_commands_write_denoised_answers_beside_the_raw_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path)
    spend = ("answer", "pure.plan", "--table", "visits.csv", "--epsilon", 0.2, "--ledger", "budget.db", "-y")
    shown = succeeds(*spend, "-o", "out.csv", "--denoised")
    assert "intervals belong to the raw answers" in " ".join(shown.split())
    frame = pd.read_csv("out.csv")
    assert list(frame) == ["name", "value", "standard_error", "low", "high", "derived", "denoised", "interval_of"]
    loaded = batchdp.load_release("out.release")
    np.testing.assert_allclose(frame["value"], loaded.values)
    np.testing.assert_allclose(frame["denoised"], loaded.denoised().values, rtol=1e-6, atol=1e-6)
    succeeds("export", "out.release", "-o", "tables", "--denoised", "--whole", "--format", "csv")
    assert all(file.read_text().splitlines()[0].endswith(",denoised") for file in Path("tables").glob("*.csv"))
    succeeds("report", "out.release", "-o", "page.html", "--denoised")
    assert "Denoised</button>" in Path("page.html").read_text(encoding="utf-8")
    both = run("report", "out.release", "-o", "again.html", "--denoised", "--consistent")
    assert both.code == 2
    assert "leave --consistent out" in " ".join(both.err.split())


def test_notebooks_and_notes_say_what_estimates_are(tmp_path: Path) -> None:
    for name in ("tables, Gaussian", "pair, Laplace"):
        one = kind(name)
        folder = tmp_path / name.replace(", ", "-")
        folder.mkdir()
        found = release_of(one.strategy, one.data, folder, **one.budget).denoised()
        page = found._repr_html_()
        assert "no interval of their own" in page
        assert "rare cells or few records" in page
        assert f"{found.array(0).reshape(-1).max():,.6g}" in page or len(found.tables) > 1
        said = [note for note in found.notes if "estimated, not proven" in note]
        assert len(said) == (found.risk < found.raw_risk)
        assert not said or f"{(found.risk / found.raw_risk) ** 0.5:.2g} times" in said[0]


@pytest.mark.parametrize("name", ["tables, Gaussian", "tables, Laplace"])
def test_no_records_at_all(name: str, tmp_path: Path) -> None:
    """Totals near 0: nothing negative, nothing infinite, and a sentence that says so."""
    one = kind(name)
    release = release_of(one.strategy, np.zeros((0, np.asarray(one.data).shape[1]), np.int64), tmp_path, **one.budget)
    found = release.denoised()
    assert np.all(np.isfinite(found.values))
    assert np.all(found.values >= 0)
    assert 0 <= found.risk <= found.raw_risk


def test_classes_that_were_stopped_are_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (20, 14, 9, 6)
    codes, asked = invented(sizes, 8000), list(combinations(range(4), 2))
    truth = {A: exact(codes, sizes, A) for A in asked}
    t = dict.fromkeys([(), *((i,) for i in range(4)), *asked], 100.0)
    noisy = noisy_parts(truth, t, np.random.default_rng(0))
    column_margins = {i: np.maximum(exact(codes, sizes, (i,)), 1.0) for i in range(4)}
    plain = target.independent(column_margins, 8000.0)
    calls, right = [0], target._Fit.__call__

    def stop(self: Any, x: Floats) -> Any:
        calls[0] += 1
        if calls[0] > 60:
            raise KeyboardInterrupt
        return right(self, x)

    monkeypatch.setattr(target._Fit, "__call__", stop)
    found = target.fit_target(column_margins, noisy, t, 8000.0, 0)
    assert found.stopped
    off = [sum(float(np.square(one.table(A) - truth[A]).sum()) for A in asked) for one in (found, plain)]
    assert off[0] < 0.8 * off[1]


def test_margins_and_classes_tell_how_far_they_are(tmp_path: Path) -> None:
    one = kind("tables, Gaussian")
    told: list[tuple[float, str]] = []
    release_of(one.strategy, one.data, tmp_path, **one.budget).denoised(progress=partial(record, told))
    assert {what for _, what in told} >= {"smoothing margins", "shrinking tables of 2 columns"}
    shares = [share for share, _ in told]
    assert shares == sorted(shares)


def totals_of(truth: Floats, scale: float, rng: np.random.Generator) -> smooth.Problem:
    """Running totals from cells and from pairs of neighbours, each measured with Laplace noise."""
    n = len(truth)
    L = sparse.csr_array(np.vstack([np.eye(n), np.kron(np.eye(n // 2), np.ones((1, 2)))]) / scale)
    W = sparse.csr_array(np.tri(n) / scale)
    y = L @ truth + rng.laplace(scale=0.5**0.5, size=L.shape[0])
    return smooth.Problem(L, W.toarray() @ np.linalg.pinv(L.toarray()), W, y, np.ones(n))


def moved(problem: smooth.Problem, answers: Any) -> float:
    """Σ of the covariances of some answers with the raw ones, by moving one measurement after the other a little."""
    found, step = 0.0, 1e-4
    for k in range(len(problem.measured)):
        there = np.eye(1, len(problem.measured), k)[0] * step
        two = [answers(replace(problem, measured=problem.measured + sign * there)) for sign in (1, -1)]
        found += float(dense(problem.reconstruct)[:, k] @ (two[0] - two[1])) / (2 * step)
    return found


@pytest.mark.parametrize("order", [1, 2])
def test_covariances_of_smooth_cells_are_exact(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    problem = totals_of(300 * np.exp(-np.square(np.arange(16) - 7) / 20), 20.0, rng)
    monkeypatch.setattr(smooth, "SETTLED", 0.0)
    monkeypatch.setattr(smooth, "STIFFNESS", {order: smooth.STIFFNESS[order][4:5]})
    said = float(smooth.smooth_cells(problem, order).covariance.sum())
    true = moved(problem, lambda own: problem.queries @ smooth.smooth_cells(own, order).cells)
    assert said == pytest.approx(true, rel=1e-3)


def test_covariances_of_cells_with_their_total_held_are_exact() -> None:
    rng = np.random.default_rng(1)
    problem = totals_of(rng.gamma(0.3, 60, size=16), 20.0, rng)
    found = cells.closest_cells(problem.measure, problem.measured).x
    assert 3 < np.count_nonzero(found) < 16
    true = moved(problem, lambda own: problem.queries @ cells.closest_cells(own.measure, own.measured).x)
    assert float(smooth._held(problem, found).sum()) == pytest.approx(true, rel=1e-3)


def test_slopes_and_jumps_have_smooth_cells_of_their_own() -> None:
    rng = np.random.default_rng(0)
    even, jumping = 400 * np.exp(-np.arange(48) / 8), np.repeat([400.0, 20.0, 200.0, 5.0], 12)
    for truth, own, other in ((even, 2, 1), (jumping, 1, 2)):
        errors = []
        for _ in range(10):
            problem = totals_of(truth, 30.0, rng)
            each = [smooth.smooth_cells(problem, order).cells for order in (own, other)]
            errors.append([float(np.square(x - truth).sum()) for x in each])
        ours, others = np.mean(errors, axis=0)
        assert ours < 0.9 * others


@pytest.mark.parametrize("records", [300, 10_000, 1_000_000])
def test_totals_of_rough_cells_do_not_lose(records: int) -> None:
    """Neighbours have nothing to do with one another, and some cells are large: smoothness is wrong."""
    rng = np.random.default_rng(records)
    ours = raw = 0.0
    for _ in range(40):
        truth = rng.multinomial(records, rng.dirichlet(np.full(24, 0.5))).astype(np.float64)
        problem = totals_of(truth, 30.0, rng)
        ours += float(np.square(smooth.denoise_cells(problem).answers - problem.queries @ truth).sum())
        raw += float(np.square(problem.reconstruct @ problem.measured - problem.queries @ truth).sum())
    assert ours < 1.02 * raw


def test_cells_of_very_different_widths() -> None:
    """Runs of cells from one to millions: slopes are differences over very different gaps."""
    rng = np.random.default_rng(0)
    widths = np.round(10 ** rng.uniform(0, 7, size=40))
    truth = 1000 * widths / widths.sum()
    problem = replace(totals_of(truth, 20.0, rng), widths=widths)
    found = smooth.denoise_cells(problem)
    assert np.all(np.isfinite(found.answers))
    off, raw = (
        np.square(x - problem.queries @ truth).sum() for x in (found.answers, problem.reconstruct @ problem.measured)
    )
    assert off < raw
