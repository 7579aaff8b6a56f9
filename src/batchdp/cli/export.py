"""`batchdp export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from batchdp.cli.files import WantConsistent, Whole

EXAMPLES = (
    "batchdp export answers.release -o tables",
    "batchdp export answers.release -o tables --format csv --overwrite",
    "batchdp export answers.release -o tables --consistent --whole",
)


def command(
    release: Annotated[
        Path,
        typer.Argument(metavar="RELEASE", help="A .release file, or the .csv or .json with it.", readable=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder.", metavar="FOLDER", readable=False)],
    format: Annotated[str, typer.Option(help="parquet or csv.", metavar="FORMAT")] = "parquet",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that an earlier export wrote.", metavar="")
    ] = False,
    consistent: WantConsistent = False,
    whole: Whole = False,
) -> None:
    """Write the tables of a release, one file each: group columns, value, standard_error, low, high.

    With --consistent a last column has values that agree and are not negative; the intervals stay those of value.
    """
    from batchdp.cli.files import find_release, made_consistent
    from batchdp.cli.show import progress, say
    from batchdp.release import load_release
    from batchdp.release.exports import export

    if format not in ("parquet", "csv"):
        raise typer.BadParameter("give parquet or csv", param_hint="--format")
    chosen: Literal["parquet", "csv"] = "csv" if format == "csv" else "parquet"
    loaded = load_release(find_release(release))
    agreeing = made_consistent(loaded, whole=whole) if consistent or whole else None
    with progress("Writing tables") as report:
        files = export(agreeing or loaded, output, format=chosen, overwrite=overwrite, progress=report)
    say(f"{len(files):,} tables written to {output}.")
    for note in (*loaded.notes, *(agreeing.notes if agreeing else ())):
        say(note)
