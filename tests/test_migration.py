"""Files of version 0.1.0, as golden/files_of_0_1_0.py made them, keep working; see there."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchdp import answer, load_plan, load_release, plan, report
from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger import Ledger, StoredRelease
from batchdp.ledger.books import VERSION
from batchdp.mechanism.lattice import quantise

GOLDEN = Path(__file__).parent / "golden/0.1.0"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder with all files of 0.1.0."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "old"))


def journal_mode(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


@pytest.mark.parametrize("name", ["pure", "rho"])
def test_an_old_ledger_is_whole_and_goes_on(name: str, old: Path) -> None:
    expected, path = EXPECTED["ledgers"][name], old / f"{name}.db"
    assert journal_mode(path) == "wal"
    ledger = Ledger.open(path)
    assert journal_mode(path) == "delete"
    assert (ledger.unit, ledger.total, ledger.spent) == (expected["unit"], expected["total"], expected["spent"])
    assert ledger.verify(expected["head"]) == ledger.head == expected["head"]
    fields = ("release_id", "plan_digest", "table", "unit", "requested", "charged", "time", "state")
    assert [[getattr(entry, field) for field in fields] for entry in ledger.history()] == expected["history"]

    budget: dict[str, Any] = {ledger.unit: 0.125}
    ledger.reserve("new", **budget, plan_digest="plan", table="visits", privacy_unit="patient")
    assert ledger.verify(expected["head"]) == ledger.head != expected["head"]
    assert [entry.privacy_unit for entry in ledger.history()] == [None] * len(expected["history"]) + ["patient"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert not any(entry.name.startswith(f"{name}.db-") for entry in old.iterdir())


def test_spends_in_the_log_that_a_kill_left_become_part_of_the_one_file(old: Path, tmp_path: Path) -> None:
    expected, path = EXPECTED["ledgers"]["logged"], old / "logged.db"
    assert Ledger.open(path).spent == expected["spent"]
    assert not Path(f"{path}-wal").exists()
    shutil.copy(path, tmp_path / "copy")
    ledger = Ledger.open(tmp_path / "copy")
    assert ledger.spent == expected["spent"]
    assert [entry.release_id for entry in ledger.history()] == expected["ids"]
    ledger.verify()
    again = ledger.reserve("k0", epsilon=0.125, plan_digest="plan", table="table")
    assert isinstance(again, StoredRelease)
    assert again.output == b"output 0"
    with pytest.raises(BudgetError, match="its budget stays spent"):
        ledger.reserve("k6", epsilon=0.125, plan_digest="plan", table="table")


@pytest.mark.parametrize("place", [0, 8, 20, 40, 32 + 4120 + 100, 32 + 5 * 4120 + 3])
def test_a_damaged_log_is_refused_and_stays_as_it_is(place: int, old: Path) -> None:
    """SQLite reads as far as it can and says nothing."""
    path, log = old / "logged.db", old / "logged.db-wal"
    content = bytearray(log.read_bytes())
    content[place] ^= 1
    log.write_bytes(content)
    with pytest.raises(LedgerError, match=r"last spends are in logged\.db-wal, which is damaged .*; restore a copy"):
        Ledger.open(path)
    assert log.read_bytes() == content


@pytest.mark.parametrize("kept", [10, 31])
def test_a_log_without_its_beginning_is_refused(kept: int, old: Path) -> None:
    os.truncate(old / "logged.db-wal", kept)
    with pytest.raises(LedgerError, match="beginning is cut off"):
        Ledger.open(old / "logged.db")


def test_a_log_whose_last_transaction_was_cut_short_gives_the_ones_before(old: Path) -> None:
    """As a kill may leave it."""
    log = old / "logged.db-wal"
    os.truncate(log, log.stat().st_size - 100)
    ledger = Ledger.open(old / "logged.db")
    ledger.verify()
    assert ledger.spent == 0.75


def test_an_old_ledger_that_another_program_uses_is_not_converted_meanwhile(old: Path) -> None:
    with closing(sqlite3.connect(old / "pure.db")) as connection:
        connection.execute("SELECT * FROM event").fetchone()
        with pytest.raises(LedgerError, match="is locked by another process"):
            Ledger.open(old / "pure.db", timeout=0.1)
    Ledger.open(old / "pure.db", timeout=0.1).verify()


# Plans and releases


@pytest.mark.parametrize("name", EXPECTED["plans"])
def test_an_old_plan_loads_and_answers_under_its_unit(name: str, old: Path) -> None:
    expected = EXPECTED["plans"][name]
    made = load_plan(old / f"{name}.plan")
    assert list(made.names) == expected["names"]
    assert list(made.workload.blocks) == expected["blocks"]
    cap = made.domain.privacy.max_rows or 10**9  # what 0.1.0 took where none was given
    assert quantise(made.strategy, largest_total=cap).sensitivity == expected["sensitivity"]
    assert made.planner == "0.1.0"
    ledger = Ledger.create(old / "new.db", rho=5.0)
    budget: dict[str, Any] = {"rho": 0.5} if name == "zcdp" else {"epsilon": 0.5}
    done = answer(made, old / "visits.csv", **budget, ledger=ledger)
    assert done.certificate.privacy_unit == (expected["unit"] or "every row is a person")


@pytest.mark.parametrize("name", EXPECTED["releases"])
def test_an_old_release_loads_as_it_was_and_its_ledger_agrees(name: str, old: Path) -> None:
    expected = EXPECTED["releases"][name]
    release = load_release(old / f"{name}.release")
    later = {"privacy_unit": "not recorded", "derived": 0, "shape": ""}
    assert vars(release.certificate) == {**expected["certificate"], **later}
    found = [[one.name, one.value, one.standard_error, one.low, one.high] for one in release.answers]
    assert [row[:2] for row in found] == [row[:2] for row in expected["answers"]]
    for row, before in zip(found, expected["answers"], strict=True):
        assert row[2:] == pytest.approx(before[2:], rel=1e-4)
    ledger = Ledger.open(old / ("rho.db" if name == "zcdp" else "pure.db"))
    page = report(release, old / "page.html", ledger=ledger).read_text(encoding="utf-8")
    assert "not recorded" in page
    assert "this release" in page


@pytest.mark.parametrize("name", ["rows", "unit", "blocks", "zcdp"])
def test_a_repeat_of_an_old_release_gives_its_stored_answers(name: str, old: Path) -> None:
    expected = EXPECTED["releases"][name]
    ledger = Ledger.open(old / ("rho.db" if name == "zcdp" else "pure.db"))
    before = ledger.spent
    budget: dict[str, Any] = {"rho": 0.1} if name == "zcdp" else {"epsilon": 0.1}
    made = load_plan(old / f"{name}.plan")
    again = answer(made, old / "visits.csv", **budget, ledger=ledger, release_id=f"{name} of 2025")
    assert again.measurements.tolist() == expected["measurements"]
    assert [one.value for one in again.answers] == [row[1] for row in expected["answers"]]
    assert again.certificate.privacy_unit == "not recorded"
    assert ledger.spent == before
    ledger.verify()


def test_a_cached_plan_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHDP_CACHE", str(tmp_path))
    domain = {"table": "t", "columns": {"a": {"values": ["x", "y"]}}}
    asked: dict[str, Any] = {"sql": "SELECT COUNT(*) AS n FROM t", "domain": domain}
    made = plan(**asked)
    (cached,) = tmp_path.iterdir()
    replace(made, strategy=replace(made.strategy, method="remembered")).save(cached)
    assert plan(**asked).strategy.method == "remembered"
    replace(made, planner="0.1.0", strategy=replace(made.strategy, method="remembered")).save(cached)
    assert plan(**asked).strategy.method == made.strategy.method
    assert load_plan(cached).planner == made.planner
