"""A run's results: one CSV a figure, written point by point, so that a run that was killed goes on where it was."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from filelock import FileLock, Timeout

from batchdp.archive import write_atomically
from batchdp.text import Outcome
from reproduction.errors import ReproductionError
from reproduction.parameters import FIGURES
from reproduction.points import Batch, Point, Task

RUN = "run.json"
LOCK = ".lock"


@dataclass(frozen=True)
class Row:
    """A point with its figures, as a line of a CSV; empty where there is none."""

    figure: str
    workload: str
    mechanism: str
    m: int
    n: int
    s: int
    ratio: float
    """r / rank(W) as asked for; 0 where the mechanism has no r."""
    gamma: float
    epsilon: float
    dataset: str
    r: int
    error: float
    """Average squared error per query, in closed form."""
    noise: float
    """Of that, what the noise adds."""
    structural: float
    """And what ‖(W − B L) x‖² adds."""
    simulated: float
    """Average over the repetitions of the noise."""
    standard_error: float
    """Of that average, from the noise's law."""
    residual: float
    """‖W − B L‖_F / ‖W‖_F."""
    seconds: float
    """Of computing, to find the strategy."""
    limit: float
    """The seconds of computing that were not enough; empty where that is not why figures are missing."""
    status: str
    """How the search ended, or in words why there are no figures."""

    @property
    def point(self) -> Point:
        """What was measured."""
        batch = Batch(self.n, self.m, self.workload, self.s)
        return Point(self.figure, Task(batch, self.mechanism, self.ratio, self.gamma), self.dataset, self.epsilon)

    @property
    def ok(self) -> bool:
        """Whether there are figures."""
        return not math.isnan(self.error)

    @property
    def fell_back(self) -> bool:
        """Whether the search failed, so that its start is all there is."""
        return self.ok and Outcome.read(self.status).fell_back

    @property
    def gave_up(self) -> bool:
        """Whether the search ended before B L was W, which was mended afterwards."""
        return self.ok and Outcome.read(self.status) is Outcome.PENALTY_AT_LIMIT

    def too_slow(self, seconds: float) -> bool:
        """Whether so much time is known not to be enough."""
        return self.limit >= seconds  # which nothing is that is not known


COLUMNS = tuple(field.name for field in fields(Row))
_NUMBERS = {field.name: {"int": int, "float": float}[str(field.type)] for field in fields(Row) if field.type != "str"}


def row_for(point: Point, figures: dict[str, float | int | str]) -> Row:
    """A line for a point; figures that are left out are unknown."""
    batch = point.task.batch
    known: dict[str, float | int | str] = {
        "figure": point.figure,
        "workload": batch.workload,
        "mechanism": point.task.mechanism,
        "m": batch.queries,
        "n": batch.cells,
        "s": batch.base,
        "ratio": point.task.ratio,
        "gamma": point.task.relaxation,
        "epsilon": point.epsilon,
        "dataset": point.dataset,
        "r": 0,
        **dict.fromkeys(
            ("error", "noise", "structural", "simulated", "standard_error", "residual", "seconds", "limit"), math.nan
        ),
    }
    return Row(**{**known, **figures})  # type: ignore[arg-type]


def text_of(rows: Iterable[Row]) -> str:
    """Lines without a header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_shown(getattr(row, name)) for name in COLUMNS] for row in rows)
    return text.getvalue()


def _shown(value: float | int | str) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    return str(value)


def read(path: Path) -> list[Row]:
    """The rows of a CSV, the last of each point; a last line that was cut off by a kill is left out."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    lines = csv.reader(io.StringIO(whole))
    header = next(lines, None)
    if header is None:
        return []
    if tuple(header) != COLUMNS:
        raise ReproductionError(f"{path} has other columns than this version writes; name another folder")
    rows: dict[Point, Row] = {}
    for number, line in enumerate(lines, start=2):
        try:
            row = Row(**{name: _value(name, cell) for name, cell in zip(COLUMNS, line, strict=True)})  # type: ignore[arg-type]
        except ValueError as error:
            raise ReproductionError(f"{path}, line {number} is damaged; delete the line and run again") from error
        rows[row.point] = row
    return list(rows.values())


def _value(name: str, cell: str) -> float | int | str:
    if name not in _NUMBERS:
        return cell
    return _NUMBERS[name](cell) if cell else math.nan


def read_all(folder: Path) -> list[Row]:
    """The rows of all figures in a folder."""
    return [row for name in FIGURES if (file := folder / f"{name}.csv").exists() for row in read(file)]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One run at a time in a folder. The lock is one of the system's, so it ends with the process in any case."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ReproductionError(f"another run is going on in {folder}; wait, or name another folder") from error
    except OSError as error:
        raise ReproductionError(f"cannot lock {folder / LOCK}: {error}") from error
    try:
        yield
    finally:
        lock.release()


class Journal:
    """The CSVs of a run that is going on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows = {row.point: row for row in read_all(folder)}

    def add(self, rows: Iterable[Row]) -> None:
        """Append to the CSVs of their figures, and make sure that it is on the disk."""
        by_figure: dict[str, list[Row]] = {}
        for row in rows:
            self.rows[row.point] = row
            by_figure.setdefault(row.figure, []).append(row)
        for figure, added in by_figure.items():
            path = self._folder / f"{figure}.csv"
            if path.exists():
                _drop_torn_line(path)
            with path.open("a", encoding="utf-8") as file:
                if file.tell() == 0:
                    file.write(",".join(COLUMNS) + "\n")
                file.write(text_of(added))
                file.flush()
                os.fsync(file.fileno())

    def tidy(self) -> None:
        """Rewrite each CSV in order: the same points give the same file, however often the run was broken off."""
        for figure in FIGURES:
            rows = sorted((row for row in self.rows.values() if row.figure == figure), key=lambda row: row.point)
            if rows:
                content = ",".join(COLUMNS) + "\n" + text_of(rows)
                write_atomically(self._folder / f"{figure}.csv", content.encode(), ReproductionError)


def _drop_torn_line(path: Path) -> None:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


@dataclass(frozen=True)
class Settings:
    """What must not change while a run goes on."""

    quick: bool
    originals: bool
    data: str
    """The digest of the counts."""
    seconds: float
    """The largest limit of computing time so far; going on with a larger one tries again what was too slow."""

    def save(self, folder: Path) -> None:
        """Write it beside the results."""
        write_atomically(folder / RUN, (json.dumps(self.__dict__, indent=2) + "\n").encode(), ReproductionError)


def settings_of(folder: Path) -> Settings | None:
    """Those that a folder's results were made with."""
    path = folder / RUN
    if not path.exists():
        return None
    try:
        return Settings(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ReproductionError(f"{path} is damaged; name another folder") from error


def resume(folder: Path, settings: Settings) -> Journal:
    """The journal of a run that begins or goes on; runs of different kinds are not mixed."""
    before, journal = settings_of(folder), Journal(folder)
    if before is None and journal.rows:
        raise ReproductionError(f"{folder} holds results, but not what they were made with; name another folder")
    if before is not None:
        for name, what in (("quick", "sizes (--quick)"), ("data", "data (--data)")):
            if getattr(before, name) != getattr(settings, name):
                raise ReproductionError(f"{folder} holds a run with other {what}; name another folder")
        settings = replace(settings, seconds=max(before.seconds, settings.seconds))
    settings.save(folder)
    return journal
