"""`batchdp dossier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import batchdp
from batchdp.cli.files import Charged, NewFolder, ReleaseFile, check_format, find_release, open_ledger, path_option
from batchdp.cli.show import progress, say

EXAMPLES = (
    "batchdp dossier answers.release -l budget.db --about ABOUT.toml -o folder",
    "batchdp dossier answers.csv -o folder --format parquet --overwrite",
)
SHOWN = 5
"""Missing answers that are named."""


def command(
    release: ReleaseFile,
    output: NewFolder,
    ledger: Charged = None,
    about: Annotated[
        Path | None, path_option("ABOUT", "What only people know; a template is written if missing.")
    ] = None,
    format: Annotated[str, typer.Option(help="Of the tables: csv or parquet.", metavar="FORMAT")] = "csv",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that holds an earlier dossier.", metavar="")
    ] = False,
) -> None:
    """Write what a publication needs: tables, registry record, checklist, note for data users, metadata, evidence.

    Everything follows from the release, the ledger and what people say in ABOUT.toml; nothing is spent.
    """
    chosen = check_format(format)
    loaded = batchdp.load_release(find_release(release))
    books = None if ledger is None else open_ledger(ledger)
    with progress("Writing the dossier") as report:
        done = batchdp.dossier(
            loaded, output, ledger=books, about=about, format=chosen, overwrite=overwrite, progress=report
        )
    say(f"{len(done.files) + 1:,} files written to {output}; SHA-256 of SHA256SUMS: {done.digest}.")
    if books is None:
        say("Without --ledger, what all releases add up to is not in it.")
    if done.missing:
        named = ", ".join(one.removeprefix("deployment.") for one in done.missing[:SHOWN])
        more = f" and {len(done.missing) - SHOWN:,} more" if len(done.missing) > SHOWN else ""
        where = about or output / "ABOUT.toml"
        say(f"Still to be said in {where} for the record: {named}{more}; then again with --about {where} --overwrite.")
