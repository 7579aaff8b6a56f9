"""Releases and plans as people look at them first: tables with their typical errors and top rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import batchdp
from batchdp import Ledger, MatrixWorkload, PairStrategy, Release, answer, workloads
from batchdp.cli.answer import show_answers
from batchdp.cli.plan import expected_table
from batchdp.cli.show import Part, console, parts, pieces
from batchdp.plans.outlook import outlook
from batchdp.queries.query import statements_of, tables_of
from batchdp.reports.notebook import look_at
from batchdp.text import LISTED, NOTEBOOK, OPENED, ROWS, WHOLE, excerpt, full_title
from commands import DOMAIN, QUERIES, succeeds
from test_table_release import codes, strategy

NAMES = ("all", *(f"n[c={i}]" for i in range(3)), "other", *(f"n[a={a}, b=x, y]" for a in "pq"))


def released(names: tuple[str, ...], folder: Path) -> Release:
    m = len(names)
    planned = PairStrategy(MatrixWorkload(np.eye(m), names=names), np.eye(m), np.eye(m))
    return answer(planned, np.arange(m) * 100, epsilon=1.0, ledger=Ledger.create(folder / "b.db", epsilon=1))


def printed(found: object) -> str:
    with console().capture() as caught:
        console().print(found)
    return caught.get()


def test_single_answers_are_one_table_and_the_first() -> None:
    tables = tables_of(NAMES)
    assert [(one.name, one.columns) for one in tables] == [("answers", ("query",)), ("n", ("c",)), ("n", ("a", "b"))]
    assert [one.answers for one in tables] == [(0, 4), (1, 2, 3), (5, 6)]
    assert tables[0].labels == ["all", "other"]
    assert tables[2].labels == ["p, x, y", "q, x, y"]
    assert [one.name for one in statements_of(NAMES)] == ["all", "n", "other", "n"]


@pytest.mark.parametrize("sizes", [[], [1], [WHOLE], [WHOLE + 1], [3] * 5, [1000] * 3, [7] * 100, [1] * 10_000])
def test_an_excerpt_is_whole_or_fits_on_a_screen(sizes: list[int]) -> None:
    shown = excerpt(sizes)
    if sum(sizes) <= WHOLE:
        assert shown == sizes
        return
    assert len(shown) == min(len(sizes), LISTED)
    assert sum(shown) <= WHOLE
    assert all(rows >= min(size, ROWS) for rows, size in zip(shown[:OPENED], sizes, strict=False))
    assert not any(shown[OPENED:])


def test_titles_say_every_column_once() -> None:
    assert full_title("visits", ()) == "visits"
    assert full_title("visits", ("a", "b")) == "visits by a × b"
    assert full_title("a × b", ("a", "b")) == "a × b"


def test_a_look_has_the_median_error_and_the_largest_answers(tmp_path: Path) -> None:
    release = released(tuple(f"n[c={i}]" for i in range(WHOLE + 40)), tmp_path)
    (table,) = look_at(release).tables
    rows = list(table.rows)
    assert table.title == "n by c"
    assert table.answers == WHOLE + 40 == len(rows) + table.more
    assert table.standard_error == pytest.approx(np.median([one.standard_error for one in release.answers]))
    largest = sorted(release.answers, key=lambda one: -one.value)[: len(rows)]
    assert [row[1] for row in rows] == [one.value for one in largest]
    assert [row[3:5] for row in rows] == [pytest.approx((one.low, one.high)) for one in largest]
    (whole,) = look_at(release, everything=True).tables
    assert [row[1] for row in whole.rows] == [one.value for one in release.answers]


def test_a_release_of_tables_is_looked_at_as_its_frames_are(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.db", rho=100)
    release = answer(strategy(), codes(), rho=50, ledger=ledger)
    assert isinstance(release, batchdp.Release)
    look = look_at(release, everything=True)
    for t, seen in enumerate(look.tables):
        columns = release.tables[t].columns
        frame = release.table(*columns)
        assert seen.title == (" × ".join(columns) or "total")
        assert seen.standard_error == pytest.approx(frame["standard_error"].median())
        found = list(seen.rows)
        assert [row[1] for row in found] == frame["value"].tolist()
        labels = frame.iloc[:, : len(columns)].astype(str).agg(", ".join, axis=1) if columns else ["total"]
        assert [row[0] for row in found] == list(labels)
    with console().capture() as caught:
        show_answers(release)
    assert "60 private answers" in caught.get()
    assert "a1 × a2 (12)" in caught.get()
    shown = release._repr_html_()
    assert "60 private answers in 7 tables" in shown
    assert "standard error" in shown


def test_the_terminal_shows_tables_and_with_all_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = ", ".join(f'"v{i}"' for i in range(90))
    Path("wide.toml").write_text(f'table = "visits"\n[columns.clinic]\nvalues = [{values}]\n')
    Path("wide.sql").write_text(
        "SELECT COUNT(*) AS total FROM visits; SELECT clinic, COUNT(*) AS visits FROM visits GROUP BY clinic;"
    )
    asked = ("plan", "wide.sql", "-d", "wide.toml", "-o", "wide.plan", "--seconds", 1)
    shown = succeeds(*asked)
    assert "visits by clinic (90)" in shown
    assert "median" in shown
    assert "more" in shown
    assert "--all shows every one" in shown
    assert len(shown.splitlines()) < 60
    whole = succeeds(*asked, "--all")
    assert all(f"v{i} " in whole for i in range(90))
    assert "--all" not in whole


def test_few_single_counts_look_as_they_always_did(tmp_path: Path) -> None:
    release = released(("all", "NY or NJ", "CA"), tmp_path)
    with console().capture() as caught:
        show_answers(release)
    lines = [line.split()[0] for line in caught.get().splitlines() if line.strip()]
    assert lines[:2] == ["3", "query"]
    assert lines[-3:] == ["all", "NY", "CA"]
    assert "median" not in caught.get()


def test_an_outlook_knows_the_tables() -> None:
    expected = outlook(batchdp.plan(QUERIES, DOMAIN, cache=False, seconds=1))
    tables, more = expected.excerpt()
    assert more == 0
    assert [one.title for one in tables] == ["answers by query", "visits by clinic", "aged by age"]
    assert [row for one in tables for _, row in one.rows] == sorted(
        expected.tables, key=lambda row: "[" in row.name
    )  # which keeps the order of the statements
    shown = printed(expected_table(expected, "title"))
    assert "visits by clinic (2)" in shown
    assert "  north" in shown


HOSTILE = "x[bold]\x1b[31m\u202ey[/bold]"


def test_nothing_that_a_file_says_is_obeyed_by_the_terminal(tmp_path: Path) -> None:
    release = released((f"{HOSTILE}[c={HOSTILE}]", f"{HOSTILE}[c=2]", HOSTILE), tmp_path)
    with console().capture() as caught:
        show_answers(release)
    assert "\x1b[31m" not in caught.get()
    assert "\u202e" not in caught.get()
    assert "x[bold]\\x1b[31m" in caught.get()
    assert "<script" not in release._repr_html_()


def test_long_tables_are_printed_in_pieces() -> None:
    part = Part(("title", "1"), ([str(i), "2"] for i in range(2500)))
    found = list(pieces([part]))
    assert [len(list(piece[0].rows)) for piece in found] == [1000, 1000, 500]
    assert [piece[0].heading is None for piece in found] == [False, True, True]
    assert "… and 7 more" in printed(parts("t", ("a", "b"), [Part(None, [("x", "1")], 7)]))


def test_notebooks_show_tables_with_top_rows(tmp_path: Path) -> None:
    release = released((*(f"n[c=v{i}]" for i in range(100)), "one"), tmp_path)
    shown = release._repr_html_()
    assert "n by c (100), median standard error" in shown
    assert "more" in shown
    assert shown.count("<tr>") < NOTEBOOK + 10
    few = look_at(release, whole=NOTEBOOK)
    assert sum(len(list(one.rows)) for one in few.tables) <= NOTEBOOK
    made = batchdp.plan(QUERIES, DOMAIN, cache=False, seconds=1)
    assert "aged by age (3), median standard error" in made._repr_html_()


def test_workloads_of_numbers_are_one_table(tmp_path: Path) -> None:
    batch = workloads.prefix(4)
    done = answer(
        PairStrategy(batch, np.eye(4), batch.matrix),
        [1, 2, 3, 4],
        epsilon=1,
        ledger=Ledger.create(tmp_path / "b.db", epsilon=1),
    )
    (table,) = look_at(done).tables
    assert table.single
