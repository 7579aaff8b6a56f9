from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp.errors import BatchDPError, BudgetError, LedgerError, PrivacyParameterError
from batchdp.ledger import Entry, Ledger, Reservation, StoredRelease, file
from batchdp.ledger.account import Account
from batchdp.ledger.books import GUARDS, VERSION, Books
from batchdp.ledger.chain import MOST_SHOWN, PLACES, SHOWN, Event, as_text
from batchdp.privacy import GAUSSIAN, LAPLACE, MOST, Budget, Noise, round_down, round_up, shortest
from test_migration import as_of

ROOT = Path(__file__).parents[1]
CANARY = b"exact count 8675309"
ASKED: dict[str, Any] = {"plan_digest": "plan-1", "table": "patients"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget ledger?100%#1.db"  # characters that a URI takes for its own


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger.create(path, epsilon=3.0)


def reserved(ledger: Ledger, release_id: str, **asked: Any) -> Reservation:
    reservation = ledger.reserve(release_id, **(ASKED | ({"epsilon": 0.5} if not asked else {}) | asked))
    assert isinstance(reservation, Reservation)
    return reservation


def released(ledger: Ledger, release_id: str, output: bytes = CANARY) -> StoredRelease:
    return ledger.complete(reserved(ledger, release_id), output)


# Accounting


def grant(total: Budget) -> Fraction:
    """What a ledger with this total grants in all."""
    return Account.of(total).total


def charge(asked: Budget, ledger: Noise) -> Fraction:
    """What a ledger that counts in the unit of this noise charges."""
    due = Account.of(Budget(ledger, 1)).charge(asked)[ledger.unit]
    assert due is not None
    return due


@given(amount=st.floats(min_value=5e-324, max_value=MOST))
def test_a_float_is_charged_and_granted_as_its_shortest_decimal_number(amount: float) -> None:
    for noise in (LAPLACE, GAUSSIAN):
        asked = Budget(noise, amount)
        assert grant(asked) == charge(asked, noise) == Fraction(Decimal(repr(amount)))
    assert charge(Budget(LAPLACE, amount), GAUSSIAN) == Fraction(Decimal(repr(amount))) ** 2 / 2


@given(amount=st.fractions(min_value=Fraction(1, 10**300), max_value=MOST, max_denominator=10**300))
def test_a_total_is_never_rounded_up_and_a_charge_never_down(amount: Fraction) -> None:
    asked = Budget(LAPLACE, amount)
    assert 0 <= amount - grant(asked) < Fraction(1, 10**PLACES)
    assert 0 <= charge(asked, LAPLACE) - amount < Fraction(1, 10**PLACES)


@given(amount=st.fractions(min_value=0, max_value=MOST))
def test_what_is_left_can_be_asked_for_and_amounts_print_exactly_or_with_dots(amount: Fraction) -> None:
    below, above = round_down(amount), round_up(amount)
    assert shortest(below) <= amount <= shortest(above) <= shortest(math.nextafter(below, math.inf))
    shown = as_text(amount)
    read = Fraction(shown.replace("…", ""))
    assert 0 <= amount - read <= amount / 10 ** (SHOWN - 1)
    assert ("…" in shown) == (read != amount)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0.5, "0.5"),
        (1, "1"),
        (0.1, "0.1"),
        (Decimal("0.1"), "0.1"),
        (Decimal("0.1000000000000000000001"), "0.1…"),
        (Fraction(1, 3), f"0.{'3' * SHOWN}…"),
        (np.float32(0.5), "0.5"),
        (np.longdouble(0.5), "0.5"),
        (np.int64(2), "2"),
        (1e-10, "1e-10"),
        (Fraction(1, 3 * 10**20), f"3.{'3' * (SHOWN - 1)}…e-21"),
        (MOST, str(MOST)),
    ],
)
def test_amounts_of_every_kind_are_exact_and_short(amount: Any, expected: str) -> None:
    assert as_text(charge(Budget(LAPLACE, amount), LAPLACE)) == expected


def test_a_refusal_shows_as_many_digits_as_tell_what_is_asked_from_what_is_left(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1)
    with pytest.raises(BudgetError, match=r"1\.00000000000000000001 is requested, 1 is left"):
        ledger.reserve("a", epsilon=Decimal("1.00000000000000000001"), plan_digest="p", table="t")
    with pytest.raises(BudgetError) as refused:
        ledger.reserve("b", epsilon=Fraction(10, 7), plan_digest="p", table="t")
    assert "1.428571428… is requested" in str(refused.value)
    thirds = Ledger.create(tmp_path / "thirds", epsilon=Fraction(2, 3))
    thirds.reserve("a", epsilon=Fraction(1, 3), plan_digest="p", table="t")
    with pytest.raises(BudgetError, match="more than is left") as refused:  # by one in the last of 650 places
        thirds.reserve("b", epsilon=Fraction(1, 3), plan_digest="p", table="t")
    assert max(map(len, str(refused.value).split())) <= MOST_SHOWN + len("0.…")


