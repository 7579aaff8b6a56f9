"""One kind of release, whatever measured it: arrays, frames, tables, joint law, derived answers, files."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp import Ledger, Release, ReleaseError
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw, bounded_widths
from batchdp.privacy import GAUSSIAN, LAPLACE, NAMED
from batchdp.queries.expressions import Affine, Asked, Combination, Ratio
from batchdp.release import release as records
from batchdp.release.verify import check_charged
from test_table_release import codes, strategy
from test_weighted_release import KINDS

DOMAIN: dict[str, Any] = {
    "table": "stays",
    "privacy": {"max_rows": 10_000},
    "columns": {
        "ward": {"values": ["a", "b", "c"], "other": "drop"},
        "sex": {"values": ["f", "m"], "other": "drop"},
        "days": {"integers": [0, 7]},
    },
}
SQL = """
SELECT ward, COUNT(*) AS n, AVG(days) AS mean FROM stays GROUP BY ward;
SELECT MEDIAN(days) AS middle FROM stays;
SELECT sex, AVG(days) AS by_sex FROM stays GROUP BY sex;
"""


def stays(count: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "ward": rng.choice(["a", "b", "c"], count),
            "sex": rng.choice(["f", "m"], count),
            "days": rng.integers(0, 8, count),
        }
    )


def of_plan(folder: Path, privacy: Any, marginals: int | None) -> Release:
    made = _planned(privacy, marginals)
    budget: dict[str, Any] = {"epsilon" if privacy == "pure" else "rho": 30.0}
    ledger = Ledger.create(folder / "ledger.db", **budget)
    return batchdp.answer(made, stays(), **budget, ledger=ledger, release_id="one")


@cache
def _planned(privacy: Any, marginals: int | None) -> Any:
    return batchdp.plan(SQL, domain=DOMAIN, marginals=marginals, privacy=privacy, cache=False, seconds=0.5)


def of_strategy(folder: Path, made: Any) -> Release:
    budget: dict[str, Any] = {made.noise.unit: 5.0}
    ledger = Ledger.create(folder / "ledger.db", **budget)
    return batchdp.answer(made, codes(), **budget, ledger=ledger, release_id="one")


def of_cells(folder: Path, **options: Any) -> Release:
    names = ("all", *(f"n[c={i}]" for i in range(4)))
    W = batchdp.Workload(np.vstack([np.ones(4), np.eye(4)]), names)
    made = batchdp.optimize(W, **options)
    budget: dict[str, Any] = {made.noise.unit: 5.0}
    ledger = Ledger.create(folder / "ledger.db", **budget)
    return batchdp.answer(made, [5, 0, 7, 90], **budget, ledger=ledger, release_id="one")


RELEASES: dict[str, Callable[[Path], Release]] = {
    "cells, Laplace": of_cells,
    "cells, Gaussian": lambda folder: of_cells(folder, privacy="zcdp"),
    "cells, K-norm": lambda folder: of_cells(folder, shape="any"),
    "residuals": lambda folder: of_strategy(folder, strategy()),
    **{f"marginals, {kind}": lambda folder, kind=kind: of_strategy(folder, KINDS[kind]()) for kind in KINDS},  # type: ignore[misc]
    "SQL with AVG": lambda folder: of_plan(folder, "pure", None),
    "AVG beside marginals, Laplace": lambda folder: of_plan(folder, "pure", 2),
    "AVG beside marginals, Gaussian": lambda folder: of_plan(folder, "zcdp", 2),
}


@pytest.fixture(scope="module", params=RELEASES)
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Path]:
    folder = tmp_path_factory.mktemp("released")
    return RELEASES[request.param](folder), folder


def test_arrays_answers_tables_and_frames_say_the_same(released: tuple[Release, Path]) -> None:
    release, _ = released
    answers = list(release.answers)
    columns = {"values": "value", "standard_errors": "standard_error"}
    for name, one in columns.items():
        assert getattr(release, name) == pytest.approx([getattr(a, one) for a in answers], nan_ok=True)
    assert release.half_widths == pytest.approx([(a.high - a.low) / 2 for a in answers], nan_ok=True)
    assert list(release.names) == [a.name for a in answers]
    assert release.is_derived.tolist() == [a.derived for a in answers]
    frame = release.to_frame()
    assert list(frame) == ["table", "name", "value", "standard_error", "low", "high", "derived"]
    assert frame["low"].to_numpy() == pytest.approx([a.low for a in answers], nan_ok=True)
    assert frame["name"].tolist() == [a.name for a in answers]
    seen = np.zeros(len(answers), dtype=int)
    for t, table in enumerate(release.tables):
        seen[np.asarray(table.answers)] += 1
        own = release.table(*table.columns, name=table.name)
        assert list(own)[-4:] == ["value", "standard_error", "low", "high"]
        assert own["value"].to_numpy() == pytest.approx(release.values[np.asarray(table.answers)], nan_ok=True)
        assert release.array(t).shape == table.shape
        assert release.array(t).reshape(-1) == pytest.approx(own["value"].to_numpy(), nan_ok=True)
        assert own["high"].to_numpy() == pytest.approx(release.figures(t).high, nan_ok=True)
    assert np.all(seen == 1)
    assert release.answers[-1] == answers[-1] or release.is_derived[-1]
    assert release.rounded().shape == release.non_negative().shape == release.values.shape
    assert np.all(np.nan_to_num(release.non_negative()) >= 0)


def test_the_joint_law_has_the_errors_of_each(released: tuple[Release, Path]) -> None:
    release, _ = released
    reader = release.reader
    plain = ~release.is_derived
    C = release.covariance
    assert C.shape == (plain.sum(),) * 2
    assert np.sqrt(np.diag(C)) == pytest.approx(release.standard_errors[plain], rel=0.05 if reader.shape_text else 1e-9)
    together = release.simultaneous()
    assert together.how == records.SIMULATED
    for one, own in zip(together, release.answers, strict=True):
        if own.determined:
            assert one.low <= own.low + 1e-9
            assert own.high <= one.high + 1e-9
    rows = reader.rows(range(reader.answers))
    exact = np.concatenate([reader.widths_of(t, 0.9).reshape(-1) for t in range(len(reader.sizes))])
    assert reader.law(rows).half_widths(0.9) == pytest.approx(exact, rel=0.02)


def test_very_many_answers_have_a_union_bound(released: tuple[Release, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    release, _ = released
    simulated = release.simultaneous(0.9)
    monkeypatch.setattr(records, "MOST_SIMULATED", 0)
    bounded = release.simultaneous(0.9)
    assert bounded.how == records.BOUNDED
    for one, own in zip(bounded, simulated, strict=True):
        if own.determined:
            assert one.high - one.low >= 0.97 * (own.high - own.low)


def test_files_and_repeats_are_the_release(released: tuple[Release, Path]) -> None:
    release, folder = released
    release.save(folder / "x.release")
    loaded = batchdp.load_release(folder / "x.release")
    assert repr(list(loaded.answers)) == repr(list(release.answers))
    assert [(one.name, one.columns, one.shape) for one in loaded.tables] == [
        (one.name, one.columns, one.shape) for one in release.tables
    ]
    assert check_charged(loaded, Ledger.open(folder / "ledger.db"))
    assert loaded.with_confidence(0.5).half_widths[0] < release.half_widths[0]


def test_everything_that_is_made_of_a_release_is_made(released: tuple[Release, Path], tmp_path: Path) -> None:
    release, folder = released
    assert release.plot() is not None
    assert "private answers" in release._repr_html_()
    agreeing = release.consistent()
    assert agreeing.values.shape == release.values.shape
    assert np.all(agreeing.values[~release.is_derived] >= -1e-9)
    assert list(agreeing.each()) == pytest.approx(agreeing.values.tolist(), nan_ok=True)
    for t, table in enumerate(release.tables):
        assert agreeing.array(t).shape == table.shape
    assert len(batchdp.export(agreeing, tmp_path / "tables")) == len(release.tables)
    batchdp.report(release, tmp_path / "page.html", beside=agreeing)
    ledger = Ledger.open(folder / "ledger.db")
    batchdp.dossier(release, tmp_path / "dossier", ledger=ledger)
    assert batchdp.verify(tmp_path / "dossier", ledger=ledger).checked


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_averages_beside_marginals_are_near_the_truth_and_found_by_name(privacy: Any, tmp_path: Path) -> None:
    release, truth = of_plan(tmp_path, privacy, 2), stays()
    mean = release.table("mean")
    assert list(mean) == ["ward", "value", "standard_error", "low", "high"]
    exact = truth.groupby("ward")["days"].mean()
    assert mean["ward"].tolist() == exact.index.tolist()
    assert np.all(np.abs(mean["value"].to_numpy() - exact.to_numpy()) < 8 * mean["standard_error"].to_numpy())
    assert abs(release.table("middle")["value"][0] - truth["days"].median()) <= 1
    assert {one.name for one in release.tables} >= {"n", "mean", "middle", "by_sex", "ward × sex"}
    assert release.table("ward", "sex").shape[0] == 6
    with pytest.raises(ReleaseError, match="tables have columns 'ward'; give name="):
        release.table("ward")
    with pytest.raises(ReleaseError, match="'nobody' is not one of"):
        release.table("nobody")
    whole = release.consistent(whole=True)
    n, mean = whole.table("ward", name="n"), whole.table("mean")
    assert np.array_equal(n["value"], np.rint(n["value"]))
    assert np.all((mean["value"] >= 0) & (mean["value"] <= 7))


@pytest.mark.parametrize("kind", ["residuals", "marginals, inside", "marginals, groups", "marginals, results"])
def test_derived_answers_over_tables_have_the_intervals_of_explicit_matrices(kind: str, tmp_path: Path) -> None:
    """Ratios of answers of different tables: the same, whether B is a matrix or read from factors, packed or not."""
    reader = RELEASES[kind](tmp_path).reader
    last = reader.answers - 1
    asked: list[Asked[int]] = [
        Asked(f"r{i}", Combination(Affine(1.0), (Ratio(Affine(0.0, ((1.0, i),)), Affine(5.0, ((2.0, last - i),))),)))
        for i in range(3)
    ]
    values = np.linspace(900.0, 1000.0, reader.answers) * np.sqrt(reader.law(reader.rows([0])).standard_errors[0])
    B = reader.rows(range(reader.answers)).toarray()
    explicit = estimates(asked, values, NoiseLaw(B, 1.0, reader.noise), 0.95)
    found = estimates(asked, values, reader, 0.95)
    for name in ("values", "standard_errors", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(explicit, name), rel=1e-9)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("batchdp.mechanism.derived.MANY", 0)
        packed = estimates(asked, values, reader, 0.95)
    for name in ("values", "standard_errors", "low", "high"):
        assert getattr(packed, name) == pytest.approx(getattr(explicit, name), rel=1e-6)


@pytest.mark.parametrize("noise", sorted(NAMED))
@pytest.mark.parametrize("count", [1, 1000, 10**7])
def test_a_union_bound_is_never_too_narrow(noise: str, count: int) -> None:
    """Against the quantiles of single draws, of equal draws that add up, and of Gaussian noise, all of variance 1."""
    wide = float(bounded_widths(NAMED[noise], np.ones(1), 0.9, count)[0])
    missed = 0.1 / count
    single, gaussian = -np.log(missed) / np.sqrt(2), float(bounded_widths(GAUSSIAN, np.ones(1), 0.9, count)[0])
    assert wide >= (gaussian if NAMED[noise] == GAUSSIAN else max(single, gaussian))
    if count == 1 and NAMED[noise] == LAPLACE:
        many = NoiseLaw(np.full((1, 30), 1 / np.sqrt(60)), 1.0, LAPLACE).half_widths(0.9)[0]
        assert wide >= many
