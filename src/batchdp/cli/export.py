"""`batchdp export`."""

from __future__ import annotations

from typing import Annotated

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.show import progress, say

EXAMPLES = (
    "batchdp export answers.release -o tables",
    "batchdp export answers.release -o tables --format csv --overwrite",
    "batchdp export answers.release -o tables --consistent --whole",
)


def command(
    release: files.ReleaseFile,
    output: files.NewFolder,
    format: Annotated[str, typer.Option(help="parquet or csv.", metavar="FORMAT")] = "parquet",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that an earlier export wrote.", metavar="")
    ] = False,
    consistent: files.WantConsistent = False,
    denoised: files.WantDenoised = False,
    whole: files.Whole = False,
) -> None:
    """Write the tables of a release, one file each: group columns, value, standard_error, low, high.

    With --consistent a last column has values that agree and are not negative, with --denoised estimates whose errors
    are smaller on average; the intervals stay those of value.
    """
    chosen = files.check_format(format)
    loaded = batchdp.load_release(files.find_release(release))
    beside = files.make_beside(loaded, consistent=consistent, denoised=denoised, whole=whole)
    with progress("Writing tables") as report:
        written = batchdp.export(beside or loaded, output, format=chosen, overwrite=overwrite, progress=report)
    say(f"{len(written):,} tables written to {output}.")
    for note in files.list_notes(loaded, beside):
        say(note)
