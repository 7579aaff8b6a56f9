"""`batchdp records`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.show import ROWS, figure, progress, say, table
from batchdp.errors import ReleaseError

EXAMPLES = (
    "batchdp records answers.release -o records.parquet",
    "batchdp records answers.release -o records.csv -n 10000 --seed 1 --page records.html",
)
ENDINGS = (".parquet", ".csv")


def command(
    release: files.ReleaseFile,
    output: Annotated[
        Path, files.path_option("RECORDS", "Where to write the records: .parquet or .csv.", "--output", "-o")
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "-n", "--number", help="How many; as many as the release says that there are.", metavar="N", min=1
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same release and seed give the same records.", metavar="N", min=0)] = 0,
    name: Annotated[
        str | None,
        typer.Option("--table", help="Whose rows they are, where the release counts several tables.", metavar="NAME"),
    ] = None,
    page: Annotated[
        Path | None, files.path_option("PAGE.html", "A page that shows how close they come, table by table.", "--page")
    ] = None,
    everything: files.All = False,
) -> None:
    """Draw synthetic records: they are nobody's, and their tables are close to the denoised ones of a release.

    Nothing but the release is read, and no budget is spent. What no table of it asks for is not preserved. Ctrl-C gives
    the best so far.
    """
    source = files.find_release(release)
    for path, endings in ((output, ENDINGS), (page, (".html",))):
        if path is not None:
            files.check_output(path, ReleaseError, endings, inputs=(release, source))
    loaded = batchdp.load_release(source)
    say(f"This takes at most some {max(1, round(batchdp.records_memory(loaded, n) / 1e9))} GB of memory.")
    with progress("Drawing records (Ctrl-C: the best so far)") as bar:
        found = batchdp.draw_records(loaded, n, seed, table=name, progress=bar)
    found.save(output)
    console_table(found, everything=everything)
    say(found.summary)
    for note in found.notes:
        say(note)
    say(f"Written to {output}.")
    if page is not None:
        batchdp.report_records(found, page)
        say(f"How close they come: {page}; open it in a browser.")


def console_table(found: Any, *, everything: bool) -> None:
    """Table by table, how far the records are from it, beside its noise."""
    from batchdp.cli.show import console

    shown = found.distances if everything else found.distances[:ROWS]
    rows = [(one.name, f"{one.cells:,}", *map(figure, (one.denoised, one.released, one.noise))) for one in shown]
    more = len(found.distances) - len(shown)
    caption = "As shares of all records; noise is what the released table itself is expected to be off by, at most."
    caption += f" And {more:,} tables more; --all shows them." if more else ""
    headings = ("table", "cells", "off the denoised", "off the released", "its noise")
    console().print(table("How close the records come", headings, rows, caption, important="off the denoised"))