@pytest.mark.parametrize("odd", [Decimal("sNaN"), Decimal("NaN"), 10**400, [1], -1], ids=repr)
def test_odd_numbers_and_names_are_refused_by_name_at_every_door(odd: Any, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1)
    asked: dict[str, Any] = {"epsilon": 0.1, "plan_digest": "p", "table": "t"}
    for attempt in (
        lambda: Ledger.create(tmp_path / "new", epsilon=1, delta=odd),
        lambda: Ledger.migrate(tmp_path / "ledger", tmp_path / "new", delta=odd),
        lambda: ledger.share("a", odd),
        lambda: ledger.epsilon_at(odd),
        lambda: ledger.reserve("a", scale=odd, **asked),
        lambda: ledger.check_left(Budget(LAPLACE, 0.1), share=odd),
        lambda: ledger.remaining_for("pure", share=odd),
        lambda: ledger.is_used(odd),
    ):
        with pytest.raises(BatchDPError):
            attempt()
    with pytest.raises(BudgetError, match="share='b' is not in this ledger"):
        ledger.remaining_for("pure", share="b")
    assert ledger.history() == ()


BAD_NUMBERS: list[Any] = [
    0,
    0.0,
    -1.0,
    math.nan,
    math.inf,
    -math.inf,
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("1e-400"),
    Fraction(-1, 3),
    1e10,
    10**400,
    True,
    np.True_,
    "0.5",
    b"1",
    1j,
    [0.5],
]


@pytest.mark.parametrize("amount", BAD_NUMBERS, ids=lambda amount: repr(amount)[:20])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_bad_numbers_are_refused_everywhere_and_leave_no_trace(
    unit: str, amount: Any, ledger: Ledger, tmp_path: Path
) -> None:
    head = ledger.head
    with pytest.raises(PrivacyParameterError, match=f"{unit}="):
        ledger.reserve("a", **{unit: amount}, **ASKED)
    with pytest.raises(PrivacyParameterError, match=f"{unit}="):
        Ledger.create(tmp_path / "new", **{unit: amount})
    assert ledger.head == head
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("both", [{}, {"epsilon": 1.0, "rho": 1.0}])
def test_exactly_one_of_epsilon_and_rho_is_given(both: dict[str, Any], ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(PrivacyParameterError, match="exactly one"):
        Ledger.create(tmp_path / "new", **both)
    with pytest.raises(PrivacyParameterError, match="exactly one"):
        ledger.reserve("a", **both, **ASKED)


# Spending


def test_a_new_ledger_is_unspent(ledger: Ledger, path: Path) -> None:
    assert (ledger.unit, ledger.total, ledger.spent, ledger.remaining) == ("epsilon", 3.0, 0.0, 3.0)
    assert ledger.history() == ()
    assert ledger.verify() == ledger.head == Ledger.open(path).head
    assert ledger.path == path
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_spend_then_its_output(ledger: Ledger, path: Path) -> None:
    reservation = reserved(ledger, "first")
    assert reservation == Reservation("first", 0.5, ledger.head)
    assert Ledger.open(path).spent == 0.5
    assert ledger.history()[0].state == "reserved"

    stored = ledger.complete(reservation, CANARY)
    assert stored == StoredRelease("first", CANARY, 0.5, reservation.head)
    assert (ledger.spent, ledger.remaining) == (0.5, 2.5)
    (entry,) = ledger.history()
    assert entry == Entry(
        "first", "plan-1", "patients", "epsilon", 0.5, 0.5, entry.time, "released", None, reservation.head
    )
    assert abs(datetime.fromisoformat(entry.time) - datetime.now(UTC)) < timedelta(minutes=1)
    assert ledger.verify(reservation.head) == ledger.head != reservation.head


def test_an_id_that_was_released_gives_its_stored_output_and_costs_nothing(ledger: Ledger, path: Path) -> None:
    stored = released(ledger, "first")
    head = ledger.head
    assert Ledger.open(path).reserve("first", epsilon=0.5, **ASKED) == stored
    assert (ledger.spent, ledger.head) == (0.5, head)


def test_the_stored_output_is_given_even_when_nothing_is_left(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=0.5)
    stored = released(ledger, "all of it")
    assert ledger.remaining == 0
    assert ledger.reserve("all of it", epsilon=0.5, **ASKED) == stored


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"epsilon": 0.25}, "requested=0.5, not 0.25"),
        ({"epsilon": 0.5, "plan_digest": "plan-2"}, "plan_digest='plan-1'"),
        ({"epsilon": 0.5, "table": "visits"}, "table='patients'"),
        ({"epsilon": Decimal("0.50000000000000000001")}, "requested=0.5, not 0.5000000000000001"),
    ],
)
def test_an_id_asked_again_for_something_else_is_refused(other: dict[str, Any], named: str, ledger: Ledger) -> None:
    released(ledger, "first")
    with pytest.raises(BudgetError, match=named):
        ledger.reserve("first", **(ASKED | other))
    assert ledger.spent == 0.5


