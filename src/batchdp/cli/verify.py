"""`batchdp verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import batchdp
from batchdp.cli.files import AsJson, Charged, open_ledger, path_argument
from batchdp.cli.show import print_json, say

EXAMPLES = ("batchdp verify folder --ledger budget.db", "batchdp verify folder --json")


def command(
    folder: Annotated[Path, path_argument("FOLDER", "A folder that `batchdp dossier` wrote.")],
    ledger: Charged = None,
    as_json: AsJson = False,
) -> None:
    """Compute a dossier again and compare; say what could not be checked.

    Whatever was edited is refused. Without --ledger, a release that was made up as a whole would not be noticed.
    """
    found = batchdp.verify(folder, ledger=None if ledger is None else open_ledger(ledger))
    if as_json:
        print_json(asdict(found))
        return
    for line in found.checked:
        say(f"checked: {line}")
    for line in found.unchecked:
        say(f"not checked {line}")
    say(f"{folder} is what it claims to be; SHA-256 of SHA256SUMS: {found.digest}.")
