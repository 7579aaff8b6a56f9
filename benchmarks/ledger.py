"""The ledger's three claims: no output without a spend, no overspend, and at least 100 durable spends a second.

    python benchmarks/ledger.py                                     10 000 kills, 32 × 1 000 spends at once
    python benchmarks/ledger.py --kills 25 --processes 4 --attempts 50

Crashes: a child spends, completes and only then shows its output, over and over, until `kill -9` comes at a random
moment. Race: many processes ask for twice what there is. `--points` kills a child at each of its writes in turn, which
takes strace. Needs `os.fork`. Ends with 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from batchdp import errors
from batchdp.ledger import Ledger, StoredRelease

EPSILON = 0.125
KILLS_A_LEDGER = 50  # every check reads the whole ledger, so they stay short
SYSTEM_CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--attempts", type=int, default=1_000, help="by each process")
    parser.add_argument("--spends", type=int, default=500, help="to time")
    parser.add_argument("--points", action="store_true", help="kill at every write too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="on the disk to be tried; a temporary one if left out")
    parser.add_argument("--spend-once", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.spend_once:
        spend_and_show(Ledger.open(asked.spend_once), asked.spend_once.with_suffix(".shown"), "once", 1)
        return 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        figures = crashes(folder, asked.kills, random.Random(asked.seed))
        figures |= race(folder / "race", asked.processes, asked.attempts)
        figures |= pace(folder / "pace", asked.spends)
        if asked.points:
            figures |= crashes_at_every_write(folder)
    print(json.dumps(figures, indent=2))
    failures = [name for name in figures if name.startswith(("outputs without", "overspend", "lost")) and figures[name]]
    return 1 if failures else 0


def crashes(folder: Path, kills: int, rng: random.Random) -> dict[str, float]:
    """Kill a spending child at random moments, and look after each."""
    outputs = unpaid = wasted = logs = 0
    start = time.perf_counter()
    for kill in range(kills):
        path = folder / f"crash-{kill // KILLS_A_LEDGER}.ledger"
        shown = path.with_suffix(".shown")
        if kill % KILLS_A_LEDGER == 0:
            ledger = Ledger.create(path, epsilon=1_000_000.0)
            seen: set[str] = set()
        held = rng.random() < 0.5
        ready, tell = os.pipe()
        child = forked(
            lambda: spend_and_show(ledger, shown, f"k{kill}", 10**6, held=held, tell=tell, when=kill % 3)  # noqa: B023
        )
        os.read(ready, 1)
        time.sleep(rng.uniform(0, 0.012))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
        logs += Path(f"{path}-wal").exists()
        fresh = [line for line in shown_lines(shown) if line not in seen]
        outputs += len(fresh)
        unpaid += sum(not is_paid(ledger, line) for line in fresh)
        seen.update(fresh)
        wasted += interrupted(ledger, kill)
    return {
        "kills": kills,
        "kills a second": round(kills / (time.perf_counter() - start), 1) if kills else 0,
        "kills that left a write-ahead log": logs,
        "spends interrupted before their output": wasted,
        "outputs seen": outputs,
        "outputs without a spend": unpaid,
    }


def spend_and_show(
    ledger: Ledger, shown: Path, name: str, times: int, *, held: bool = False, tell: int = -1, when: int = -1
) -> None:
    """Reserve, complete, then append the output to a file, as a caller would; `tell` a pipe when so many are done."""
    file = os.open(shown, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if held:
        ledger.__enter__()
    for i in range(times):
        if i == when:
            os.write(tell, b"!")
        reservation = ledger.reserve(f"{name}-{i}", epsilon=EPSILON, plan_digest="plan", table="table")
        assert not isinstance(reservation, StoredRelease)
        output = os.urandom(random.choice([8, 1000])).hex()  # with and without pages of its own
        ledger.complete(reservation, output.encode())
        os.write(file, f"{name}-{i} {output}\n".encode())
    os.close(file)


def shown_lines(shown: Path) -> list[str]:
    return shown.read_text().split("\n")[:-1] if shown.exists() else []


def is_paid(ledger: Ledger, line: str) -> bool:
    """Whether what was shown is what the ledger has, and gives again."""
    release_id, output = line.split()
    try:
        stored = ledger.reserve(release_id, epsilon=EPSILON, plan_digest="plan", table="table")
    except errors.BudgetError:
        return False
    return isinstance(stored, StoredRelease) and stored.output == output.encode()


def interrupted(ledger: Ledger, kill: int) -> int:
    """How many spends of this child have no output; the ledger must be whole and add up."""
    ledger.verify()
    history = ledger.history()
    assert ledger.spent == EPSILON * len(history) <= ledger.total
    return sum(entry.state == "reserved" and entry.release_id.startswith(f"k{kill}-") for entry in history)


def race(path: Path, processes: int, attempts: int) -> dict[str, float]:
    """Processes that ask, all at once, for twice what there is."""
    affordable = processes * attempts // 2
    ledger = Ledger.create(path, epsilon=affordable * EPSILON)
    start = time.perf_counter()
    children = [
        forked(lambda: spend_all(ledger, path.with_suffix(f".{i}"), f"p{i}", attempts))  # noqa: B023
        for i in range(processes)
    ]
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    seconds = time.perf_counter() - start
    assert not failed, f"{failed} processes failed"
    granted = sum(int(path.with_suffix(f".{i}").read_text()) for i in range(processes))
    ledger.verify()
    charges = sum(entry.charged for entry in ledger.history())
    return {
        "processes": processes,
        "attempts": processes * attempts,
        "granted": granted,
        "overspend": max(0.0, granted * EPSILON - ledger.total, charges - ledger.total, granted * EPSILON - charges),
        "lost budget": max(0.0, ledger.total - granted * EPSILON),
        "attempts a second, all processes": round(processes * attempts / seconds, 1),
    }


def spend_all(ledger: Ledger, result: Path, name: str, attempts: int) -> None:
    granted = 0
    for i in range(attempts):
        try:
            ledger.reserve(f"{name}-{i}", epsilon=EPSILON, plan_digest="plan", table="table")
            granted += 1
        except errors.BudgetError:
            pass
    result.write_text(str(granted))


def pace(path: Path, spends: int) -> dict[str, float]:
    """How many spends a second one process gets onto the disk, alone and each with its output."""
    ledger = Ledger.create(path, epsilon=1_000_000.0)

    def a_second(name: str, output: bytes | None) -> float:
        start = time.perf_counter()
        for i in range(spends):
            reservation = ledger.reserve(f"{name}{i}", epsilon=EPSILON, plan_digest="plan", table="table")
            if output is not None and not isinstance(reservation, StoredRelease):
                ledger.complete(reservation, output)
        return round(spends / (time.perf_counter() - start), 1)

    figures = {"durable spends a second": a_second("a", None), "with their outputs": a_second("b", bytes(1000))}
    with ledger:
        figures |= {
            "durable spends a second, inside with": a_second("c", None),
            "with their outputs, inside with": a_second("d", bytes(1000)),
        }
    return figures


def crashes_at_every_write(folder: Path) -> dict[str, float]:
    """Kill one spend at its first system call that opens, writes or syncs a file, at its second, and so on."""
    strace = shutil.which("strace")
    if strace is None:
        return {"write points": 0}
    pristine = folder / "points.ledger"
    Ledger.create(pristine, epsilon=1.0)
    command = [sys.executable, __file__, "--spend-once"]
    points = unpaid = 0
    for call in SYSTEM_CALLS.split(","):
        for when in range(1, 10_000):
            path = folder / f"{call}-{when}.ledger"
            shutil.copy(pristine, path)
            trace = [strace, "-f", "-o", os.devnull, "-P", str(path), "-P", f"{path}-wal", "-P", f"{path}-shm"]
            trace += ["-P", str(path.with_suffix(".shown")), "-e", f"trace={call}"]
            inject = ["-e", f"inject={call}:signal=KILL:when={when}"]
            if subprocess.run([*trace, *inject, *command, str(path)], check=False).returncode == 0:
                break  # fewer calls than that
            points += 1
            ledger = Ledger.open(path)
            unpaid += sum(not is_paid(ledger, line) for line in shown_lines(path.with_suffix(".shown")))
            ledger.verify()
    return {"write points": points, "outputs without a spend, at write points": unpaid}


def forked(job: Callable[[], None]) -> int:
    """The id of a child that does the job and ends."""
    child = os.fork()
    if child:
        return child
    try:
        job()
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