def test_an_interrupted_release_stays_spent_and_its_id_is_not_used_again(ledger: Ledger) -> None:
    reserved(ledger, "first")
    with pytest.raises(BudgetError, match=r"'first' was charged .* no output .* stays spent, choose a new release_id"):
        ledger.reserve("first", epsilon=0.5, **ASKED)
    assert ledger.spent == 0.5


def test_a_reservation_is_completed_once(ledger: Ledger) -> None:
    reservation = reserved(ledger, "first")
    stored = ledger.complete(reservation, CANARY)
    with pytest.raises(BudgetError, match="completed already"):
        ledger.complete(reservation, b"fresh noise")
    assert ledger.reserve("first", epsilon=0.5, **ASKED) == stored


def test_a_reservation_counts_only_in_its_own_ledger(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger.create(tmp_path / "other", epsilon=1.0)
    reservation = reserved(other, "first")
    for setting in (lambda: None, lambda: reserved(ledger, "first")):
        setting()
        with pytest.raises(BudgetError, match="not reserved in this ledger"):
            ledger.complete(reservation, CANARY)


def test_more_than_is_left_is_refused_with_the_figures(ledger: Ledger) -> None:
    reserved(ledger, "first")
    head = ledger.head
    sentence = (
        r"epsilon=2\.75 is more than is left: 0\.5 of epsilon 3 is spent, 2\.75 is requested, 2\.5 is left; "
        r"ask for at most epsilon 2\.5"
    )
    with pytest.raises(BudgetError, match=sentence):
        ledger.reserve("second", epsilon=2.75, **ASKED)
    assert (ledger.spent, ledger.head) == (0.5, head)
    reserved(ledger, "second", epsilon=2.5)  # the id is still new, and the rest can be had to the last digit
    assert ledger.remaining == 0
    with pytest.raises(BudgetError, match="0 is left"):
        ledger.reserve("third", epsilon=1e-12, **ASKED)


def test_what_remains_can_be_spent_in_one_go(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=1.0)
    reserved(ledger, "first", epsilon=0.6)
    reserved(ledger, "second", epsilon=ledger.remaining)
    assert (ledger.spent, ledger.remaining) == (1.0, 0.0)


def test_the_whole_total_can_be_spent_at_once_whatever_its_last_digit(tmp_path: Path) -> None:
    for total in (0.1, 0.3, 0.7, 1.1, 1e-9, 1 / 3):
        ledger = Ledger.create(tmp_path / str(total), epsilon=total)
        reserved(ledger, "all", epsilon=total)
        assert ledger.remaining == 0


def test_a_ledger_grants_its_decimal_total_and_not_a_bit_more(tmp_path: Path) -> None:
    for written in (float, Decimal):
        ledger = Ledger.create(tmp_path / written.__name__, epsilon=written("0.1"))
        for i in range(10):
            reserved(ledger, str(i), epsilon=written("0.01"))
        assert (ledger.total, ledger.spent, ledger.remaining) == (0.1, 0.1, 0)
        with pytest.raises(BudgetError, match=r"0\.1 of epsilon 0\.1 is spent, 1e-12 is requested"):
            ledger.reserve("one more", epsilon=written("1e-12"), **ASKED)
        assert ledger.verify() == ledger.head


def test_amounts_below_a_billionth_are_counted(tmp_path: Path) -> None:
    tiny = Ledger.create(tmp_path / "tiny", epsilon=1e-10)
    with pytest.raises(BudgetError, match=r"1e-9 is requested, 1e-10 is left"):
        tiny.reserve("first", epsilon=1e-9, **ASKED)
    for i in range(4):
        reserved(tiny, str(i), epsilon=2.5e-11)
    assert (tiny.total, tiny.spent, tiny.remaining) == (1e-10, 1e-10, 0)
    third = Ledger.create(tmp_path / "third", epsilon=Fraction(1, 3))
    with pytest.raises(BudgetError, match="more than is left"):
        third.reserve("all", epsilon=Fraction(1, 3), **ASKED)  # a charge is rounded up, a total down
    reserved(third, "most", epsilon=third.remaining)
    squares = Ledger.create(tmp_path / "squares", rho=1)
    assert reserved(squares, "first", epsilon=1e-7).charged == 5e-15
    assert squares.exact_remaining == 1 - Fraction(5, 10**15)
    for ledger in (tiny, third, squares):
        assert Ledger.open(ledger.path).verify() == ledger.head


def test_a_ledger_in_billionths_keeps_what_it_granted(path: Path) -> None:
    """As version 3 made them: the float 0.1 was 0.100000001, as a total and as a charge."""
    first = Event.create("epsilon", 0.1, Fraction(100_000_001, 10**9))
    spend = first.reserve(release_id="first", unit="epsilon", requested=0.1, cost=Fraction(100_000_001, 10**9), **ASKED)
    output = spend.release(spend, CANARY)
    written = file.LedgerFile(path.with_name("written.db"), 1.0)
    written.create(first)
    with written.writing() as books:
        books.append(spend)
        books.append(output, CANARY)
    as_of(3, Ledger.open(written.path), path)
    with pytest.raises(LedgerError, match="--migrate"):
        Ledger.open(path)
    ledger = Ledger.migrate(path, path.with_name("carried.db"))
    assert (ledger.total, ledger.spent, ledger.remaining) == (0.100000001, 0.100000001, 0)
    again = ledger.reserve("first", epsilon=0.1, **ASKED)  # which would cost less now
    assert isinstance(again, StoredRelease)
    assert again.output == CANARY
    with pytest.raises(BudgetError, match="0 is left"):
        ledger.reserve("second", epsilon=1e-12, **ASKED)
    assert ledger.verify() == output.hash


def test_a_ledger_in_rho(path: Path) -> None:
    ledger = Ledger.create(path, rho=0.25)
    reserved(ledger, "gaussian", rho=0.125)
    laplace = reserved(ledger, "laplace", epsilon=0.25)
    assert (ledger.unit, laplace.charged, ledger.spent) == ("rho", 0.03125, 0.15625)
    assert [(entry.unit, entry.requested, entry.charged) for entry in ledger.history()] == [
        ("rho", 0.125, 0.125),
        ("epsilon", 0.25, 0.03125),
    ]
    with pytest.raises(BudgetError, match=r"epsilon=1\.0, which costs rho 0\.5, is more than is left: 0\.15625 of rho"):
        ledger.reserve("too much", epsilon=1.0, **ASKED)


def test_rho_is_not_charged_to_a_pure_ledger(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match=r"rho=0\.125 .* no pure epsilon guarantee; ask for epsilon="):
        ledger.reserve("first", rho=0.125, **ASKED)
    assert ledger.spent == 0


@pytest.mark.parametrize("bad", ["", "two\nlines", "\ud800", "x" * 1001, None, 7, b"x"], ids=lambda bad: repr(bad)[:10])
@pytest.mark.parametrize("name", ["release_id", "plan_digest", "table"])
def test_names_are_text_that_can_be_printed(name: str, bad: Any, ledger: Ledger) -> None:
    asked = {"release_id": "first"} | ASKED | {name: bad}
    with pytest.raises(BudgetError, match=f"{name}=.* printable"):
        ledger.reserve(epsilon=0.5, **asked)
    assert ledger.spent == 0


@pytest.mark.parametrize("bad", [CANARY.decode(), None, bytearray(CANARY), [CANARY]])
def test_an_output_is_bytes_and_is_never_quoted(bad: Any, ledger: Ledger) -> None:
    reservation = reserved(ledger, "first")
    with pytest.raises(BudgetError, match="output is not bytes") as caught:
        ledger.complete(reservation, bad)
    assert "8675309" not in str(caught.value)
    ledger.complete(reservation, b"")  # still open


def test_only_a_reservation_is_completed(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="StoredRelease"):
        ledger.complete(released(ledger, "first"), b"")  # type: ignore[arg-type]


def test_nothing_that_is_shown_holds_an_output(ledger: Ledger) -> None:
    stored = released(ledger, "first")
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("first", epsilon=1.0, **ASKED)
    shown = repr([ledger, stored, ledger.history(), caught.value])
    assert "8675309" not in shown
    assert "0.5 of epsilon 3 spent, 2.5 left" in repr(ledger)


def test_values_are_frozen(ledger: Ledger) -> None:
    for value in (reserved(ledger, "first"), released(ledger, "second"), ledger.history()[0]):
        with pytest.raises(AttributeError):
            value.release_id = "other"  # type: ignore[misc]


# Processes, threads, forks, crashes


@pytest.mark.slow
def test_kills_and_processes_at_once_by_the_benchmark() -> None:
    """The long version of this is `python benchmarks/ledger.py`."""
    command = [sys.executable, "-W", "error", str(ROOT / "benchmarks/ledger.py"), "--spends", "20"]
    sizes = ["--kills", "60", "--processes", "4", "--attempts", "50", "--long", "200", "--seed", str(os.getpid())]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    parts = map(json.loads, done.stderr.splitlines())  # as each ended, and no warning between them
    assert {name: value for part in parts for name, value in part.items()} == figures
    assert figures["kills"] == 60  # ten of them of a ledger of (ε, δ) with a share
    assert figures["outputs seen"] > 0
    assert figures["outputs without a spend"] == 0
    assert (figures["attempts"], figures["granted"], figures["overspend"]) == (200, 100, 0)
    assert figures["overspend of shares"] == 0


@pytest.mark.parametrize("held", [False, True])
def test_threads_share_a_ledger(held: bool, path: Path) -> None:
    ledger = Ledger.create(path, epsilon=5.0)

    def attempt(i: int) -> bool:
        try:
            return ledger.complete(reserved(ledger, f"thread-{i}"), b"output").charged == 0.5
        except BudgetError:
            return False

    with ThreadPoolExecutor(8) as pool:
        if held:
            with ledger:
                granted = sum(pool.map(attempt, range(20)))
        else:
            granted = sum(pool.map(attempt, range(20)))
    assert granted == 10
    assert ledger.spent == 5.0
    ledger.verify()


def test_the_same_id_at_once_is_charged_once(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=5.0)
    barrier = threading.Barrier(6)

    def attempt(_: int) -> bool:
        barrier.wait()
        try:
            return isinstance(ledger.reserve("same", epsilon=0.5, **ASKED), Reservation)
        except BudgetError:
            return False

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1
    assert ledger.spent == 0.5


def test_what_was_granted_is_in_the_one_file_inside_with_too(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    with ledger, ledger:  # may be nested
        reserved(ledger, "first")
        shutil.copy(path, tmp_path / "copy")
        assert Ledger.open(tmp_path / "copy").spent == 0.5
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, "copy"]


def test_a_ledger_that_is_moved_after_a_kill_forgets_nothing(path: Path, tmp_path: Path) -> None:
    program = f"""
import os, signal
from batchdp.ledger import Ledger
with Ledger.create({str(path)!r}, epsilon=3.0) as ledger:
    ledger.reserve("first", epsilon=0.875, plan_digest="plan", table="table")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    path.rename(tmp_path / "moved")
    moved = Ledger.open(tmp_path / "moved")
    assert moved.spent == 0.875
    moved.verify()


def test_a_fork_amid_a_hold_spends_from_the_same_budget(path: Path) -> None:
    program = f"""
import os
from batchdp.ledger import Ledger
with Ledger.create({str(path)!r}, epsilon=3.0) as ledger:
    ledger.reserve("before", epsilon=0.5, plan_digest="plan", table="table")
    child = os.fork()
    ledger.reserve(f"after {{child == 0}}", epsilon=0.5, plan_digest="plan", table="table")
    if child:
        assert os.waitpid(child, 0)[1] == 0
assert ledger.verify()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
    assert sorted(entry.release_id for entry in Ledger.open(path).history()) == ["after False", "after True", "before"]


def test_what_is_committed_is_synced(ledger: Ledger) -> None:
    with ledger._file._connect() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA: the folder too
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_entries_can_neither_be_changed_nor_deleted(ledger: Ledger) -> None:
    reserved(ledger, "first")
    with ledger._file._connect() as connection:
        for statement in ("UPDATE event SET charged = 0", "DELETE FROM event"):
            with pytest.raises(sqlite3.IntegrityError, match="entries stay"):
                connection.execute(statement)
    ledger.verify()


# Tampering


@pytest.fixture
def spent(ledger: Ledger) -> Ledger:
    """Three spends: two with outputs, one interrupted."""
    released(ledger, "first")
    released(ledger, "second", b"other")
    reserved(ledger, "third")
    return ledger


SEALED = "INSERT OR REPLACE INTO seal SELECT 1, hash FROM event ORDER BY number DESC LIMIT 1"


def tamper(ledger: Ledger, *statements: str) -> None:
    """As someone would who knows the schema: triggers off, edit, triggers on, a fresh seal."""
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("DROP TRIGGER never_updated")
        connection.execute("DROP TRIGGER never_deleted")
        for statement in (*statements, *GUARDS[1:], SEALED):
            connection.execute(statement)


@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        ("UPDATE event SET charged = 1 WHERE number = 1", "entry 1 was changed"),
        ("UPDATE event SET remaining = 3000000000 WHERE number = 5", "entry 5 was changed"),
        ("UPDATE event SET table_name = 'visits' WHERE number = 3", "entry 3 was changed"),
        ("UPDATE event SET table_name = x'00' WHERE number = 3", "entry 3 was changed"),
        ("UPDATE event SET charged = 'none' WHERE number = 3", "entry 3 was changed"),
        ("UPDATE event SET hash = hash || '0' WHERE number = 2", "entry 2 was changed"),
        ("UPDATE event SET output = x'00' WHERE number = 2", "output stored with entry 2 was changed"),
        ("UPDATE event SET output = NULL WHERE number = 2", "output stored with entry 2 was changed"),
        ("UPDATE event SET output = x'00' WHERE number = 1", "output stored with entry 1 was changed"),
        ("DELETE FROM event WHERE number = 2", "entry 3 does not follow"),
        ("DELETE FROM event WHERE number = 0", "entry 1 does not follow"),
        ("DELETE FROM event", "entries are missing"),
    ],
)
def test_an_edit_is_found(edit: str, wrong: str, spent: Ledger) -> None:
    tamper(spent, edit)
    with pytest.raises(LedgerError, match=f"tampered with or damaged: .*{wrong}"):
        spent.verify()


