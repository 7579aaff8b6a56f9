"""`batchdp combine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.answer import show_answers
from batchdp.cli.show import say, say_rules
from batchdp.errors import ReleaseError

EXAMPLES = ("batchdp combine monday.release tuesday.release -o both.release",)


def command(
    releases: Annotated[
        list[Path], files.path_argument("RELEASE...", "Releases about the same records: .release files, or their .csv.")
    ],
    output: Annotated[Path, files.path_option("OUT", "A new .release, .csv or .json file.", "--output", "-o")],
    ledger: files.Charged = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.", metavar="SHARE")] = 0.95,
    verbose: files.Verbose = False,
) -> None:
    """Make one release of several about the same records, with smaller errors; nothing is read or spent.

    Least squares over all that was measured. Refused where snapshots, tables, units or caps differ.
    """
    files.check_output(output, ReleaseError, files.RELEASE_ENDINGS, inputs=releases)
    loaded = [batchdp.load_release(files.find_release(one)) for one in releases]
    books = None if ledger is None else files.open_ledger(ledger)
    done = batchdp.combine(loaded, ledger=books, confidence=confidence)
    written = files.write_release(done, output)
    show_answers(done)
    named = ", ".join(f"{one.certificate.release_id} ({one.certificate.strength})" for one in done.parts)
    say(f"Written to {output}" + (f" and {written}" if written != output else "") + f", combined from {named}.")
    say_rules(done.notes, verbose=verbose)
