"""A copy of the one file, whatever moment its pages are of, shows no less than was spent, or is refused."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchdp.errors import LedgerError
from batchdp.ledger import Ledger, Reservation

PAGE = 4096


def grown(path: Path, spends: int) -> list[tuple[float, bytes]]:
    """What the file was after each of so many spends, with what was spent then; most with an output."""
    ledger = Ledger.create(path, epsilon=1000.0)
    moments = []
    for i in range(spends):
        reservation = ledger.reserve(f"release {i}", epsilon=0.5, plan_digest="plan", table="table")
        assert isinstance(reservation, Reservation)
        if i % 3:
            ledger.complete(reservation, bytes(40 * (i % 50)))
        moments.append((ledger.spent, path.read_bytes()))
    return moments


def spent_in(path: Path) -> float | None:
    """None where the ledger is refused."""
    try:
        return Ledger.open(path).spent
    except LedgerError:
        return None


@pytest.mark.slow
def test_pages_of_different_moments_never_show_less_than_the_earliest(tmp_path: Path) -> None:
    moments = grown(tmp_path / "ledger", 120)
    rng = random.Random(0)
    opened = refused = 0
    for trial in range(1500):
        start = rng.randrange(len(moments))
        mixed = moments[start : start + rng.choice([2, 2, 2, 5, 30])]
        size = len(rng.choice(mixed)[1])
        pages = []
        for place in range(0, size, PAGE):
            content = rng.choice(mixed)[1][place : place + PAGE]
            pages.append(content or mixed[-1][1][place : place + PAGE])
        copy = tmp_path / f"copy {trial}"
        copy.write_bytes(b"".join(pages))
        spent = spent_in(copy)
        refused += spent is None
        opened += spent is not None
        assert spent is None or spent >= mixed[0][0]
        copy.unlink()
    assert opened > 100
    assert refused > 100


def test_a_file_whose_journal_was_left_behind_is_refused_or_whole(tmp_path: Path) -> None:
    """Killed amid its writes: the file alone, as `mv` takes it, and then the file with its journal."""
    path = tmp_path / "ledger"
    Ledger.create(path, epsilon=1000.0)
    program = f"""
from batchdp.ledger import Ledger
ledger, i = Ledger.open({str(path)!r}), 0
while True:
    ledger.reserve(f"{{__import__('os').getpid()}} {{i}}", epsilon=0.5, plan_digest="p" * 900, table="t" * 900)
    print(f"{{ledger.spent}}", flush=True)
    i += 1
"""
    rng = random.Random(1)
    for _ in range(8):
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        answered = float(child.stdout.readline())
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child.pid, signal.SIGKILL)
        answered = max([answered, *(float(line) for line in child.communicate()[0].splitlines() if "." in line)])
        shutil.copy(path, tmp_path / "moved")
        spent = spent_in(tmp_path / "moved")
        assert spent is None or spent >= answered
        assert Ledger.open(path).spent >= answered
        Ledger.open(path).verify()


def test_a_torn_copy_says_what_to_do(tmp_path: Path) -> None:
    (_, early), (_, late) = grown(tmp_path / "ledger", 3)[1:]
    seal = 3 * PAGE
    assert len(early) == len(late) == 4 * PAGE
    (tmp_path / "copy").write_bytes(early[:seal] + late[seal:])
    with pytest.raises(LedgerError, match=r"pages are of different moments.*-journal file was left behind.*copy again"):
        Ledger.open(tmp_path / "copy")


@pytest.mark.parametrize("ending", ["-journal", "-wal"])
def test_a_new_ledger_is_not_made_where_another_one_left_its_journal(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"ledger{ending}").write_bytes(b"what another ledger needs")
    with pytest.raises(LedgerError, match=f"ledger{ending} lies beside it"):
        Ledger.create(tmp_path / "ledger", epsilon=1.0)
    assert [entry.name for entry in tmp_path.iterdir()] == [f"ledger{ending}"]


def test_a_log_that_is_not_the_ledgers_own_is_not_read_into_it(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden/0.1.0/logged.db-wal"
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1.0)
    shutil.copy(golden, tmp_path / "ledger-wal")
    with pytest.raises(LedgerError, match="ledger-wal lies beside it and is not its own"):
        _ = ledger.spent