def test_a_spend_is_refused_where_the_last_entry_was_edited(spent: Ledger) -> None:
    tamper(spent, "UPDATE event SET remaining = 3000000000 WHERE number = 5")
    with pytest.raises(LedgerError, match="entry 5 was changed"):
        spent.reserve("fourth", epsilon=0.5, **ASKED)


def test_an_edited_output_is_not_given(spent: Ledger) -> None:
    tamper(spent, "UPDATE event SET output = x'00' WHERE number = 2")
    with pytest.raises(LedgerError, match="output stored with entry 2 was changed"):
        spent.reserve("first", epsilon=0.5, **ASKED)


def test_a_deleted_end_is_found_by_a_printed_head(spent: Ledger) -> None:
    printed = spent.head
    tamper(spent, "DELETE FROM event WHERE number = 5")
    spent.verify()  # what is left is a chain
    with pytest.raises(LedgerError, match="not in its chain"):
        spent.verify(printed)


def test_an_older_copy_is_found_by_a_printed_head(spent: Ledger, tmp_path: Path) -> None:
    early = spent.head
    shutil.copy(spent.path, tmp_path / "copy")
    late = reserved(spent, "fourth").head
    assert spent.verify(early) == spent.verify(late) == late
    os.replace(tmp_path / "copy", spent.path)
    assert spent.verify(early) == early
    with pytest.raises(LedgerError, match="edited or put back"):
        spent.verify(late)


