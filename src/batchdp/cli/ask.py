"""`batchdp ask`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.answer import show_answers
from batchdp.cli.show import print_json, say
from batchdp.errors import ReleaseError

EXAMPLES = (
    "batchdp ask answers.release more.sql",
    "batchdp ask answers.release more.sql -o more.csv",
    "batchdp ask answers.release more.sql --standard-error 20",
)
ENDINGS = (".csv", ".json")


def command(
    release: files.ReleaseFile,
    queries: Annotated[Path, files.path_argument("QUERIES.sql", "SELECT statements over the release's domain.")],
    output: Annotated[
        Path | None, files.path_option("OUT", "Where to write the answers: .csv or .json.", "--output", "-o")
    ] = None,
    standard_error: Annotated[
        float | None,
        typer.Option(help="Say what the rest would cost at this accuracy; the release's own if left out.", metavar="N"),
    ] = None,
    everything: files.All = False,
    as_json: files.AsJson = False,
) -> None:
    """Answer more questions from what a release has measured: nothing is read and nothing is charged.

    What does not follow from it is listed, with what a new release of it would cost.
    """
    if output is not None:
        files.check_output(output, ReleaseError, ENDINGS, inputs=(release, queries))
    done = batchdp.load_release(files.find_release(release)).ask(queries)
    if output is not None:
        files.write_answers(done, output)
    if as_json:
        print_json(files.free_as_json(done))
        return
    show_answers(done, everything=everything)
    say(f"All of it follows from release {done.certificate.release_id}: nothing was read or charged.")
    for missing in done.missing:
        say(f"Not answered: {missing}.")
    if done.missing:
        say(f"{done.price(standard_error)}.")
    if output is not None:
        say(f"Written to {output}.")
