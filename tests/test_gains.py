"""The one gain of a plan: the same on the terminal, on its page and in Python, over the statements that were asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp import outlook
from batchdp.reports.planned import Prospect, plan_page
from commands import succeeds

DOMAIN = """
table = "flights"
[columns.carrier]
values = ["AA", "DL", "UA", "WN"]
[columns.month]
integers = [1, 12]
[columns.distance]
integers = [0, 5000]
outside = "clip"
[columns.delay]
range = [-60, 180]
bins = [-60, 0, 15, 60]
"""
SQL = """
SELECT COUNT(*) AS total FROM flights;
SELECT month, COUNT(*) AS by_month FROM flights GROUP BY month;
SELECT carrier, AVG(distance) AS mean FROM flights GROUP BY carrier;
SELECT MEDIAN(delay) AS middle FROM flights;
SELECT carrier, 100.0 * COUNT(*) FILTER (WHERE delay >= 15) / COUNT(*) AS late FROM flights GROUP BY carrier;
"""


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_by_itself_has_the_share_of_what_was_asked_and_parts_share_one(privacy: Any) -> None:
    made = batchdp.plan(SQL, DOMAIN, privacy=privacy, seconds=0.5, cache=False)
    expected = outlook(made)
    assert len(expected.statements) == 8  # of which six are parts of three; so five were asked for
    found = {one.name: one for one in expected.statements}
    one_share = 5 * np.sqrt(2) if privacy == "pure" else np.sqrt(5)
    half_share = 10 * np.sqrt(2) if privacy == "pure" else np.sqrt(10)
    assert found["total"].by_itself == pytest.approx(one_share)
    assert found["by_month"].by_itself == pytest.approx(one_share)
    assert found["late.denominator"].by_itself == pytest.approx(half_share)
    assert found["mean.numerator"].by_itself == pytest.approx(2500 * half_share)
    parts = {"mean.numerator", "mean.denominator", "middle.below", "middle.total", "late.numerator", "late.denominator"}
    assert {one.name for one in expected.statements if one.part_of} == parts
    assert (
        "bounded as in the plan; a derived answer part by part, each alone with an equal part of that. Gain"
        in expected.explained()
    )


def test_the_terminal_and_the_page_show_the_same_gains(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    (tmp_path / "d.toml").write_text(DOMAIN)
    given = ("plan", tmp_path / "q.sql", "-d", tmp_path / "d.toml", "-o", tmp_path / "x.plan", "--seconds", 1)
    shown = succeeds(*given, "--verbose")
    told = json.loads(succeeds(*given, "--json"))["statements"]
    page = plan_page(Prospect(batchdp.load_plan(tmp_path / "x.plan"), None, None))
    section = page[page.index('<section id="statements">') : page.index('<section id="queries">')]
    gain = re.compile(r'scope="row"><bdi dir="auto">([^<]*)</bdi>.*?>([\d.]+×)</td>', re.DOTALL)
    on_page = dict(pair for row in re.findall(r"<tr>.*?</tr>", section, re.DOTALL) for pair in gain.findall(row))
    on_terminal = dict(re.findall(r"^\s*([\w.]+)(?:, a part)?  .* ([\d.]+×) *$", shown, re.MULTILINE))
    assert on_page == on_terminal == {one["name"]: f"{one['gain']:.2f}×" for one in told}
    assert len(on_page) == 8
    assert "in 5 statements" in page
    sentence = "Gain: how many times smaller its error is than that."
    assert sentence in " ".join(page.split())
    assert sentence in " ".join(shown.split())


def test_tables_have_the_same_gain_on_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text(DOMAIN.replace("5000", "5"))
    shown = succeeds(
        "plan", "--marginals", 1, "-d", tmp_path / "d.toml", "-o", tmp_path / "x.plan", "--seconds", 1, "-v"
    )
    prospect = Prospect(batchdp.load_plan(tmp_path / "x.plan"), None, None)
    assert len(prospect.statements) == 5
    for one in prospect.statements:
        gained = f"{one.by_itself / one.standard_error:.2f}×"
        assert re.search(rf"{re.escape(one.name)} .* {gained} *$", shown, re.MULTILINE)
        assert f">{gained}</td>" in plan_page(prospect)
    assert "each statement alone with 1/5 of the budget" in " ".join(shown.split())
