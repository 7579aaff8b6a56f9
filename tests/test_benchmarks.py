from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import comparison
from batchdp import STRATEGIES
from contract import TO_REACH, peer_figures


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
