"""The ledger's claims: no output without a spend, no overspend, no copy that forgets, enough durable spends a second.

    python benchmarks/ledger.py                                     10 000 kills, 32 × 1 000 spends at once
    python benchmarks/ledger.py --kills 25 --processes 4 --attempts 50 --long 500

Crashes: a child spends, completes and only then shows its output, over and over, until `kill -9` comes at a random
moment. Every second ledger is one of (ε, δ) whose child also moves a share and spends from it. Race: many processes
ask, each from a share of the ledger, for twice what there is. Meanwhile the one file is copied at random
moments, page by page, and after each kill before anybody opens it again: a copy shows no less than what was answered
when the copying began, or is refused. `--points` kills a child at each of its writes in turn, which takes strace.
Needs `os.fork`. Ends with 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from batchdp import errors
from batchdp.ledger import Ledger, StoredRelease, outputs

EPSILON = 0.125
PATIENCE = 600.0  # seconds to wait for others: all processes are to have their turns
KILLS_A_LEDGER = 50  # every check reads the whole ledger, so they stay short
SYSTEM_CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,rename,mkdir"
PAGE = 4096


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--attempts", type=int, default=1_000, help="by each process")
    parser.add_argument("--spends", type=int, default=500, help="to time")
    parser.add_argument("--long", type=int, default=30_000, help="spends after which a grant is timed")
    parser.add_argument("--points", action="store_true", help="kill at every write too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="on the disk to be tried; a temporary one if left out")
    parser.add_argument("--spend-once", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    outputs.LARGEST_ROW = 1500  # so that half of the outputs here become files
    if asked.spend_once:
        spend_and_show(Ledger.open(asked.spend_once), asked.spend_once.with_suffix(".shown"), "once", 1)
        return 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        parts: list[Callable[[], dict[str, float]]] = [
            lambda: crashes(folder, asked.kills, random.Random(asked.seed)),
            lambda: race(folder / "race", asked.processes, asked.attempts, random.Random(asked.seed)),
            lambda: pace(folder / "pace", asked.spends),
            lambda: long(folder / "long", asked.long),
            *([lambda: crashes_at_every_write(folder)] if asked.points else []),
        ]
        figures: dict[str, float] = {}
        for part in parts:
            figures |= (found := part())
            print(json.dumps(found), file=sys.stderr, flush=True)  # should a later part fail
    print(json.dumps(figures, indent=2))
    broken = ("outputs without", "overspend", "lost", "copies that show less", "grants above")
    failures = [name for name in figures if name.startswith(broken) and figures[name]]
    return 1 if failures else 0


def crashes(folder: Path, kills: int, rng: random.Random) -> dict[str, float]:
    """Kill a spending child at random moments, and look after each."""
    seen = unpaid = wasted = journals = 0
    copies, moves = Copies(rng), Copies(rng)
    start = time.perf_counter()
    for kill in range(kills):
        path = folder / f"crash-{kill // KILLS_A_LEDGER}.ledger"
        shown = folder / f"{kill}.shown"
        if kill % KILLS_A_LEDGER == 0:
            ledger, answered = Ledger.create(path, epsilon=1_000_000.0), 0
            if kill // KILLS_A_LEDGER % 2:
                path.unlink()
                ledger = Ledger.create(path, epsilon=1_000_000.0, delta=1e-6)
                ledger.share("a", 400_000)
        ready, tell = os.pipe()
        child = forked(lambda: spend_and_show(ledger, shown, f"k{kill}", 10**6, tell=tell, when=kill % 3))  # noqa: B023
        os.read(ready, 1)
        time.sleep(rng.uniform(0, 0.012))
        if rng.random() < 0.5:
            copies.take(path, answered + len(shown_lines(shown)[0]))
            time.sleep(rng.uniform(0, 0.006))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
        journals += Path(f"{path}-journal").exists()
        whole, torn = shown_lines(shown)
        answered += len(whole)
        moves.take(path, answered)  # as `mv` would find it, without its journal
        seen += len(whole)
        unpaid += sum(not is_paid(ledger, line) for line in whole)
        unpaid += torn != "" and not is_paid(ledger, torn, whole=False)
        wasted += interrupted(ledger, kill)
        shown.unlink(missing_ok=True)
    return {
        "kills": kills,
        "kills a second": round(kills / (time.perf_counter() - start), 1) if kills else 0,
        "kills that left a journal": journals,
        "spends interrupted before their output": wasted,
        "outputs seen": seen,
        "outputs without a spend": unpaid,
        **copies.figures(" between the spends"),
        **moves.figures(" after a kill"),
    }


class Copies:
    """Copies of the one file, each opened and compared with what was answered when the copying began."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.taken = self.refused = self.less = 0

    def take(self, path: Path, answered: int) -> None:
        """Copy, slowly now and then, so that writes come between the pages."""
        copy = path.with_suffix(".copy")
        pause = self.rng.choice([0.0, 0.0, 0.0002])
        with path.open("rb") as source, copy.open("wb") as target:
            while page := source.read(PAGE):
                target.write(page)
                if pause:
                    time.sleep(self.rng.uniform(0, pause))
        self.taken += 1
        try:
            self.less += spent(Ledger.open(copy)) < Fraction(EPSILON) * answered
        except errors.LedgerError:
            self.refused += 1
        for left in (copy, Path(f"{copy}-journal")):
            left.unlink(missing_ok=True)

    def figures(self, when: str) -> dict[str, float]:
        return {
            f"copies taken{when}": self.taken,
            f"copies refused as torn{when}": self.refused,
            f"copies that show less than was answered{when}": self.less,
        }


