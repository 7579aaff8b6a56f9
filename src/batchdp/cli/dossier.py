"""`batchdp dossier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

EXAMPLES = (
    "batchdp dossier answers.release -l budget.db --about ABOUT.toml -o folder",
    "batchdp dossier answers.csv -o folder --format parquet --overwrite",
)
SHOWN = 5
"""Missing answers that are named."""


def command(
    release: Annotated[
        Path,
        typer.Argument(metavar="RELEASE", help="A .release file, or the .csv or .json with it.", readable=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder.", metavar="FOLDER", readable=False)],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", "-l", help="What the release was charged to.", metavar="LEDGER", readable=False),
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(help="What only people know; a template is written if missing.", metavar="ABOUT", readable=False),
    ] = None,
    format: Annotated[str, typer.Option(help="Of the tables: csv or parquet.", metavar="FORMAT")] = "csv",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that holds an earlier dossier.", metavar="")
    ] = False,
) -> None:
    """Write what a publication needs: tables, registry record, checklist, note for data users, metadata, evidence.

    Everything follows from the release, the ledger and what people say in ABOUT.toml; nothing is spent.
    """
    from batchdp.cli.files import find_release, open_ledger
    from batchdp.cli.show import progress, say
    from batchdp.release import load_release
    from batchdp.reports.dossier import dossier

    if format not in ("parquet", "csv"):
        raise typer.BadParameter("give parquet or csv", param_hint="--format")
    chosen: Literal["parquet", "csv"] = "parquet" if format == "parquet" else "csv"
    loaded = load_release(find_release(release))
    books = None if ledger is None else open_ledger(ledger)
    with progress("Writing the dossier") as report:
        done = dossier(loaded, output, ledger=books, about=about, format=chosen, overwrite=overwrite, progress=report)
    say(f"{len(done.files) + 1:,} files written to {output}; SHA-256 of SHA256SUMS: {done.digest}.")
    if books is None:
        say("Without --ledger, what all releases add up to is not in it.")
    if done.missing:
        named = ", ".join(one.removeprefix("deployment.") for one in done.missing[:SHOWN])
        more = f" and {len(done.missing) - SHOWN:,} more" if len(done.missing) > SHOWN else ""
        where = about or output / "ABOUT.toml"
        say(f"Still to be said in {where}: {named}{more}; then again with --about {where} --overwrite.")
