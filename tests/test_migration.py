"""What was made before 0.3: plans and releases are refused in one sentence, ledgers are carried over with all of it."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchdp import STRATEGIES, answer, load_plan, load_release, plan
from batchdp.errors import BudgetError, LedgerError, PlanError, ReleaseError
from batchdp.ledger import Ledger, Reservation, StoredRelease, outputs
from batchdp.ledger.books import APPLICATION, FIELDS, VERSION, VERSIONS, added_columns, schema
from commands import refused, run, succeeds, unchanged
from golden.make_0_2 import DOMAIN

GOLDEN = Path(__file__).parent / "golden"
OF_0_1: dict[str, Any] = json.loads((GOLDEN / "0.1.0/expected.json").read_text(encoding="utf-8"))["ledgers"]
OF_0_2: dict[str, Any] = json.loads((GOLDEN / "0.2.0/expected.json").read_text(encoding="utf-8"))
LEDGERS = {"0.1.0/pure.db": OF_0_1["pure"], "0.1.0/rho.db": OF_0_1["rho"], "0.2.0/budget.db": OF_0_2}
EARLIER = r"is a ledger of a version before 0\.3; .* `batchdp budget OLD --migrate NEW`, and spend from that"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder with all files of earlier versions."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "old"))


def pragma(path: Path, name: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def as_of(version: int, source: Ledger, target: Path) -> Path:
    """The same ledger as an earlier version would have it, which must not say what that version did not know."""
    with closing(sqlite3.connect(target)) as connection:
        for statement in schema(version):
            connection.execute(statement)
        connection.execute("ATTACH ? AS source", (str(source.path),))
        columns = ", ".join((FIELDS, *(one.partition(" ")[0] for one in added_columns(version)), "hash", "output"))
        connection.execute(f"INSERT INTO main.event ({columns}) SELECT {columns} FROM source.event ORDER BY number")
        if version > 1:
            connection.execute("INSERT INTO main.seal SELECT * FROM source.seal")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    return target


# ── ledgers ──


@pytest.mark.parametrize("name", LEDGERS)
def test_an_earlier_ledger_is_refused_and_the_command_named(name: str, old: Path) -> None:
    with unchanged(old):
        with pytest.raises(LedgerError, match=EARLIER):
            Ledger.open(old / name)
        assert "--migrate NEW" in refused("budget", old / name)


@pytest.mark.parametrize("name", LEDGERS)
def test_everything_is_carried_over_and_goes_on(name: str, old: Path, tmp_path: Path) -> None:
    expected = LEDGERS[name]
    ledger = Ledger.migrate(old / name, tmp_path / "new.db")
    assert (ledger.unit, ledger.total, ledger.spent) == (expected["unit"], expected["total"], expected["spent"])
    assert ledger.verify(expected["head"]) == ledger.head == expected["head"]
    known = [list(vars(entry).values()) for entry in ledger.history()]
    assert [row[: len(before)] for row, before in zip(known, expected["history"], strict=True)] == expected["history"]
    assert pragma(ledger.path, "user_version") == VERSION

    left: dict[str, Any] = {ledger.unit: ledger.remaining}
    ledger.reserve("new", **left, plan_digest="plan", table="visits", privacy_unit="patient")
    assert ledger.verify(expected["head"]) == ledger.head != expected["head"]
    with pytest.raises(BudgetError, match="is more than is left"):
        ledger.reserve("newer", **{ledger.unit: 1e-6}, plan_digest="plan", table="visits")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LEDGERS)
def test_what_was_carried_over_is_never_spent_from_again(name: str, old: Path, tmp_path: Path) -> None:
    path = old / name
    Ledger.migrate(path, tmp_path / "new.db")
    gone = rf"was carried over to '{tmp_path}/new\.db', which has all that it granted; use that file"
    with unchanged(tmp_path):
        with pytest.raises(LedgerError, match=gone):
            Ledger.open(path)
        with pytest.raises(LedgerError, match=gone):
            Ledger.migrate(path, tmp_path / "newer.db")
        with pytest.raises(LedgerError, match=gone):
            Ledger.migrate(shutil.copy(path, tmp_path / "copy.db"), tmp_path / "newer.db")
        (tmp_path / "copy.db").unlink()
    assert pragma(path, "user_version") not in (1, 2, 3)  # which is what 0.1.0 and 0.2.0 look at before they spend


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_outputs_are_carried_over_those_beside_the_ledger_too(version: int, tmp_path: Path) -> None:
    source = Ledger.create(tmp_path / "source.db", epsilon=1.0)
    kept = {"small": b"small", "large": b"large" * outputs.LARGEST_ROW} if version > 1 else {"small": b"small"}
    for release_id, output in kept.items():
        reserved = source.reserve(release_id, epsilon=0.25, plan_digest="plan", table="table")
        assert isinstance(reserved, Reservation)
        source.complete(reserved, output)
    source.reserve("interrupted", epsilon=0.125, plan_digest="plan", table="table")
    path = as_of(version, source, tmp_path / "old.db")
    if version > 1:
        outputs.folder_of(source.path).rename(outputs.folder_of(path))
    with pytest.raises(LedgerError, match=EARLIER):
        Ledger.open(path)
    ledger = Ledger.migrate(path, tmp_path / "new.db")
    shutil.rmtree(outputs.folder_of(path), ignore_errors=True)
    assert (ledger.verify(), ledger.history()) == (source.head, source.history())
    for release_id, output in kept.items():
        again = ledger.reserve(release_id, epsilon=0.25, plan_digest="plan", table="table")
        assert isinstance(again, StoredRelease)
        assert again.output == output
    with pytest.raises(BudgetError, match="its budget stays spent"):
        ledger.reserve("interrupted", epsilon=0.125, plan_digest="plan", table="table")
    assert ledger.remaining == source.remaining


@pytest.mark.parametrize(
    ("release_id", "asked"),
    [
        ("pair of 2026", {"sql": "SELECT city, COUNT(*) AS n FROM visits GROUP BY city"}),
        ("derived of 2026", {"sql": "SELECT COUNT(*) FILTER (WHERE age < 18) / COUNT(*) AS young FROM visits"}),
        ("tables of 2026", {"marginals": 2}),
        ("counts", {}),
    ],
)
def test_an_id_whose_answers_cannot_be_read_is_refused_and_never_charged_again(
    release_id: str, asked: dict[str, Any], old: Path, tmp_path: Path
) -> None:
    made = plan(domain=DOMAIN, cache=False, **asked) if asked else STRATEGIES["noise-on-data"](np.eye(3))
    given: Any = old / "0.2.0/visits.csv" if asked else [5, 0, 7]
    budget = 0.25 if asked else 0.5
    more: dict[str, Any] = {} if asked else {"rows_per_unit": 2}
    ledger = Ledger.migrate(old / "0.2.0/budget.db", tmp_path / "new.db")
    with unchanged(tmp_path), pytest.raises(LedgerError, match=r"released by a version before 0\.3, and this one"):
        answer(made, given, epsilon=budget, ledger=ledger, release_id=release_id, **more)
    assert ledger.spent == OF_0_2["spent"]


def test_an_id_of_0_1_is_refused_likewise(old: Path, tmp_path: Path) -> None:
    ledger = Ledger.migrate(old / "0.1.0/pure.db", tmp_path / "new.db")
    strategy = STRATEGIES["noise-on-data"](np.eye(3))
    with pytest.raises(LedgerError, match=r"released by a version before 0\.3"):
        answer(strategy, [5, 0, 7], epsilon=0.5, ledger=ledger, release_id="counts", rows_per_unit=2)
    assert ledger.spent == OF_0_1["pure"]["spent"]


def test_the_command_carries_over_and_shows_what_is_left(old: Path, tmp_path: Path) -> None:
    shown = succeeds("budget", old / "0.2.0/budget.db", "--migrate", tmp_path / "new.db")
    assert "ε = 3 in all, 1.38 spent, 1.62 left." in shown
    assert succeeds("budget", tmp_path / "new.db") == shown
    assert "was carried over to" in refused("budget", old / "0.2.0/budget.db")
    assert "this version already" in refused("budget", tmp_path / "new.db", "--migrate", tmp_path / "newer.db")
    assert "--migrate" in refused("budget", "any.db", "--create", "--epsilon", 1, "--migrate", "other.db", code=2)
    assert not (tmp_path / "newer.db").exists()


def test_nothing_that_is_there_is_written_over(old: Path, tmp_path: Path) -> None:
    (tmp_path / "new.db").write_text("what somebody has there")
    with unchanged(tmp_path), pytest.raises(LedgerError, match="exists already"):
        Ledger.migrate(old / "0.2.0/budget.db", tmp_path / "new.db")
    with unchanged(tmp_path), pytest.raises(LedgerError, match="exists already"):
        Ledger.migrate(old / "0.2.0/budget.db", old / "0.2.0/budget.db")
    with unchanged(tmp_path), pytest.raises(LedgerError, match=r"nowhere\.db' does not exist"):
        Ledger.migrate(old / "nowhere.db", tmp_path / "newer.db")
    with unchanged(tmp_path), pytest.raises(LedgerError, match=r"no folder/new\.db' cannot be used"):
        Ledger.migrate(old / "0.2.0/budget.db", tmp_path / "no folder/new.db")


@pytest.mark.parametrize("version", VERSIONS[:-1])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE event SET charged = charged - 1, remaining = remaining + 1 WHERE number = 2", "was changed after"),
        ("DELETE FROM event WHERE number = 1", "missing|different moments"),
        ("UPDATE event SET output = 'other' WHERE number = 3", "the output stored with entry 3 was changed"),
        ("CREATE TRIGGER more AFTER INSERT ON event BEGIN SELECT 1; END", "its tables and triggers are not those"),
    ],
)
def test_a_damaged_ledger_is_not_carried_over(version: int, damage: str, message: str, tmp_path: Path) -> None:
    source = Ledger.create(tmp_path / "source.db", epsilon=1.0)
    source.reserve("one", epsilon=0.25, plan_digest="plan", table="table")
    reserved = source.reserve("two", epsilon=0.25, plan_digest="plan", table="table")
    assert isinstance(reserved, Reservation)
    source.complete(reserved, b"output")
    path = as_of(version, source, tmp_path / "old.db")
    with closing(sqlite3.connect(path)) as connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(damage)
        for _, sql in guards:
            connection.execute(sql)
        connection.commit()
    with unchanged(tmp_path), pytest.raises(LedgerError, match=message):
        Ledger.migrate(path, tmp_path / "new.db")


@pytest.mark.parametrize("version", VERSIONS[1:-1])
def test_a_copy_that_lacks_its_last_spend_is_not_carried_over(version: int, tmp_path: Path) -> None:
    source = Ledger.create(tmp_path / "source.db", epsilon=1.0)
    source.reserve("one", epsilon=0.25, plan_digest="plan", table="table")
    path = as_of(version, source, tmp_path / "old.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE seal SET head = 'of a later entry'")
        connection.commit()
    with unchanged(tmp_path), pytest.raises(LedgerError, match="pages are of different moments"):
        Ledger.migrate(path, tmp_path / "new.db")


def test_spends_in_a_log_are_not_left_behind(old: Path, tmp_path: Path) -> None:
    """SQLite reads a log as far as it is whole and says nothing; 0.2 checks it."""
    path = old / "0.1.0/logged.db"
    unread = r"last spends are in logged\.db-wal; open it once with batchdp 0\.2"
    with unchanged(tmp_path), pytest.raises(LedgerError, match=unread):
        Ledger.open(path)
    with unchanged(tmp_path), pytest.raises(LedgerError, match=unread):
        Ledger.migrate(path, tmp_path / "new.db")


def test_a_ledger_that_another_program_uses_is_not_carried_over_meanwhile(old: Path, tmp_path: Path) -> None:
    for name in LEDGERS:
        with closing(sqlite3.connect(old / name, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerError, match="is locked by another process"):
                Ledger.migrate(old / name, tmp_path / "new.db", timeout=0.1)
        assert not (tmp_path / "new.db").exists()
    Ledger.migrate(old / name, tmp_path / "new.db", timeout=0.1).verify()


CARRYING = """
import sys
from batchdp.ledger import Ledger, file

