"""A run of the evaluation: which points are still missing, the least work first, and every result to the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from batchdp.text import Progress
from reproduction.datasets import Collection, merged
from reproduction.journal import Journal, Row, row_for
from reproduction.measuring import Job, Measured, measure
from reproduction.parameters import Table
from reproduction.points import Point, Task, points_of
from reproduction.processes import Ended, run_jobs

EFFORT = {"LM": 0.01, "WM": 0.01, "HM": 0.02, "LRM": 3.0, "p-Identity": 0.5, "optimize": 3.0}
"""Roughly how much work a mechanism is for the same workload; for what comes first, and the time that is left."""
SQUARED = {"LRM-printed": 1.5}
"""The same for those that multiply r × r matrices with every column."""
CUBED = {"MM": 0.25}
"""The same for those that work on n × n matrices, whatever the rank."""


def run(
    journal: Journal,
    figures: Sequence[str],
    table: Table,
    collection: Collection,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> None:
    """Measure every point of these figures that the journal does not hold yet; what failed is tried again."""
    wanted = [point for figure in figures for point in points_of(figure, table)]
    _copy_between_figures(journal, wanted)
    missing: dict[Task, list[Point]] = {}
    for point in wanted:
        row = journal.rows.get(point)
        if row is None or not (row.ok or row.too_slow(table.seconds)):
            missing.setdefault(found_by(point.task), []).append(point)
    everything = sum(map(_effort, missing)) or 1.0
    queue = _queue(missing, journal, collection, table)
    for ended in run_jobs(queue, measure, workers=workers, seconds=table.seconds):
        journal.add(_rows(ended, missing.pop(ended.job.task)))
        if progress is not None:
            batch = ended.job.task.batch
            doing = f"{ended.job.task.mechanism}, {batch.workload} {batch.queries} × {batch.cells}"
            progress(1 - sum(map(_effort, missing)) / everything, doing)
    journal.tidy()


def found_by(task: Task) -> Task:
    """The Gaussian optimum comes with the bound."""
    return replace(task, mechanism="Gaussian") if task.mechanism == "bound" else task


def _copy_between_figures(journal: Journal, wanted: Sequence[Point]) -> None:
    """A point that another figure has measured is not measured again."""
    known = {replace(point, figure=""): row for point, row in journal.rows.items() if row.ok}
    wanted = [point for point in wanted if not (point in journal.rows and journal.rows[point].ok)]
    rows = {point: known.get(replace(point, figure="")) for point in wanted}
    journal.add(replace(row, figure=point.figure) for point, row in rows.items() if row is not None)


def _queue(missing: dict[Task, list[Point]], journal: Journal, collection: Collection, table: Table) -> Iterator[Job]:
    """The least work first: a part is of use. What was too slow on a smaller workload is not tried on a larger one."""
    for task in sorted(sorted(missing), key=_effort):
        smaller = next((row for row in journal.rows.values() if _too_slow(row, task, table.seconds)), None)
        if smaller is not None:
            status = f"skipped: took more than {table.seconds:g} s already at {smaller.m} × {smaller.n}"
            journal.add([row_for(point, {"status": status, "limit": table.seconds}) for point in missing.pop(task)])
            continue
        wanted = tuple(dict.fromkeys(map(_figures_of, missing[task])))
        counts = {name: merged(collection.counts[name], task.batch.cells) for _, name, _ in wanted}
        yield Job(task, wanted, counts, table.repetitions)


def _figures_of(point: Point) -> tuple[str, str, float]:
    """What a point wants of its strategy."""
    return point.task.mechanism, point.dataset, point.epsilon


def _too_slow(row: Row, task: Task, seconds: float) -> bool:
    slow = row.point.task
    return (
        row.too_slow(seconds)
        and slow.mechanism == task.mechanism
        and (slow.ratio, slow.relaxation) == (task.ratio, task.relaxation)
        and slow.batch.within(task.batch)
    )


def _rows(ended: Ended[Job, list[Measured]], points: Sequence[Point]) -> list[Row]:
    if ended.result is None:
        return [row_for(point, {"status": ended.failure, "limit": ended.limit}) for point in points]
    figures = dict(zip(ended.job.wanted, ended.result, strict=True))
    return [row_for(point, asdict(figures[_figures_of(point)])) for point in points]


def _effort(task: Task) -> float:
    batch = task.batch
    if task.mechanism in CUBED:
        return CUBED[task.mechanism] * float(batch.cells) ** 3
    rank = batch.base or min(batch.queries, batch.cells)
    if task.mechanism in SQUARED:
        return SQUARED[task.mechanism] * batch.cells * float(rank) ** 2
    entries = float(batch.cells * rank)
    return float(EFFORT.get(task.mechanism, 0.1) * entries**1.2 * max(task.ratio, 1.0) ** 2)