def test_another_ledger_is_found_by_a_printed_head(spent: Ledger, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "new", epsilon=3.0)
    os.replace(tmp_path / "new", spent.path)
    with pytest.raises(LedgerError, match="edited or put back"):
        spent.verify("0" * 64)


def rechained(change: Callable[[list[dict[str, Any]]], None], ledger: Ledger) -> None:
    """Every hash computed anew after a change, as someone would who has read the source."""
    from batchdp.ledger.chain import START

    with ledger._file.reading() as books:
        rows = [vars(event) | {"output": books.output(event)} for event in books.all()]
    change(rows)
    previous = START
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        for statement in ("DROP TRIGGER never_updated", "DROP TRIGGER never_deleted", "DELETE FROM event"):
            connection.execute(statement)
        for row in rows:
            output = row.pop("output")
            event = Event(**(row | {"previous": previous}))
            previous = event.hash
            Books(connection).append(event, output)
        for statement in GUARDS[1:]:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda rows: rows[3].update(charged=1), "entry 3 does not add up"),
        (lambda rows: rows[5].update(remaining=3 * 10**9), "entry 5 does not add up"),
        (lambda rows: rows[5].update(kind="release", charged=0, remaining=2 * 10**9), "'third', which was never"),
        (lambda rows: rows[3].update(kind="create"), "entry 3 is out of place"),
        (lambda rows: rows[5].update(exact_remaining="2.9"), "entry 5 was changed"),
        (lambda rows: rows[3].update(exact_charged="0.4999999999"), "entry 3 does not add up"),
        (lambda rows: rows[3].update(exact_charged="1e400"), "entry 3 was changed"),
    ],
)
def test_a_forged_chain_must_still_add_up(change: Any, wrong: str, spent: Ledger) -> None:
    rechained(change, spent)
    with pytest.raises(LedgerError, match=wrong):
        spent.verify()


