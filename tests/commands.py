"""Running the command line in this process, and a small study to run it on."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchdp.cli import main
from batchdp.ledger import Ledger

DOMAIN = """\
table = "visits"
[privacy]
max_rows = 1_000_000
[columns.clinic]
values = ["north", "south"]
[columns.age]
range = [0, 120]
bins = [0, 18, 65]
"""
QUERIES = """\
SELECT COUNT(*) AS total FROM visits;
SELECT clinic, COUNT(*) AS visits FROM visits GROUP BY clinic;
SELECT age, COUNT(*) AS aged FROM visits GROUP BY age;
"""
RECORDS = "clinic,age\n" + "north,30\n" * 400 + "south,70\n" * 300 + "south,5\n" * 200


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Text(io.StringIO):
    encoding = "utf-8"


def run(*arguments: object, program: Callable[[], None] = main) -> Done:
    """The command line with these arguments, in this process; or another program's."""
    out, err = Text(), Text()
    before = sys.argv
    sys.argv = ["batchdp", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            program()
    finally:
        sys.argv = before
    code = ended.value.code
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())


def succeeds(*arguments: object, program: Callable[[], None] = main) -> str:
    """What a command prints that must succeed, with nothing on stderr."""
    done = run(*arguments, program=program)
    assert (done.code, done.err) == (0, "")
    return done.out


def refused(*arguments: object, code: int = 1, program: Callable[[], None] = main) -> str:
    """The one line of a command that must fail, without its beginning."""
    done = run(*arguments, program=program)
    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("batchdp: ")
    assert done.err.endswith("\n")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert "please report" not in done.err
    return done.err.removeprefix("batchdp: ").rstrip("\n")


def contents(folder: Path) -> dict[str, str]:
    """A fingerprint of every file; a ledger's journal may come and go."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith("-journal")
    }


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Fails if any file in the folder is another one afterwards."""
    before = contents(folder)
    yield
    assert contents(folder) == before


def make_study(folder: Path) -> None:
    """Files of a study, with plans for both kinds of noise and an untouched ledger."""
    (folder / "domain.toml").write_text(DOMAIN)
    (folder / "queries.sql").write_text(QUERIES)
    (folder / "visits.csv").write_text(RECORDS)
    for privacy in ("pure", "zcdp"):
        plan = ("plan", folder / "queries.sql", "--domain", folder / "domain.toml", "-o", folder / f"{privacy}.plan")
        succeeds(*plan, "--privacy", privacy, "--seconds", 1)
    Ledger.create(folder / "budget.db", epsilon=1.0)


def copied(study: Path, folder: Path) -> Path:
    """A copy to work on."""
    shutil.copytree(study, folder, dirs_exist_ok=True)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """For a process of its own, in a terminal of a known size."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "OPENBLAS_NUM_THREADS": "1", "BATCHDP_CACHE": str(folder / "cache"), "TERM": "xterm", **more}
