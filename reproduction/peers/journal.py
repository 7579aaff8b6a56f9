"""peers.csv: one line a published figure with what was found, rewritten whole whenever a batch is done."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from batchdp.archive import write_atomically
from reproduction.errors import ReproductionError
from reproduction.peers.figures import Figure, Task, published
from reproduction.peers.measuring import Found

FILE = "peers.csv"


@dataclass(frozen=True)
class Line:
    """How a batch ended: what was found, or why nothing was."""

    task: Task
    found: Found | None
    status: str = ""
    limit: float = math.nan
    """The seconds of computing that were not enough."""


COLUMNS = (
    *("batch", "noise", "measure", "program", "year", "published", "published_seconds"),
    *(field.name for field in fields(Found)),
    *("time_limit", "status"),
)


def save(folder: Path, lines: Iterable[Line]) -> None:
    """Write all lines, in the order of the published figures."""
    by_task = {line.task: line for line in lines}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for figure in published():
        if figure.task in by_task:
            writer.writerow({name: _shown(value) for name, value in _cells(figure, by_task[figure.task]).items()})
    write_atomically(folder / FILE, text.getvalue().encode(), ReproductionError)


def _cells(figure: Figure, line: Line) -> dict[str, object]:
    return {
        **asdict(line.task),
        "program": figure.program,
        "year": figure.year,
        "published": figure.printed,
        "published_seconds": figure.seconds,
        **(asdict(line.found) if line.found else {}),
        "time_limit": line.limit,
        "status": line.status,
    }


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def load(folder: Path) -> dict[Task, Line]:
    """What a folder holds, by the batches that are still compared with something."""
    path = folder / FILE
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ReproductionError(f"{path} has other columns than this version writes; name another folder")
        try:
            found = [_line(row) for row in rows]
        except (TypeError, ValueError) as error:
            raise ReproductionError(f"{path} is damaged; delete it and run again") from error
    known = {figure.task for figure in published()}
    return {line.task: line for line in found if line.task in known}


def _line(row: dict[str, str]) -> Line:
    if None in row or None in row.values():
        raise ValueError("a line with more or fewer cells than columns")
    numbers = {field.name: float(row[field.name] or math.nan) for field in fields(Found)}
    found = None
    if row["queries"]:
        found = Found(**{**numbers, "queries": int(row["queries"])})  # type: ignore[arg-type]
    task = Task(row["batch"], row["noise"], row["measure"])
    return Line(task, found, row["status"], float(row["time_limit"] or math.nan))