def test_a_perfect_forgery_is_found_by_a_printed_head_only(spent: Ledger) -> None:
    printed = spent.head
    rechained(lambda rows: rows[1].update(table="visits"), spent)
    spent.verify()
    with pytest.raises(LedgerError, match="not in its chain"):
        spent.verify(printed)


# Files that cannot be used


def not_a_database(path: Path) -> None:
    path.write_bytes(b"name,value\n" * 1000)


def empty(path: Path) -> None:
    path.touch()


def another_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE event (number INTEGER)")


def a_later_version(path: Path) -> None:
    Ledger.create(path, epsilon=3.0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")


def without_triggers(path: Path) -> None:
    Ledger.create(path, epsilon=3.0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER never_updated")


def with_a_trigger_that_drops_entries(path: Path) -> None:
    Ledger.create(path, epsilon=3.0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TRIGGER free BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END")


def truncated(path: Path) -> None:
    released(Ledger.create(path, epsilon=3.0), "first", bytes(20_000))
    os.truncate(path, 8192)


def cut_in_its_header(path: Path) -> None:
    Ledger.create(path, epsilon=3.0)
    os.truncate(path, 50)


def corrupt(path: Path) -> None:
    released(Ledger.create(path, epsilon=3.0), "first")
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 4096)


def with_an_unreadable_schema(path: Path) -> None:
    Ledger.create(path, epsilon=3.0)
    path.write_bytes(path.read_bytes().replace(b"CREATE UNIQUE", b"CREATE \xacNIQUE"))


def with_two_names(path: Path) -> None:
    Ledger.create(path, epsilon=3.0)
    os.link(path, path.with_name("second"))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "does not exist; create it with Ledger.create"),
        (Path.mkdir, "is not a file"),
        (not_a_database, "is not a ledger but some other file"),
        (empty, "is empty, not a ledger"),
        (another_database, "is an SQLite database but not a ledger"),
        (a_later_version, f"has schema version {VERSION + 1}"),
        (without_triggers, "was changed: its tables and triggers"),
        (with_a_trigger_that_drops_entries, "was changed: its tables and triggers"),
        (truncated, "is damaged or truncated"),
        (cut_in_its_header, "is damaged or truncated"),
        (corrupt, "is damaged or truncated"),
        (with_an_unreadable_schema, "is damaged or truncated"),
        (with_two_names, "has 2 names"),
    ],
)
def test_a_file_that_cannot_be_used(make: Callable[[Path], None], sentence: str, path: Path) -> None:
    make(path)
    before = sorted(path.parent.iterdir())
    with pytest.raises(LedgerError, match=sentence) as caught:
        Ledger.open(path)
    assert repr(str(path)) in str(caught.value)
    assert sorted(path.parent.iterdir()) == before  # opening creates nothing