def spend_and_show(ledger: Ledger, shown: Path, name: str, times: int, *, tell: int = -1, when: int = -1) -> None:
    """Reserve, complete, then append the output to a file, as a caller would; `tell` a pipe when so many are done."""
    file = os.open(shown, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    shares = [None, *ledger.shares]
    for i in range(times):
        if i == when:
            os.write(tell, b"!")
        if len(shares) > 1 and random.random() < 0.3:
            ledger.share("a", 400_000 + random.randrange(100_000))
        share = random.choice(shares)
        reservation = ledger.reserve(f"{name}-{i}", epsilon=EPSILON, plan_digest="plan", table="table", share=share)
        assert not isinstance(reservation, StoredRelease)
        output = os.urandom(random.choice([8, 700, 1000])).hex()  # in a page, with pages of its own, in a file
        ledger.complete(reservation, output.encode())
        os.write(file, f"{name}-{i} {output}\n".encode())
    os.close(file)


def shown_lines(shown: Path) -> tuple[list[str], str]:
    """What was shown whole, and the beginning of a line that the kill tore."""
    *whole, torn = shown.read_text().split("\n") if shown.exists() else [""]
    return whole, torn


def spent(ledger: Ledger) -> Fraction:
    """Σε, exactly."""
    return ledger.account.sum("epsilon") or Fraction(0)


def is_paid(ledger: Ledger, line: str, *, whole: bool = True) -> bool:
    """Whether what was shown is what the ledger has, and gives again."""
    release_id, _, output = line.partition(" ")
    if not whole and not output:
        return True  # nothing of an output was shown
    try:
        stored = ledger.reserve(release_id, epsilon=EPSILON, plan_digest="plan", table="table")
    except errors.BudgetError:
        return False
    if not isinstance(stored, StoredRelease):
        return False
    return stored.output == output.encode() if whole else stored.output.startswith(output.encode())


def interrupted(ledger: Ledger, kill: int) -> int:
    """How many spends of this child have no output; the ledger must be whole and add up."""
    ledger.verify()
    history = ledger.history()
    assert spent(ledger) == Fraction(EPSILON) * len(history) <= ledger.account.total
    return sum(entry.state == "reserved" and entry.release_id.startswith(f"k{kill}-") for entry in history)


def race(path: Path, processes: int, attempts: int, rng: random.Random) -> dict[str, float]:
    """Processes that ask, all at once, for twice what there is: half of them in one share, a quarter in another."""
    affordable = processes * attempts // 2
    ledger = Ledger.create(path, epsilon=affordable * EPSILON, timeout=PATIENCE)
    parts = {"a": EPSILON * affordable / 2, "b": EPSILON * affordable / 4}
    for name, amount in parts.items():
        ledger.share(name, amount)
    tally = mmap.mmap(-1, 8 * processes)  # what each was granted so far
    copies = Copies(rng)
    start = time.perf_counter()
    children = [
        forked(lambda: spend_all(ledger, tally, i, attempts, ("a", "a", "b", None)[i % 4]))  # noqa: B023
        for i in range(processes)
    ]
    running, failed = set(children), 0
    while running:
        copies.take(path, granted_of(tally))
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                running.discard(child)
                failed += status != 0
        time.sleep(rng.uniform(0, 0.5))
    seconds = time.perf_counter() - start
    assert not failed, f"{failed} processes failed"
    granted = granted_of(tally)
    ledger.verify()
    charges, account = float(spent(ledger)), ledger.account
    in_shares = {name: float(account.sum("epsilon", name) or 0) for name in parts}
    return {
        "overspend of shares": sum(max(0.0, in_shares[name] - parts[name]) for name in parts),
        "processes": processes,
        "attempts": processes * attempts,
        "granted": granted,
        "overspend": max(0.0, granted * EPSILON - ledger.total, charges - ledger.total, granted * EPSILON - charges),
        "lost budget": max(0.0, ledger.total - granted * EPSILON),
        "attempts a second, all processes": round(processes * attempts / seconds, 1),
        **copies.figures(" in the race"),
    }


def granted_of(tally: mmap.mmap) -> int:
    return sum(struct.unpack(f"{len(tally) // 8}q", tally[:]))


def spend_all(ledger: Ledger, tally: mmap.mmap, process: int, attempts: int, share: str | None) -> None:
    granted = 0
    for i in range(attempts):
        try:
            ledger.reserve(f"p{process}-{i}", epsilon=EPSILON, plan_digest="plan", table="table", share=share)
            granted += 1
        except errors.BudgetError:
            pass
        tally[8 * process : 8 * process + 8] = struct.pack("q", granted)


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

    return {"durable spends a second": a_second("a", None), "with their outputs": a_second("b", bytes(1000))}


def long(path: Path, spends: int) -> dict[str, float]:
    """How long a grant takes after so many spends of every kind, in shares of a ledger of (ε, δ)."""
    ledger = Ledger.create(path, epsilon=1_000_000.0, delta=1e-6)
    for name in ("a", "b"):
        ledger.share(name, 300_000)
    times, worked = [], []
    for i in range(spends + 200):
        asked: dict[str, Any] = {"epsilon": 0.125} if i % 3 else {"rho": 0.01}
        start, before = time.perf_counter(), time.process_time()
        ledger.reserve(f"{i}", **asked, plan_digest="plan", table="t", scale=1e6, share=("a", "b", None)[i % 3])
        times.append(time.perf_counter() - start)
        worked.append(time.process_time() - before)
    last, busy = sorted(times[spends:]), sorted(worked[spends:])
    return {
        "spends before": spends,
        "milliseconds a grant after that, median": round(1000 * last[100], 2),
        "milliseconds a grant after that, 99 %": round(1000 * last[197], 2),
        "milliseconds a grant at first, median": round(1000 * sorted(times[:200])[100], 2),
        "milliseconds of processor time a grant after that, median": round(1000 * busy[100], 2),
        "grants above 20 ms of processor time in the median": float(busy[100] >= 0.02),
    }


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
            watched = (path, f"{path}-journal", folder, outputs.folder_of(path), path.with_suffix(".shown"))
            trace = [strace, "-f", "-o", os.devnull, *(part for one in watched for part in ("-P", str(one)))]
            trace += ["-e", f"trace={call}"]
            inject = ["-e", f"inject={call}:signal=KILL:when={when}"]
            if subprocess.run([*trace, *inject, *command, str(path)], check=False).returncode == 0:
                break  # fewer calls than that
            points += 1
            ledger = Ledger.open(path)
            unpaid += sum(not is_paid(ledger, line) for line in shown_lines(path.with_suffix(".shown"))[0])
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
