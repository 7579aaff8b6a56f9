"""A run over the published figures: what is missing is planned, one batch a process, and kept at once."""

from __future__ import annotations

from pathlib import Path

from batchdp.text import Progress
from reproduction.peers.figures import Task, published
from reproduction.peers.journal import Line, load, save
from reproduction.peers.measuring import measure
from reproduction.processes import run_jobs

QUICK = frozenset({"CPS 1-way", "CPS 2-way", "CPS 3-way", "CPS ≤ 3-way", "Adult 1-way", "10^10 ≤ 3-way", "CPS all"})
"""Batches that take next to nothing."""


def run(
    folder: Path, *, quick: bool = False, workers: int = 1, seconds: float, progress: Progress | None = None
) -> None:
    """Measure what the folder does not hold yet; what failed is tried again, what was too slow with more time."""
    lines = load(folder)
    tasks = list(dict.fromkeys(figure.task for figure in published() if not quick or figure.task.batch in QUICK))
    missing = [task for task in tasks if not _is_done(lines.get(task), seconds)]
    for done, ended in enumerate(run_jobs(missing, measure, workers=workers, seconds=seconds), start=1):
        lines[ended.job] = Line(ended.job, ended.result, ended.failure, ended.limit)
        save(folder, lines.values())
        if progress is not None:
            progress(done / len(missing), _words(ended.job))


def _is_done(line: Line | None, seconds: float) -> bool:
    return line is not None and (line.found is not None or line.limit >= seconds)


def _words(task: Task) -> str:
    return f"{task.batch}, {task.noise} noise, {task.measure}"
