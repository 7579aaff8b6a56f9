from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import comparison
import ledger as kills
from batchdp import STRATEGIES, Ledger
from batchdp.ledger import Reservation
from contract import TO_REACH, peer_figures
from reproduction import take_over
from reproduction.journal import row_for
from reproduction.parameters import PAPER
from reproduction.points import points_of


def test_the_comparison_has_every_mechanism_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = {family.name: family for family in comparison.measured_families()}
    assert {*STRATEGIES, "optimize"} <= set(every)
    slow = replace(every["matrix-mechanism"], slow_beyond=127)
    quick = [every["noise-on-data"], every["wavelet"], slow, every["optimize"]]
    monkeypatch.setattr(comparison, "measured_families", lambda: quick)
    monkeypatch.setattr(sys, "argv", ["comparison.py", "--largest", "128", "--csv", str(tmp_path / "table.csv")])
    comparison.main()
    printed = capsys.readouterr()
    assert "1 of 3: WDiscrete 64 × 128, " in printed.err
    assert "takes minutes here" in printed.out
    assert "MISSES" not in printed.out
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cases = [case for case in TO_REACH if case[2] <= 128]
    assert {(row["workload"], int(row["m"]), int(row["n"]), int(row["s"])) for row in rows} == set(cases)
    assert all(float(row["residual"]) <= 1e-9 for row in rows if row["seconds"])
    assert sum(row["note"].startswith("not measured") for row in rows) == len(cases)


def test_other_programs_have_figures_for_every_contract_workload() -> None:
    known = {figure[:4] for figure in peer_figures(1024)}
    assert set(TO_REACH) <= known


def test_a_line_that_a_kill_tore_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=10 * kills.EPSILON)
    for name, output in (("a", b"1"), ("b", b"23")):
        reserved = ledger.reserve(name, epsilon=kills.EPSILON, plan_digest="plan", table="table")
        assert isinstance(reserved, Reservation)
        ledger.complete(reserved, output)
    shown = tmp_path / "shown"
    for text, lines, torn_is_paid in (
        ("a 1\nb 2", ["a 1"], True),
        ("a 1\nb", ["a 1"], True),
        ("a 1\nb 3", ["a 1"], False),
    ):
        shown.write_text(text)
        whole, torn = kills.shown_lines(shown)
        assert whole == lines
        assert all(kills.is_paid(ledger, line) for line in whole)
        assert kills.is_paid(ledger, torn, whole=False) is torn_is_paid
    assert not kills.is_paid(ledger, "a 2")
    assert not kills.is_paid(ledger, "nobody 1")


def test_points_that_were_too_slow_come_over_with_the_longest_time_that_they_were_given() -> None:
    untried = row_for(points_of("figure-4", PAPER)[0], {"status": "not run yet"})
    found, short, long = replace(untried, error=1.0), replace(untried, limit=100.0), replace(untried, limit=1800.0)
    for more, known in ((long, short), (long, untried), (found, long), (found, untried), (untried, None)):
        assert take_over._is_more(more, known, "")
    for less, known in (
        (short, long),
        (long, long),
        (untried, long),
        (untried, untried),
        (long, found),
        (found, found),
    ):
        assert not take_over._is_more(less, known, "")
