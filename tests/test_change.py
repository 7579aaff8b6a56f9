"""What changed between two releases: right, with intervals that cover, and refused where it means nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from batchdp import Ledger, Release, ReleaseError, answer, change, load_domain, plan
from commands import make_study, succeeds
from kinds import MAKERS, kind

DOMAIN: dict[str, Any] = {
    "table": "visits",
    "columns": {"clinic": {"values": ["n", "s"], "other": "drop"}, "age": {"integers": [0, 90], "other": "drop"}},
}
SQL = (
    "SELECT clinic, COUNT(*) AS n, AVG(age) AS mean FROM visits GROUP BY clinic; SELECT MEDIAN(age) AS mid FROM visits"
)
OLD = pd.DataFrame({"clinic": ["n"] * 3000 + ["s"] * 2000, "age": [30, 50] * 2500})
NEW = pd.DataFrame({"clinic": ["n"] * 6000 + ["s"] * 1000, "age": [40, 60] * 3500})
TRUTH = {
    "n[clinic=n]": (3000, 2.0),
    "n[clinic=s]": (-1000, 0.5),
    "mean[clinic=n]": (10, 1.25),
    "mean[clinic=s]": (10, 1.25),
}
BUDGETS: dict[str, dict[str, Any]] = {"pure": {"epsilon": 1.0}, "zcdp": {"rho": 0.5}}


def two(made: Any, folder: Path, times: int = 1) -> list[tuple[Release, Release]]:
    """Releases of both tables."""
    own = BUDGETS[made.privacy]
    ledger = Ledger.create(folder / "budget.db", **{unit: 2 * times * one for unit, one in own.items()})
    return [
        tuple(answer(made, table, **own, ledger=ledger, snapshot=label) for table, label in ((OLD, "10"), (NEW, "11")))  # type: ignore[misc]
        for _ in range(times)
    ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    return two(plan(SQL, DOMAIN, seconds=1), tmp_path_factory.mktemp("change"))[0]


def test_differences_and_ratios_of_counts_averages_and_medians(pair: tuple[Release, Release]) -> None:
    found = change(*pair).set_index("name")
    for name, (difference, ratio) in TRUTH.items():
        row = found.loc[name]
        assert abs(row.difference - difference) < 3 * (row.high - row.low)
        assert row.low < row.difference < row.high
        assert row.ratio_low < row.ratio < row.ratio_high
        assert abs(row.ratio - ratio) < 3 * (row.ratio_high - row.ratio_low)
    assert found.loc["mid"].low <= 10 <= found.loc["mid"].high
    counts = found.loc["n[clinic=n]"]
    assert counts.standard_error == pytest.approx(np.hypot(pair[0].standard_errors[0], pair[1].standard_errors[0]))
    assert found.attrs["charges"] == "ε = 1 for '10' and ε = 1 for '11', ε = 2 together for whoever is in both"


def test_what_has_no_change_is_refused_by_name(pair: tuple[Release, Release], tmp_path: Path) -> None:
    old, new = pair
    of = new.certificate

    def other(**said: Any) -> Release:
        return replace(new, certificate=replace(of, **said))

    for wrong, said in (
        (old, "given twice"),
        (other(snapshot=""), "has no snapshot"),
        (other(snapshot="10"), "are both of snapshot '10'"),
        (other(table="people"), "table='visits' and table='people'"),
        (other(neighbours="adding or removing one unit of at most 2 rows"), "edited or damaged"),
        (other(budget=0.5), "edited or damaged"),
        (replace(new, given=new.linear_answers + 5), "edited or damaged"),
    ):
        with pytest.raises(ReleaseError, match=said):
            change(old, wrong)
    made = plan(SQL, {**DOMAIN, "privacy": {"max_rows": 10_000}}, seconds=1)
    ledger = Ledger.create(tmp_path / "other.db", epsilon=1.0)
    capped = answer(made, NEW, epsilon=1.0, ledger=ledger, snapshot="11")
    with pytest.raises(ReleaseError, match="differ in their domains or caps"):
        change(old, capped)


def test_dates_that_moved_are_matched_by_their_places(tmp_path: Path) -> None:
    text = 'table = "t"\n[columns.day]\ndates = {first = "2026-10-01", months = 2}\nother = "drop"\n'
    (tmp_path / "domain.toml").write_text(text)
    from datetime import date

    found = []
    for start, label in ((date(2026, 10, 1), "10"), (date(2026, 11, 1), "11")):
        domain = load_domain(tmp_path / "domain.toml", start=start)
        month = "DATE_TRUNC('month', day)"
        made = plan(f"SELECT {month} AS month, COUNT(*) AS n FROM t GROUP BY {month}", domain, seconds=1)
        ledger = Ledger.create(tmp_path / f"{label}.db", epsilon=1.0)
        table = pd.DataFrame({"day": [start] * 100})
        found.append(answer(made, table, epsilon=1.0, ledger=ledger, snapshot=label))
    names = list(change(*found).name)
    assert any("→" in name for name in names)
    assert len(names) == len(found[0].answers)


def test_the_command_line_shows_a_table_and_writes_a_page(tmp_path: Path) -> None:
    make_study(tmp_path)
    given = (
        "answer",
        tmp_path / "pure.plan",
        "-t",
        tmp_path / "visits.csv",
        "-e",
        0.5,
        "-l",
        tmp_path / "budget.db",
        "-y",
    )
    for month in ("10", "11"):
        succeeds(*given, "--snapshot", month, "-o", tmp_path / f"{month}.csv")
    both = (tmp_path / "10.release", tmp_path / "11.release")
    said = succeeds("change", *both)
    assert "10 to 11, 95 % intervals" in said
    assert "ε = 1 together for whoever is in both" in said
    succeeds("change", *both, "-o", tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert "visits[clinic=north]" in page
    assert "http" not in page.replace("http-equiv", "")
    succeeds("change", *both, "-o", tmp_path / "c.csv")
    assert (tmp_path / "c.csv").read_text().startswith("table,name,old,new,difference,standard_error,low,high,ratio")


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_of_release_has_changes(name: str, tmp_path: Path) -> None:
    own = kind(name)
    ledger = own.ledger(tmp_path)
    old, new = (answer(own.strategy, own.data, **own.budget, ledger=ledger, snapshot=label) for label in ("10", "11"))
    found = change(old, new)
    assert len(found) == len(new.answers)
    assert np.all(found.low <= found.difference)
    assert np.all(found.difference <= found.high)
    assert found.standard_error.to_numpy() == pytest.approx(np.sqrt(2) * np.array(new.standard_errors))


@pytest.mark.slow
@pytest.mark.parametrize("privacy", BUDGETS)
def test_intervals_of_changes_cover(privacy: Any, tmp_path: Path) -> None:
    """Of 200 pairs of releases and eight figures each: at least nearly 95 %, and of counts not far above it."""
    inside: dict[str, list[bool]] = {"counts": [], "means": []}
    for old, new in two(plan(SQL, DOMAIN, privacy=privacy, seconds=1), tmp_path, 200):
        found = change(old, new).set_index("name")
        for name, (difference, ratio) in TRUTH.items():
            row, kind = found.loc[name], "counts" if name.startswith("n") else "means"
            inside[kind] += [row.low <= difference <= row.high, row.ratio_low <= ratio <= row.ratio_high]
    assert 0.92 < np.mean(inside["counts"]) < 0.98
    assert np.mean(inside["means"]) > 0.93
