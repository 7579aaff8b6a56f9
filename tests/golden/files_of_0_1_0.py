"""How the files in tests/golden/0.1.0 were made: by batchdp 0.1.0 itself, with nothing changed.

    git worktree add ../batchdp-0.1.0 f88c8c1 && cd ../batchdp-0.1.0 && make .venv/.ready
    .venv/bin/python …/tests/golden/files_of_0_1_0.py …/tests/golden/0.1.0

They are what a user of that version has on the disk: they must open, verify and give the same answers in every later
version. The strategies measure whole numbers, which the lattice holds exactly: no linear algebra, which differs in its
last bits between machines, decides a plan's digest. Run once; a second run would draw other noise.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from batchdp.matrix import dense  # type: ignore[import-not-found]  # as it was called in 0.1.0

import batchdp
from batchdp.ledger import Reservation

COLUMNS: dict[str, dict[str, Any]] = {
    "city": {"values": ["Basel", "Bern", "Zürich"]},
    "age": {"range": [0, 120], "bins": [0, 18, 65]},
}
PERSONS = {"unit": "patient", "rows_per_unit": 3, "max_rows": 100_000}
SQL = "SELECT city, COUNT(*) AS n FROM visits GROUP BY city;\nSELECT COUNT(*) AS young FROM visits WHERE age < 18"
APART = "SELECT city, COUNT(*) AS n FROM visits GROUP BY city;\nSELECT age, COUNT(*) AS m FROM visits GROUP BY age"
TABLE = "patient,city,age\n" + "".join(
    f"p{i // 2},{COLUMNS['city']['values'][i % 3]},{7 * i % 100}\n" for i in range(60)
)
PLANS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "rows": (SQL, {}, {}),
    "unit": (SQL, PERSONS, {}),
    "zcdp": (SQL, PERSONS | {"neighbours": "replace"}, {"privacy": "zcdp"}),
    "blocks": (APART, PERSONS, {"max_cells": 6}),
}


def main(folder: Path) -> None:
    assert version("batchdp") == "0.1.0"
    (folder / "visits.csv").write_text(TABLE, encoding="utf-8")
    expected: dict[str, Any] = {"plans": {}, "releases": {}, "ledgers": {}}
    plans = {}
    for name, (sql, privacy, options) in PLANS.items():
        domain = {"table": "visits", "privacy": privacy, "columns": COLUMNS}
        made = whole_numbers(batchdp.plan(sql, domain, cache=False, **options))
        made.save(folder / f"{name}.plan")
        plans[name] = made
        expected["plans"][name] = {
            "names": made.names,
            "unit": made.domain.privacy.unit,
            "sensitivity": made.lattice.sensitivity,
            "blocks": made.workload.blocks,
        }

    pure = batchdp.Ledger.create(folder / "pure.db", epsilon=3.0)
    for name in ("rows", "unit", "blocks"):
        asked: dict[str, Any] = {"epsilon": 0.1, "ledger": pure, "release_id": f"{name} of 2025"}
        done = batchdp.answer(plans[name], folder / "visits.csv", **asked)
        keep(done, folder / f"{name}.release", expected)
    strategy = batchdp.STRATEGIES["noise-on-data"](np.eye(3))
    keep(
        batchdp.answer(strategy, [5, 0, 7], epsilon=0.5, ledger=pure, release_id="counts", rows_per_unit=2),
        folder / "counts.release",
        expected,
    )
    pure.reserve("interrupted", epsilon=0.25, plan_digest="none", table="visits")

    rho = batchdp.Ledger.create(folder / "rho.db", rho=1.0)
    done = batchdp.answer(plans["zcdp"], folder / "visits.csv", rho=0.1, ledger=rho, release_id="zcdp of 2025")
    keep(done, folder / "zcdp.release", expected)
    batchdp.answer(plans["rows"], folder / "visits.csv", epsilon=0.5, ledger=rho, release_id="laplace")

    logged(folder / "logged.db")
    for name in ("pure", "rho"):
        expected["ledgers"][name] = state(batchdp.Ledger.open(folder / f"{name}.db"))
    expected["ledgers"]["logged"] = {"spent": 0.875, "ids": [f"k{i}" for i in range(7)]}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def whole_numbers(plan: batchdp.Plan) -> batchdp.Plan:
    """With every kind of record measured by itself, in each block."""
    W = plan.workload
    fitting = batchdp.PairStrategy(W, np.eye(W.cells), dense(W.matrix), method="noise-on-data", privacy=plan.privacy)
    return replace(plan, strategy=fitting)


def keep(release: batchdp.Release, path: Path, expected: dict[str, Any]) -> None:
    release.save(path)
    expected["releases"][path.stem] = {
        "certificate": vars(release.certificate),
        "answers": [[one.name, one.value, one.standard_error, one.low, one.high] for one in release.answers],
        "noisy": release.noisy.tolist(),
    }


def state(ledger: batchdp.Ledger) -> dict[str, Any]:
    ledger.verify()
    return {
        "unit": ledger.unit,
        "total": ledger.total,
        "spent": ledger.spent,
        "head": ledger.head,
        "history": [list(vars(entry).values()) for entry in ledger.history()],
    }


def logged(path: Path) -> None:
    """A ledger whose last spends are in the log beside it, as a kill leaves it."""
    ledger = batchdp.Ledger.create(path, epsilon=3.0)
    child = os.fork()
    if not child:
        ledger.__enter__()
        for i in range(7):
            reservation = ledger.reserve(f"k{i}", epsilon=0.125, plan_digest="plan", table="table")
            assert isinstance(reservation, Reservation)
            if i < 6:
                ledger.complete(reservation, f"output {i}".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    Path(f"{path}-shm").unlink(missing_ok=True)  # an index to the log, which any reader makes again
    assert Path(f"{path}-wal").stat().st_size > 0


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    main(target)
