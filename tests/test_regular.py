"""What users name must be a file with an end: a device or a pipe is refused at once, whatever reads it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchdp import Ledger, archive, load_plan, load_release
from batchdp.archive import open_regular
from batchdp.cli.files import read_matrix, read_workload
from batchdp.domain import as_domain, load_domain
from batchdp.domain.codebooks import read_codebook
from batchdp.engines import open_table
from batchdp.engines.schema import read_schema
from batchdp.errors import BatchDPError, LedgerError
from batchdp.plans.criteria import load_criteria
from batchdp.reports.dossier.about import about_text
from batchdp.reports.dossier.verifying import read_text
from cases import load_queries
from reproduction.datasets import read as read_counts

DOMAIN = as_domain({"table": "t", "columns": {"a": {"values": ["x"]}}})
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "plan": ("a.plan", load_plan),
    "release": ("a.release", load_release),
    "domain": ("domain.toml", load_domain),
    "queries": ("queries.sql", lambda path: load_queries(path, DOMAIN)),
    "criteria": ("wanted.toml", load_criteria),
    "codebook": ("book.json", lambda path: read_codebook(str(path))),
    "about": ("ABOUT.toml", about_text),
    "dossier": ("evidence.json", lambda path: read_text(path, 1000)),
    "ledger": ("budget.db", Ledger.open),
    "table": ("t.csv", lambda path: open_table(path, DOMAIN)),
    "zipped table": ("t.csv.gz", lambda path: open_table(path, DOMAIN)),
    "parquet": ("t.parquet", lambda path: open_table(path, DOMAIN)),
    "database": ("t.duckdb", lambda path: open_table(path, DOMAIN)),
    "schema": ("t.csv", lambda path: read_schema(str(path))),
    "matrix": ("W.npy", read_matrix),
    "sparse matrix": ("W.npz", read_matrix),
    "matrix as text": ("W.csv", read_matrix),
    "workload": ("W.csv", read_workload),
    "counts": ("counts.txt", read_counts),
}


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A reader that waits, or goes on for ever, is stopped."""

    def stop(*_: object) -> None:
        pytest.fail("it is still reading")  # no Exception, which a reader might take for a damaged file

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_refused_at_once(name: str, kind: str, tmp_path: Path) -> None:
    file, read = READERS[name]
    if kind == "pipe":
        os.mkfifo(tmp_path / file)
    else:
        (tmp_path / file).symlink_to("/dev/zero")
    with pytest.raises(BatchDPError):
        read(tmp_path / file)


def test_an_output_beside_a_ledger_that_became_a_pipe(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1)
    reserved = ledger.reserve("first", epsilon=1, plan_digest="plan", table="t")
    ledger.complete(reserved, bytes(2_000_000))  # type: ignore[arg-type]
    (output,) = (tmp_path / "budget.db.outputs").iterdir()
    output.unlink()
    os.mkfifo(output)
    for look in (lambda: ledger.stored("first"), ledger.verify):
        with pytest.raises(LedgerError):
            look()


def test_what_a_pipe_says_of_itself_and_what_others_say(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert archive.read_format(tmp_path / "pipe") is None
    for path, problem in ((tmp_path / "pipe", "not a regular file"), (tmp_path, "Is a directory")):
        with pytest.raises(OSError, match=problem), open_regular(path):
            pass
    with pytest.raises(TypeError), open_regular(0):  # type: ignore[arg-type]
        pass
    (tmp_path / "file").write_text("content")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
