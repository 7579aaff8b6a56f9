"""`batchdp verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from batchdp.cli.files import AsJson

EXAMPLES = ("batchdp verify folder --ledger budget.db", "batchdp verify folder --json")


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that `batchdp dossier` wrote.", readable=False)
    ],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", "-l", help="What the release was charged to.", metavar="LEDGER", readable=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a dossier again and compare; say what could not be checked.

    Whatever was edited is refused. Without --ledger, a release that was made up as a whole would not be noticed.
    """
    from batchdp.cli.files import open_ledger
    from batchdp.cli.show import print_json, say
    from batchdp.reports.dossier import verify

    found = verify(folder, ledger=None if ledger is None else open_ledger(ledger))
    if as_json:
        print_json(asdict(found))
        return
    for line in found.checked:
        say(f"checked: {line}")
    for line in found.unchecked:
        say(f"not checked {line}")
    say(f"{folder} is what it claims to be; SHA-256 of SHA256SUMS: {found.digest}.")
