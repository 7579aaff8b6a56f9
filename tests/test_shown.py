"""ORDER BY, LIMIT, OFFSET and HAVING choose among noisy answers, after everything else; shares by window functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import batchdp
from asked_truth import different, domain, ours, records
from batchdp.errors import QueryError
from batchdp.queries.views import View
from batchdp.reports import report
from batchdp.sql import read_queries
from commands import run

SQL = """
SELECT charge, COUNT(*) AS n, AVG(age) AS mean FROM cases GROUP BY charge ORDER BY n DESC LIMIT 3;
SELECT court, COUNT(*) AS by_court FROM cases GROUP BY court HAVING COUNT(*) >= 700 AND NOT by_court > 1e6
ORDER BY 1 DESC;
SELECT charge, COUNT(*) AS second FROM cases GROUP BY charge ORDER BY charge LIMIT 2 OFFSET 1;
SELECT COUNT(*) AS everything FROM cases;
"""


def released(tmp_path: Path, sql: str = SQL, epsilon: float = 1000.0, **options: Any) -> batchdp.Release:
    plan = batchdp.plan(sql, domain(), seconds=1, cache=False, **options)
    ledger = batchdp.Ledger.create(tmp_path / f"{epsilon}.db", epsilon=epsilon)
    return batchdp.answer(plan, records(), epsilon=epsilon, ledger=ledger)


@pytest.mark.parametrize("options", [{}, {"marginals": 0}])
def test_frames_follow_the_sql_and_the_release_has_all(tmp_path: Path, options: dict[str, Any]) -> None:
    release = released(tmp_path, **options)
    shown = release.shown()
    exact = records().to_pandas()
    most = exact["charge"].value_counts().index[:3]
    assert list(shown["n"]["charge"]) == list(shown["mean"]["charge"]) == list(most)
    assert list(shown["n"]["ranks"]) == ["1", "2", "3"]
    courts = exact["court"].value_counts()
    assert list(shown["by_court"]["court"]) == [str(c) for c in sorted(courts[courts >= 700].index, reverse=True)]
    assert list(shown["second"]["charge"]) == sorted(exact["charge"].dropna().unique())[1:3]
    assert "everything" in set(release.to_frame()["name"])
    assert len(release.to_frame()) == 6 + 6 + 4 + 6 + 1 + bool(options)
    release.save(tmp_path / "x.release")
    again = batchdp.load_release(tmp_path / "x.release")
    assert again.views == release.views
    assert all(again.shown()[name].equals(frame) for name, frame in shown.items())


@pytest.mark.parametrize("options", [{}, {"marginals": 0}])
def test_statements_may_use_a_name_again(tmp_path: Path, options: dict[str, Any]) -> None:
    sql = """
    SELECT charge, COUNT(*) AS n, AVG(age) AS mean FROM cases GROUP BY charge ORDER BY n DESC LIMIT 2;
    SELECT court, COUNT(*) AS n FROM cases GROUP BY court HAVING n >= 1 ORDER BY n LIMIT 4;
    SELECT COUNT(*) AS n FROM cases;
    """
    release = released(tmp_path, sql, **options)
    shown, exact = release.shown(), records().to_pandas()
    by_charge, by_court = ("n", "n (2)") if options else ("n by charge", "n by court")
    assert list(shown[by_charge]["charge"]) == list(exact["charge"].value_counts().index[:2])
    assert list(shown["mean"]["charge"]) == list(shown[by_charge]["charge"])
    assert list(shown[by_court]["court"]) == [str(one) for one in exact["court"].value_counts().index[::-1]]
    batchdp.export(release, tmp_path / "files")
    report(release, tmp_path / "page.html")


def test_ranks_within_the_noise_are_said(tmp_path: Path) -> None:
    release = released(tmp_path, SQL, epsilon=0.02)
    assert any("–" in ranks for ranks in release.shown()["n"]["ranks"])
    assert any("3 of 6 rows are shown, chosen by their noisy answers" in note for note in release.notes)
    assert any("is within the noise" in note for note in release.notes)
    report(release, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "As the SQL shows them" in page
    assert "chosen by their noisy answers" in page


def test_the_command_line_writes_and_prints_what_is_shown(tmp_path: Path) -> None:
    from asked_truth import DOMAIN

    for name, text in (("domain.toml", DOMAIN), ("q.sql", SQL)):
        (tmp_path / name).write_text(text)
    records().to_pandas().to_csv(tmp_path / "cases.csv", index=False)
    budget = tmp_path / "b.db"
    run(
        "plan",
        tmp_path / "q.sql",
        "-d",
        tmp_path / "domain.toml",
        "-o",
        tmp_path / "p.plan",
        "--seconds",
        1,
        "--no-cache",
    )
    run("budget", budget, "--create", "--epsilon", 100)
    done = run(
        "answer",
        tmp_path / "p.plan",
        "-t",
        tmp_path / "cases.csv",
        "-e",
        100,
        "-l",
        budget,
        "-o",
        tmp_path / "a.csv",
        "-y",
    )
    assert done.code == 0, done.err
    assert "as the SQL shows it" in done.out
    names = [line.split(",")[0] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]]
    assert len([name for name in names if name.startswith(("n[", '"n['))]) == 3
    assert len([name for name in names if "second" in name]) == 2


def test_a_repeat_with_another_view_is_not_the_same_release(tmp_path: Path) -> None:
    ledger = batchdp.Ledger.create(tmp_path / "b.db", epsilon=1.0)
    plans = [batchdp.plan(sql, domain(), seconds=1, cache=False) for sql in (SQL, SQL.replace("LIMIT 3", "LIMIT 4"))]
    batchdp.answer(plans[0], records(), epsilon=0.1, ledger=ledger, release_id="once")
    with pytest.raises(batchdp.BatchDPError, match="once"):
        batchdp.answer(plans[1], records(), epsilon=0.1, ledger=ledger, release_id="once")


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("ORDER BY age", "that the statement does not show"),
        ("ORDER BY 7", "not the position of an item"),
        ("LIMIT -1", "not a number of rows"),
        ("LIMIT 2.5", "not a number of rows"),
        ("HAVING SUM(priors) > 3", "not among the items"),
        ("HAVING court > 3", "what is grouped by"),
        ("HAVING n", "not a condition on answers"),
        ("HAVING n > n", "not a number"),
    ],
)
def test_what_cannot_be_shown_is_refused(rest: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        read_queries(f"SELECT court, COUNT(*) AS n FROM cases GROUP BY court {rest}", domain())


@pytest.mark.parametrize("content", [{}, {"items": [1]}, {**View(("n",), ()).header(), "order": [["m", True]]}])
def test_a_view_in_a_file_is_checked(content: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)):
        View.read(content)


def test_shares_by_window_functions_are_duckdb_s() -> None:
    sqls = [
        "SELECT court AS k0, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS n0 FROM cases WHERE age > 20 GROUP BY court",
        "SELECT court AS k0, MONTH(filed) AS k1, 100.0 * SUM(priors) / SUM(SUM(priors)) OVER (PARTITION BY court) "
        "AS n1 FROM cases WHERE filed IS NOT NULL GROUP BY court, k1",
        "SELECT CASE WHEN age < 40 THEN 'a' ELSE 'b' END AS k0, COUNT(*) / SUM(COUNT(*)) OVER () AS n2 FROM cases "
        "GROUP BY k0",
    ]
    assert [different(sql, found) for sql, found in zip(sqls, ours(sqls), strict=True)] == [[]] * 3


@pytest.mark.parametrize("options", [{}, {"marginals": 0}])
def test_shares_add_up_to_one_with_intervals(tmp_path: Path, options: dict[str, Any]) -> None:
    sql = "SELECT court, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM cases GROUP BY court"
    shares = [one for one in released(tmp_path, sql, 1.0, **options).answers if one.name.startswith("share")]
    assert sum(one.value for one in shares) == pytest.approx(1, abs=0.02)
    assert all(one.low < one.value < one.high and one.derived for one in shares)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("COUNT(*) / MAX(COUNT(*)) OVER ()", "not supported|anything but SUM"),
        ("COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY age)", "not grouped by"),
        ("COUNT(*) + SUM(COUNT(*)) OVER ()", "a window function in a sum"),
        ("COUNT(*) / SUM(COUNT(*)) OVER (ORDER BY court)", "not supported"),
    ],
)
def test_other_window_functions_are_refused(item: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        read_queries(f"SELECT court, {item} AS n FROM cases GROUP BY court", domain())


def test_an_order_over_several_tables_is_refused_where_every_set_of_groups_is_one() -> None:
    sql = "SELECT charge, court, COUNT(*) AS n FROM cases GROUP BY ROLLUP(charge, court) ORDER BY n"
    with pytest.raises(QueryError, match=r"line 1.*several sets of groups.*a statement of its own"):
        batchdp.plan(sql, domain(), marginals=0, cache=False)