def test_damage_after_opening_stops_spending(ledger: Ledger) -> None:
    ledger.path.unlink()
    for use in (lambda: ledger.spent, lambda: ledger.reserve("first", epsilon=0.5, **ASKED), ledger.verify):
        with pytest.raises(LedgerError, match="does not exist"):
            use()
    assert "cannot be read" in repr(ledger)
    assert not ledger.path.exists()


@settings(deadline=None)  # it waits for the disk
@given(position=st.integers(0, 4 * 4096 - 1), flip=st.integers(1, 255))
def test_no_flipped_byte_goes_by_unnoticed_or_breaks_the_exception_tree(
    position: int, flip: int, whole: tuple[bytes, StoredRelease]
) -> None:
    content, stored = bytearray(whole[0]), whole[1]
    content[position] ^= flip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        path.write_bytes(content)
        try:
            ledger = Ledger.open(path)
            ledger.verify(stored.head)
            again = ledger.reserve("first", epsilon=0.5, **ASKED)
            history = ledger.history()
        except LedgerError:
            return
        assert again == stored  # the byte was one that says nothing
        assert [entry.charged for entry in history] == [0.5]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, StoredRelease]:
    """The bytes of a ledger with one release."""
    ledger = Ledger.create(tmp_path_factory.mktemp("whole") / "ledger", epsilon=3.0)
    stored = released(ledger, "first")
    return ledger.path.read_bytes(), stored


