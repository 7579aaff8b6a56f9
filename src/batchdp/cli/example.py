"""The whole job on invented patient records: generate, plan, answer twice, report; with an embedded database.

The records are invented, so the demonstration may show the truth beside the private answers. Nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from batchdp.engines import count, open_table
from batchdp.errors import ReleaseError
from batchdp.ledger import Ledger
from batchdp.linalg.matrix import Dense
from batchdp.plans import Plan, plan
from batchdp.plans.comparison import compare, quick_methods
from batchdp.release import Release, answer
from batchdp.reports import report

RECORDS = 100_000
BUDGETS = (1.0, 0.1)
SECONDS = 6.0
"""For the plan; twice as many find nothing better."""
FILES = ("patients.parquet", "domain.toml", "queries.sql", "patients.plan", "budget.db", "report.html")
MARK = ".batchdp-demo"
"""A file that says that a folder is the demonstration's own."""
OURS = (
    *FILES,
    MARK,
    "budget.db-journal",
    "budget.db-wal",
    "budget.db-shm",
    *(f"answers-{epsilon:g}.release" for epsilon in BUDGETS),
)

DOMAIN, QUERIES = (
    files("batchdp").joinpath(f"cli/demo.{kind}").read_text(encoding="utf-8") for kind in ("toml", "sql")
)


@dataclass(frozen=True, eq=False)
class Demonstration:
    """What was made: the plan, two releases, the truth (of invented records) and the files."""

    plan: Plan
    releases: tuple[Release, ...]
    truth: Dense
    ledger: Ledger
    folder: Path


def demonstrate(folder: Path, say: Callable[[str], object], progress: Callable[[float, str], None]) -> Demonstration:
    """Do the whole job in a folder; what an earlier demonstration left there is replaced."""
    _prepare(folder)
    paths = {name: folder / name for name in FILES}
    say(f"Inventing {RECORDS:,} patient records and writing them to {paths['patients.parquet']}")
    invent_records(paths["patients.parquet"])
    paths["domain.toml"].write_text(DOMAIN, encoding="utf-8")
    paths["queries.sql"].write_text(QUERIES, encoding="utf-8")
    say(f"Planning the queries in {paths['queries.sql']} (no data is read)")
    made = plan(paths["queries.sql"], paths["domain.toml"], seconds=SECONDS, progress=progress)
    made.save(paths["patients.plan"])
    ledger = Ledger.create(paths["budget.db"], epsilon=3.0)
    releases = []
    for epsilon in BUDGETS:
        say(f"Answering them privately at ε = {epsilon:g}, charged to {paths['budget.db']}")
        done = answer(made, paths["patients.parquet"], epsilon=epsilon, ledger=ledger, progress=progress)
        done.save(folder / f"answers-{epsilon:g}.release")
        releases.append(done)
    say(f"Comparing mechanisms and writing {paths['report.html']}")
    compared = compare(made.workload, {"optimize": lambda _: made.strategy, **quick_methods()})
    report(
        releases[0],
        paths["report.html"],
        ledger=ledger,
        methods=compared.methods,
        lower_bound=compared.lower_bound,
        title="Patients: private answers",
    )
    return Demonstration(made, tuple(releases), truth(made, paths["patients.parquet"]), ledger, folder)


def invent_records(path: Path) -> None:
    """Patient records that look like real ones, with a few missing values; the same ones every time."""
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    rng = np.random.default_rng(2012)
    n = RECORDS
    age = np.clip(rng.gamma(5.0, 9.0, n), 0, 109).astype(np.int32)
    shares = np.array([39, 22.6, 12.6, 9.3, 19.4, 13, 30.5, 7.8])
    likely = np.clip((age[:, None] / 60.0) * [0.06, 0.12, 0.3] + [0.08, 0.0, 0.02], 0, 0.45)
    draw = rng.random(n)[:, None]
    which = (draw > np.cumsum(likely, axis=1)).sum(axis=1)
    state = np.array(["CA", "FL", "IL", "NJ", "NY", "PA", "TX", "WA"])[rng.choice(8, n, p=shares / shares.sum())]
    missing = rng.random(n) < 0.01
    charge = np.round(rng.gamma(1.2, np.array([900.0, 2100.0, 1300.0, 250.0])[which]), 2)
    table = pa.table(
        {
            "patient_id": np.arange(n),
            "state": pa.array(state, mask=missing),
            "age": age,
            "diagnosis": np.array(["asthma", "diabetes", "hypertension", "none"])[which],
            "charge": charge,
        }
    )
    parquet.write_table(table, path)


def truth(made: Plan, table: Path) -> Dense:
    """The exact answers. Only because the records are invented."""
    batch: Any = made.batch
    cells = batch.cells
    with open_table(table, made.domain) as source:
        counts = cells.counts(count(source, cells.atoms, unit=made.domain.privacy.unit))
    return np.asarray(cells.answers(counts))


def _prepare(folder: Path) -> None:
    """A new or an empty folder, or one that an earlier demonstration made; only its own files are removed there."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).is_file())):
        raise ReleaseError(f"{folder} exists already and is not from a demonstration; name another with --folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in OURS:
            (folder / name).unlink(missing_ok=True)
        (folder / MARK).write_text("batchdp demo made this folder and will replace its files.\n", encoding="utf-8")
    except OSError as error:
        raise ReleaseError(f"cannot use the folder {folder}: {error.strerror or error}") from error
