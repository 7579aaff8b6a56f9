"""Searches count work, never the clock: the same seed gives the same strategy, however busy the machine is."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp import optimize, workloads
from batchdp.release.consistency.tables import Settings, closest_tables
from batchdp.strategies.account import Account
from batchdp.text import Outcome
from batchdp.workloads.kronecker import in_factors

PACKAGE = Path(batchdp.__file__).parent
CLOCKS = ("monotonic", "perf_counter", "process_time", "thread_time", "time")
MAY_READ_CLOCKS = {"cli/streams.py", "ledger/file.py", "plans/comparison.py", "text.py"}
"""How long a ledger that is busy is waited for, and the seconds that a comparison and the log show."""
PREFIX = np.tril(np.ones((12, 12)))
TABLES = in_factors((12, 12, 3), [[PREFIX, None, None], [None, PREFIX, np.eye(3)], [np.eye(12), np.eye(12), None]])

SEARCHES: dict[str, Callable[[], Any]] = {
    "a pair": lambda: optimize(workloads.ranges(24, 48), seconds=0.5, seed=1),
    "the least largest": lambda: optimize(workloads.ranges(6, 12), objective="max", seconds=0.5, seed=1),
    "residuals": lambda: optimize(TABLES, "zcdp", seconds=0.2, seed=1),
    "residuals, the least largest": lambda: optimize(TABLES, "zcdp", objective="max", seconds=0.2, seed=1),
    "marginals": lambda: optimize(TABLES, "pure", seconds=0.5, seed=1),
    "marginals, the least largest": lambda: optimize(TABLES, "pure", objective="max", seconds=0.5, seed=1),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_clock_that_races_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = SEARCHES[name]()
    for clock in CLOCKS:
        ticks = count()
        monkeypatch.setattr(time, clock, lambda ticks=ticks: 1e6 * next(ticks))
    busy = SEARCHES[name]()
    assert np.array_equal(calm.measure, busy.measure)
    assert np.array_equal(calm.reconstruct, busy.reconstruct)
    assert (calm.method, calm.status, calm.total, calm.limit) == (busy.method, busy.status, busy.total, busy.limit)


@pytest.mark.parametrize("privacy", ["zcdp", "pure"])
def test_seconds_are_spent_and_not_ignored(privacy: Any) -> None:
    told: dict[float, list[float]] = {}
    for seconds in (0.004, 4.0):
        told[seconds] = []
        optimize(TABLES, privacy, seconds=seconds, progress=lambda share, *_, own=told[seconds]: own.append(share))
    assert len(told[0.004]) < len(told[4.0])
    assert told[4.0] == sorted(told[4.0])


def test_tables_that_are_made_to_agree_count_their_work_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sets: list[tuple[int, ...]] = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    noisy = {C: rng.standard_normal([4] * len(C)) for C in sets}
    noisy[()] = np.array(20.0)
    for C in sets:
        for axis in range(len(C)):
            noisy[C] = noisy[C] - noisy[C].mean(axis=axis, keepdims=True)
    tables = sets[4:]
    precision = dict.fromkeys(noisy, 1.0)
    ended = [closest_tables(noisy, precision, tables, (4, 4, 4), settings=Settings(seconds=s)) for s in (0.0, 9.0)]
    assert [one.status for one in ended] == [Outcome.OUT_OF_TIME, Outcome.CONVERGED]
    monkeypatch.setattr(time, "process_time", count(step=10**9).__next__)
    again = closest_tables(noisy, precision, tables, (4, 4, 4), settings=Settings(seconds=9.0))
    assert all(np.array_equal(again.tables[A], ended[1].tables[A]) for A in tables)


def test_nothing_else_of_the_package_reads_a_clock() -> None:
    reading = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if "time" in names or (isinstance(node, ast.ImportFrom) and node.module == "time"):
                reading.add(path.relative_to(PACKAGE).as_posix())
    assert reading == MAY_READ_CLOCKS


def test_a_share_is_paid_for_by_the_whole() -> None:
    whole = Account(10.0)
    part, lasting = whole.share(4.0), whole.lasting_share()
    part.charge(4.0)
    assert (part.over(), whole.over(), whole.spent) == (True, False, 4.0)
    lasting.charge(7.0)
    assert (lasting.over(), whole.over(), whole.left) == (False, True, -1.0)
    assert whole.share(1.0).over()
