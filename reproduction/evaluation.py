"""`reproduce`: run, draw, judge and write, from a list of figures to a page."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from batchdp.archive import write_atomically
from batchdp.errors import check_finite, check_whole
from batchdp.text import Progress
from reproduction import examples
from reproduction.datasets import originals, stand_ins
from reproduction.drawing import draw, has_curves
from reproduction.errors import ReproductionError
from reproduction.journal import Row, Settings, locked, read_all, resume, settings_of
from reproduction.page import page
from reproduction.parameters import FIGURES, PAPER, PEERS, QUICK, TARGETS, Table
from reproduction.peers import journal as peers_journal
from reproduction.peers import running as peers_running
from reproduction.peers import section
from reproduction.peers.verdicts import verdicts
from reproduction.running import run


def reproduce(
    targets: Sequence[str],
    folder: Path,
    *,
    quick: bool = False,
    data: Path | None = None,
    workers: int | None = None,
    seconds: float | None = None,
    page_at: Path | None = None,
    table: Table | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Measure what the folder does not hold yet, then draw and judge all that it holds.

    Args:
        targets: of `TARGETS`, or "all".
        folder: where CSVs and pictures go; a run that was broken off is continued.
        quick: smaller sizes.
        data: a folder with the original datasets; stand-ins if left out.
        workers: how many strategies are looked for at a time; as many as there are cores if left out.
        seconds: of computing for one strategy.
        page_at: where the page goes; README.md in the folder if left out.
        table: parameters of one's own.
        progress: called with (share of the work that is done, what ended last).
    """
    wanted = _checked(targets)
    workers = cores() if workers is None else check_whole("workers", workers, 1, ReproductionError)
    table = table or (QUICK if quick else PAPER)
    if seconds is not None:
        table = replace(table, seconds=check_finite("seconds", seconds, above=0))
    collection = stand_ins() if data is None else originals(data, max(table.cells))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        journal = resume(folder, Settings(quick, collection.originals, collection.digest, table.seconds))
        if "table-1" in wanted:
            _save_table(table, folder)
        if "examples" in wanted:
            examples.save(folder)
        figures = [target for target in wanted if target in FIGURES]
        run(journal, figures, table, collection, workers=workers, progress=progress)
        if PEERS in wanted:
            peers_running.run(folder, quick=quick, workers=workers, seconds=table.seconds, progress=progress)
        publish(folder, page_at, table)
    return list(journal.rows.values())


def cores() -> int:
    """How many this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def publish(folder: Path, page_at: Path | None = None, table: Table | None = None) -> None:
    """Draw and judge what a folder holds, without measuring anything."""
    settings = settings_of(folder)
    if settings is None:
        raise ReproductionError(f"{folder} holds no results of this command")
    rows = read_all(folder)
    for figure in FIGURES:
        if has_curves(figure, rows):
            draw(figure, rows, folder)
    others = verdicts(peers_journal.load(folder))
    if any(one.found for one in others):
        section.draw(others, folder)
    page_at = page_at or folder / "README.md"
    pictures = Path(os.path.relpath(folder, page_at.parent)).as_posix()
    text = page(rows, examples.load(folder), others, settings, table or (QUICK if settings.quick else PAPER), pictures)
    write_atomically(page_at, text.encode(), ReproductionError)


def _checked(targets: Sequence[str]) -> list[str]:
    unknown = [target for target in targets if target not in (*TARGETS, "all")]
    if unknown or not targets:
        raise ReproductionError(f"target={(unknown or [''])[0]!r} must be one of {', '.join(TARGETS)} or all")
    return [target for target in TARGETS if target in targets or "all" in targets]


def _save_table(table: Table, folder: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("parameter", "values", "default"))
    writer.writerows(table.rows())
    write_atomically(folder / "table-1.csv", text.getvalue().encode(), ReproductionError)
