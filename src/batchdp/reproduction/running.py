"""A run of the evaluation: which points are still missing, the least work first, and every result to the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from batchdp.errors import ReproductionError
from batchdp.reproduction.datasets import Collection, merged
from batchdp.reproduction.journal import Journal, Row, Settings, row_for, settings_of
from batchdp.reproduction.measuring import Job
from batchdp.reproduction.parameters import Table
from batchdp.reproduction.points import Point, Task, points_of
from batchdp.reproduction.processes import Ended, run_jobs

Progress = Callable[[float, str], None]
"""Called with (share of the work that is done, what ended last)."""

EFFORT = {
    "LM": 0.01,
    "WM": 0.01,
    "HM": 0.02,
    "MM": 4.0,
    "LRM": 3.0,
    "LRM-printed": 10.0,
    "p-Identity": 0.5,
    "optimize": 3.0,
}
"""Roughly how much work a mechanism is for the same workload; for the time that is left."""


def run(
    folder: Path,
    figures: Sequence[str],
    table: Table,
    collection: Collection,
    *,
    quick: bool,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Measure every point of these figures that the folder does not hold yet; returns the rows of all that it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(quick, collection.originals, collection.digest, table.seconds)
    journal = Journal(folder)
    _continue(folder, settings, journal)
    wanted = [point for figure in figures for point in points_of(figure, table)]
    _copy_between_figures(journal, wanted)
    missing: dict[Task, list[Point]] = {}
    for point in wanted:
        if point not in journal.rows:
            missing.setdefault(_found_by(point.task), []).append(point)
    everything = sum(map(_effort, missing)) or 1.0
    queue = _queue(missing, journal, collection, table)
    for ended in run_jobs(queue, workers=workers, seconds=table.seconds):
        journal.add(_rows(ended, missing.pop(ended.job.task)))
        if progress is not None:
            batch = ended.job.task.batch
            doing = f"{ended.job.task.mechanism}, {batch.workload} {batch.queries} × {batch.cells}"
            progress(1 - sum(map(_effort, missing)) / everything, doing)
    journal.tidy()
    return list(journal.rows.values())


def _found_by(task: Task) -> Task:
    """The Gaussian optimum comes with the bound."""
    return replace(task, mechanism="Gaussian") if task.mechanism == "bound" else task


def _continue(folder: Path, settings: Settings, journal: Journal) -> None:
    """Refuse to mix runs; with more time than before, forget what was too slow."""
    before = settings_of(folder)
    if before is None and journal.rows:
        raise ReproductionError(f"{folder} holds results, but not what they were made with; name another folder")
    if before is not None:
        for name, what in (("quick", "sizes (--quick)"), ("data", "data (--data)")):
            if getattr(before, name) != getattr(settings, name):
                raise ReproductionError(f"{folder} holds a run with other {what}; name another folder")
        if before.seconds < settings.seconds:
            journal.rows = {point: row for point, row in journal.rows.items() if row.ok}
        elif before.seconds > settings.seconds:
            settings = before
    settings.save(folder)


def _copy_between_figures(journal: Journal, wanted: Sequence[Point]) -> None:
    """A point that another figure has measured is not measured again."""
    known = {replace(point, figure=""): row for point, row in journal.rows.items()}
    copies = [
        replace(row, figure=point.figure)
        for point in wanted
        if point not in journal.rows and (row := known.get(replace(point, figure=""))) is not None
    ]
    journal.add(copies)


def _queue(missing: dict[Task, list[Point]], journal: Journal, collection: Collection, table: Table) -> Iterator[Job]:
    """The least work first: a part is of use. What was too slow on a smaller workload is not tried on a larger one."""
    for task in sorted(sorted(missing), key=_effort):
        smaller = next((row for row in journal.rows.values() if _too_slow(row, task)), None)
        if smaller is not None:
            status = f"skipped: took more than {table.seconds:g} s already at {smaller.m} × {smaller.n}"
            journal.add([row_for(point, {"status": status}) for point in missing.pop(task)])
            continue
        wanted = tuple(dict.fromkeys(map(_figures_of, missing[task])))
        counts = {name: merged(collection.counts[name], task.batch.cells) for _, name, _ in wanted}
        yield Job(task, wanted, counts, table.repetitions)


def _figures_of(point: Point) -> tuple[str, str, float]:
    """What a point wants of its strategy."""
    return point.task.mechanism, point.dataset, point.epsilon


def _too_slow(row: Row, task: Task) -> bool:
    slow = row.point.task
    return (
        row.status.startswith("skipped")
        and slow.mechanism == task.mechanism
        and slow.ratio <= task.ratio
        and slow.relaxation >= task.relaxation
        and slow.batch.within(task.batch)
    )


def _rows(ended: Ended, points: Sequence[Point]) -> list[Row]:
    if ended.failure:
        return [row_for(point, {"status": ended.failure}) for point in points]
    figures = dict(zip(ended.job.wanted, ended.measured, strict=True))
    return [row_for(point, asdict(figures[_figures_of(point)])) for point in points]


def _effort(task: Task) -> float:
    entries = float(task.batch.cells * task.batch.queries)
    return float(EFFORT.get(task.mechanism, 0.1) * entries**1.2 * max(task.ratio, 1.0) ** 2)
