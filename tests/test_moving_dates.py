"""Dates as a first day and months, and the same queries a month later."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

import batchdp
from batchdp.domain import Dates, as_domain, read_domain
from commands import run

MOVING = 'table = "visits"\n[columns.day]\ndates = {first = "2024-01-01", months = 24}\n'


def ends(domain: batchdp.Domain) -> tuple[date, date]:
    column = domain.columns["day"]
    assert isinstance(column, Dates)
    return column.dates


@pytest.mark.parametrize(
    ("first", "months", "last"),
    [
        ("2024-01-01", 24, date(2025, 12, 31)),
        ("2024-02-01", 1, date(2024, 2, 29)),
        ("2023-12-15", 1, date(2024, 1, 14)),
        ("2024-12-01", 12, date(2025, 11, 30)),
    ],
)
def test_months_say_the_last_day(first: str, months: int, last: date) -> None:
    given = as_domain({"table": "t", "columns": {"day": {"dates": {"first": first, "months": months}}}})
    plain = as_domain({"table": "t", "columns": {"day": {"dates": [first, last.isoformat()]}}})
    assert given == plain
    assert given.model_dump(mode="json") == plain.model_dump(mode="json")


@pytest.mark.parametrize(
    "bad", ["months = 0", "months = true", "months = 1.5", "months = 99999", 'last = "2024-01-01"']
)
def test_months_are_checked(bad: str) -> None:
    with pytest.raises(batchdp.DomainError, match="months"):
        read_domain(MOVING.replace("months = 24", bad))
    with pytest.raises(batchdp.DomainError, match="every month"):
        read_domain(MOVING.replace("01-01", "01-31"))


def test_they_begin_at_another_day() -> None:
    assert ends(read_domain(MOVING, start=date(2024, 2, 1))) == (date(2024, 2, 1), date(2026, 1, 31))
    with pytest.raises(batchdp.DomainError, match="no column whose dates can be moved"):
        read_domain('table = "t"\n[columns.day]\ndates = ["2024-01-01", "2024-01-31"]\n', start=date(2024, 2, 1))


def test_the_same_queries_are_planned_for_the_next_months(tmp_path: Path) -> None:
    domain, queries, plan = tmp_path / "domain.toml", tmp_path / "queries.sql", tmp_path / "visits.plan"
    domain.write_text(MOVING)
    queries.write_text("SELECT COUNT(*) AS visits FROM visits WHERE day IS NOT NULL;\n")
    done = run("plan", str(queries), "-d", str(domain), "-o", str(plan), "--from", "2024-03-01")
    assert done.code == 0, done.err
    assert ends(batchdp.load_plan(plan).domain) == (date(2024, 3, 1), date(2026, 2, 28))
