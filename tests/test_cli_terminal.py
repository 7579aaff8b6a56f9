"""On a terminal, on a terminal without UTF-8, in a pipe, and when interrupted: in processes of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

import batchdp
from commands import DOMAIN, copied, environment, make_study

ANSWER = ["answer", "pure.plan", "--table", "visits.csv", "--epsilon", "0.5", "--ledger", "budget.db"]
ANSWER += ["-o", "answers.csv"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_study(folder)
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return copied(made, tmp_path)


def started(study: Path, arguments: list[str], terminal: int, stdout: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "batchdp", *arguments],
        cwd=study,
        env=environment(study, COLUMNS="100", LINES="40", PYTHONUTF8="1"),
        stdin=terminal,
        stdout=terminal if stdout is None else stdout,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
    )


def on_terminal(
    study: Path, *arguments: str, replies: dict[str, str] | None = None, stdout: int | None = None
) -> tuple[int, str]:
    """The exit code and what was seen; a reply is typed once the text before it is there."""
    ours, theirs = pty.openpty()
    process = started(study, list(arguments), theirs, stdout)
    os.close(theirs)
    waiting = dict(replies or {})
    seen, end = "", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # nobody has the terminal any more
                break
            seen += part.decode(errors="replace")
        for text in [text for text in waiting if text in seen]:
            os.write(ours, waiting.pop(text).encode())
    os.close(ours)
    return process.wait(30), seen


def piped(study: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "batchdp", *arguments],
        cwd=study,
        env=environment(study, **environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


# ── Asking ──


@pytest.mark.parametrize(
    "reply", ["n\n", *(pytest.param(reply, marks=pytest.mark.slow) for reply in ("\n", "\x04", "what\n"))]
)
def test_without_a_yes_nothing_is_spent(study: Path, reply: str) -> None:
    code, seen = on_terminal(study, *ANSWER, replies={"[y/N]": reply})
    assert code == 1
    assert "Spend ε = 0.5 of the 1 left in budget.db? 0.5 will remain." in seen
    assert "nothing was spent" in seen
    assert batchdp.Ledger.open(study / "budget.db").history() == ()
    assert not (study / "answers.csv").exists()


@pytest.mark.slow
def test_with_a_yes_it_goes_on_in_colour(study: Path) -> None:
    code, seen = on_terminal(study, *ANSWER, replies={"[y/N]": "y\n"})
    assert code == 0
    assert "\33[" in seen
    assert "6 private answers" in seen
    assert batchdp.Ledger.open(study / "budget.db").spent == 0.5


@pytest.mark.slow
def test_yes_never_asks_and_a_stored_release_is_not_asked_for(study: Path) -> None:
    code, seen = on_terminal(study, *ANSWER, "--yes", "--release-id", "one")
    assert (code, "Spend" in seen) == (0, False)
    code, seen = on_terminal(study, *ANSWER, "--release-id", "one")
    assert (code, "Spend" in seen) == (0, False)
    assert batchdp.Ledger.open(study / "budget.db").spent == 0.5


@pytest.mark.slow
def test_what_would_be_refused_is_refused_without_a_question(study: Path) -> None:
    for wrong in ({"0.5": "3"}, {"0.5": "nan"}, {"visits.csv": "missing.csv"}, {"pure.plan": "zcdp.plan"}):
        code, seen = on_terminal(study, *(wrong.get(word, word) for word in ANSWER))
        assert (code, "Spend" in seen) == (1, False)
        assert "\33[1;31mbatchdp:\33[0m" in seen
    assert batchdp.Ledger.open(study / "budget.db").spent == 0


@pytest.mark.slow
def test_the_question_names_what_another_unit_costs(study: Path) -> None:
    batchdp.Ledger.create(study / "rho.db", rho=1.0)
    words = [{"budget.db": "rho.db"}.get(word, word) for word in ANSWER]
    code, seen = on_terminal(study, *words, replies={"[y/N]": "y\n"})
    assert code == 0
    asked = re.search(r"which costs ρ = (0\.10\d*), of the 1 left in rho\.db\? (0\.89\d*) will", " ".join(seen.split()))
    assert asked is not None
    assert float(asked[1]) + float(asked[2]) == pytest.approx(1, abs=1e-3)


def test_a_script_must_say_that_it_means_to_spend(study: Path) -> None:
    done = piped(study, *ANSWER, PYTHONUTF8="1")
    said = "there is no terminal to ask at before ε = 0.5 of the 1 left in budget.db is spent; add --yes to spend it"
    assert (done.returncode, done.stdout) == (1, b"")
    assert said in done.stderr.decode()
    assert batchdp.Ledger.open(study / "budget.db").history() == ()
    assert not (study / "answers.csv").exists()


def test_a_script_that_says_yes_is_not_asked_and_a_repeat_needs_no_yes(study: Path) -> None:
    done = piped(study, *ANSWER, "--yes", "--release-id", "one")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\33" not in done.stdout
    assert piped(study, *ANSWER, "--release-id", "one").returncode == 0
    assert batchdp.Ledger.open(study / "budget.db").spent == 0.5


# ── Progress ──


@pytest.mark.slow
def test_progress_is_drawn_on_a_terminal_and_kept_out_of_a_file(study: Path) -> None:
    plan = ("plan", "queries.sql", "-d", "domain.toml", "-o", "x.plan", "--no-cache")
    with (study / "out.txt").open("wb") as file:
        code, seen = on_terminal(study, *plan, stdout=file.fileno())
    assert code == 0
    assert re.search("Planning|Optimising", seen)
    written = (study / "out.txt").read_text(encoding="utf-8")
    assert "Written to x.plan" in written
    assert "\33" not in written
    assert "Written to x.plan" not in seen


# ── Ctrl-C ──


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_ctrl_c_ends_in_one_line(study: Path) -> None:
    ledger = study / "budget.db"
    with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")  # for which the command waits
        process = subprocess.Popen(
            [sys.executable, "-m", "batchdp", *ANSWER, "--yes"],
            cwd=study,
            env=environment(study),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while not holds(process.pid, ledger):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"")
    assert err in (b"batchdp: interrupted\n", b"batchdp: interrupted; nothing was spent\n")
    assert batchdp.Ledger.open(ledger).history() == ()


def holds(process: int, path: Path) -> bool:
    """Whether a process has a file open."""
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if file.readlink() == path.resolve():
                return True
    return False


@pytest.mark.slow
def test_ctrl_c_instead_of_an_answer(study: Path) -> None:
    code, seen = on_terminal(study, *ANSWER, replies={"[y/N]": "\x03"})
    assert code == 130
    assert "interrupted; nothing was spent" in seen
    assert batchdp.Ledger.open(study / "budget.db").history() == ()


# ── Pipes and encodings ──


@pytest.mark.parametrize(
    "arguments", [["budget", "budget.db", "--json"], pytest.param([*ANSWER, "-y"], marks=pytest.mark.slow)]
)
def test_a_reader_that_leaves_is_no_error(study: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "batchdp", *arguments],
        cwd=study,
        env=environment(study),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    if arguments[0] == "answer":
        assert (study / "answers.csv").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_the_output(study: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "batchdp", "budget", "budget.db"],
            cwd=study,
            env=environment(study),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"batchdp: No space left on device\n")


@pytest.mark.parametrize(
    "environ",
    [
        {"PYTHONIOENCODING": "ascii"},
        pytest.param({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, marks=pytest.mark.slow),
    ],
)
def test_a_terminal_without_greek_letters(study: Path, environ: dict[str, str]) -> None:
    done = piped(study, "budget", "budget.db", **environ)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"epsilon = 1 in all, 0 spent, 1 left.\n"
    done = piped(study, "budget", "ø.db", **environ)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_tables_and_help_on_a_terminal_without_greek_letters(study: Path) -> None:
    (study / "greek.toml").write_text(DOMAIN.replace("north", "nørth"), encoding="utf-8")
    plan = ("plan", "queries.sql", "-d", "greek.toml", "-o", "x.plan", "--seconds", "1")
    done = piped(study, *plan, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode("ascii")
    assert "at epsilon = 1" in shown
    assert "+/-" in shown
    assert "n?rth" in shown
    assert piped(study, "plan", "--help", PYTHONIOENCODING="ascii").returncode == 0