def test_create_keeps_what_is_there(path: Path) -> None:
    for content in (b"", b"precious"):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="exists already; open it"):
            Ledger.create(path, epsilon=1.0)
        assert path.read_bytes() == content


def test_create_in_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file or directory"):
        Ledger.create(tmp_path / "missing" / "ledger", epsilon=1.0)


def test_create_that_fails_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "create_schema", lambda connection: connection.execute("no such statement"))
    with pytest.raises(LedgerError, match="cannot be used"):
        Ledger.create(path, epsilon=1.0)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("bad", [None, 7, "nul\0", b"\xff\0"])
def test_a_path_that_is_none(bad: Any) -> None:
    with pytest.raises(LedgerError, match="path="):
        Ledger.open(bad)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "30", True, None])
def test_a_timeout_that_is_none(bad: Any, path: Path) -> None:
    with pytest.raises(LedgerError, match="timeout="):
        Ledger.create(path, epsilon=1.0, timeout=bad)


def test_a_locked_file_refuses_spends_and_can_be_read(ledger: Ledger) -> None:
    impatient = Ledger.open(ledger.path, timeout=0.05)
    with ledger._file._connect() as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"is locked by another process; try again, .* timeout=0\.05 seconds"):
            impatient.reserve("first", epsilon=0.5, **ASKED)
        assert impatient.spent == 0
    reserved(impatient, "first")


@pytest.fixture
def full(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger that may not grow by another page."""
    connect = file.LedgerFile._connect

    @contextmanager
    def bounded(self: file.LedgerFile) -> Iterator[sqlite3.Connection]:
        with connect(self) as connection:
            # SQLite takes the present size if that is more.
            (most,) = connection.execute("PRAGMA max_page_count = 1").fetchone()
            assert (most,) == connection.execute("PRAGMA page_count").fetchone()
            yield connection

    monkeypatch.setattr(file.LedgerFile, "_connect", bounded)
    return ledger


def test_a_full_disk_refuses_outputs_and_then_spends(full: Ledger) -> None:
    reservation = reserved(full, "first")
    with pytest.raises(LedgerError, match="disk is full; free some space"):
        full.complete(reservation, bytes(900_000))
    assert full.history()[0].state == "reserved"
    granted = ["first"]

    def spend_on() -> None:
        while len(granted) < 100:
            granted.append(reserved(full, f"more-{len(granted)}", epsilon=0.015625).release_id)

    with pytest.raises(LedgerError, match="disk is full"):
        spend_on()
    assert [entry.release_id for entry in full.history()] == granted
    full.verify()


def hindered(*arguments: str | Path) -> list[str]:
    program = str(Path(__file__).with_name("ledger_hindered.py"))
    command = [sys.executable, "-W", "error", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_file_size_limit_amid_writes(ledger: Ledger) -> None:
    (said,) = hindered(ledger.path, "--bytes", "40000")
    assert "could not be read or written; the disk is full or failing, or the file is at a size limit" in said
    states = [entry.state for entry in ledger.history()]
    assert f"granted {len(states)} completed {states.count('released')}" in said
    assert len(states) > 1
    assert ledger.spent == 0.0078125 * len(states)
    ledger.verify()


def test_a_read_only_file_or_folder_can_be_read_but_not_spent_from() -> None:
    with tempfile.TemporaryDirectory() as root:  # pytest's own folders are closed to other users
        Path(root).chmod(0o755)
        paths = []
        for file_mode, folder_mode in ((0o444, 0o777), (0o666, 0o555), (0o444, 0o555)):
            folder = Path(root, f"{file_mode:o}-{folder_mode:o}")
            folder.mkdir()
            paths.append(folder / "ledger")
            released(Ledger.create(paths[-1], epsilon=3.0), "first")
            paths[-1].chmod(file_mode)
            folder.chmod(folder_mode)
        lines = hindered(*paths, "--unprivileged")
        for path, said in zip(paths, lines, strict=True):
            path.parent.chmod(0o700)
            assert "spent 0.5 entries 1 verified True" in said
            assert "is read-only, so nothing can be charged; make the file and its folder writable" in said
            assert "granted 0 completed 0" in said
            assert [entry.name for entry in path.parent.iterdir()] == ["ledger"]


def test_every_error_is_of_the_tree() -> None:
    assert issubclass(BudgetError, BatchDPError)
    assert issubclass(LedgerError, BatchDPError)