carry_over = file.carry_over

def told(connection, path):
    carry_over(connection, path)
    print("now", flush=True)

file.carry_over = told
Ledger.migrate(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("milliseconds", [0, 5, 10, 20, 30, 40, 60, 1000])
def test_whoever_is_killed_leaves_all_in_one_of_the_two_files(milliseconds: int, old: Path, tmp_path: Path) -> None:
    path, new = old / "0.2.0/budget.db", tmp_path / "new.db"
    command = [sys.executable, "-c", CARRYING, str(path), str(new)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGKILL)
    try:
        ledger = Ledger.open(new)
    except LedgerError:
        with pytest.raises(LedgerError, match=EARLIER):
            Ledger.open(path)
        ledger = Ledger.migrate(path, tmp_path / "newer.db")
    assert ledger.verify() == OF_0_2["head"]
    assert ledger.spent == OF_0_2["spent"]
    with pytest.raises(LedgerError, match="was carried over"):
        Ledger.open(path)


# ── plans and releases ──


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.plan")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_earlier_plan_is_refused_in_one_sentence(path: Path, tmp_path: Path) -> None:
    maker = r"0\.2\.0" if path.parent.name == "0.2.0" else r"0\.1 or 0\.2"
    message = rf"was made by batchdp {maker}, before 0\.3; plan again, or keep batchdp 0\.2 to read it$"
    with pytest.raises(PlanError, match=message):
        load_plan(path)
    Ledger.create(tmp_path / "budget.db", epsilon=1.0)
    given = ("-t", GOLDEN / "0.2.0/visits.csv", "-e", 0.5, "-l", tmp_path / "budget.db", "-o", tmp_path / "answers.csv")
    with unchanged(tmp_path):
        assert "plan again" in refused("answer", path, *given)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.release")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_earlier_release_is_refused_in_one_sentence(path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"was made by batchdp 0\..*, before 0\.3; keep batchdp 0\.2 to read it$"):
        load_release(path)
    assert run("report", path, "-o", "nowhere.html").code == 1


def test_a_cached_plan_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHDP_CACHE", str(tmp_path))
    domain = {"table": "t", "columns": {"a": {"values": ["x", "y"]}}}
    asked: dict[str, Any] = {"sql": "SELECT COUNT(*) AS n FROM t", "domain": domain}
    made: Any = plan(**asked)
    (cached,) = tmp_path.iterdir()
    replace(made, strategy=replace(made.strategy, method="remembered")).save(cached)
    assert plan(**asked).strategy.method == "remembered"
    replace(made, planner="0.1.0", strategy=replace(made.strategy, method="remembered")).save(cached)
    assert plan(**asked).strategy.method == made.strategy.method
    assert load_plan(cached).planner == made.planner
