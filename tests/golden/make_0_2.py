"""How the files in tests/golden/0.2.0 were made: by batchdp 0.2.0 itself, with nothing changed.

    git worktree add ../batchdp-0.2.0 9fc6575 && cd ../batchdp-0.2.0 && make .venv/.ready
    .venv/bin/python …/tests/golden/make_0_2.py …/tests/golden/0.2.0

They are what a user of that version has on the disk: plans and releases of each kind, and a ledger with all that was
released. Run once; a second run would draw other noise.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import batchdp

DOMAIN: dict[str, Any] = {
    "table": "visits",
    "columns": {"city": {"values": ["Basel", "Bern", "Zürich"]}, "age": {"range": [0, 120], "bins": [0, 18, 65]}},
}
TABLE = "city,age\n" + "".join(f"{('Basel', 'Bern', 'Zürich')[i % 3]},{7 * i % 100}\n" for i in range(60))


def main(folder: Path) -> None:
    assert version("batchdp") == "0.2.0"
    folder.mkdir(parents=True)
    (folder / "visits.csv").write_text(TABLE, encoding="utf-8")
    ledger = batchdp.Ledger.create(folder / "budget.db", epsilon=3.0)
    plans: dict[str, Any] = {
        "pair": batchdp.plan("SELECT city, COUNT(*) AS n FROM visits GROUP BY city", DOMAIN, cache=False),
        "derived": batchdp.plan(
            "SELECT COUNT(*) FILTER (WHERE age < 18) / COUNT(*) AS young FROM visits", DOMAIN, cache=False
        ),
        "tables": batchdp.plan(domain=DOMAIN, marginals=2, cache=False),
    }
    for name, made in plans.items():
        made.save(folder / f"{name}.plan")
        done = batchdp.answer(made, folder / "visits.csv", epsilon=0.25, ledger=ledger, release_id=f"{name} of 2026")
        done.save(folder / f"{name}.release")
    strategy = batchdp.STRATEGIES["noise-on-data"](np.eye(3))
    batchdp.answer(strategy, [5, 0, 7], epsilon=0.5, ledger=ledger, release_id="counts", rows_per_unit=2)
    ledger.reserve("interrupted", epsilon=0.125, plan_digest="none", table="visits")
    expected = {
        "unit": ledger.unit,
        "total": ledger.total,
        "spent": ledger.spent,
        "head": ledger.verify(),
        "history": [list(vars(entry).values()) for entry in ledger.history()],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
