"""The command line: it translates and never computes.

Exit codes: 0 done, 1 refused or failed with one clear line on stderr, 2 wrong usage.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from io import TextIOWrapper
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from batchdp.cli.files import read_matrix
from batchdp.cli.show import comparison_table, console, tracked
from batchdp.errors import BatchDPError

app = typer.Typer(
    name="batchdp",
    help="Answer a batch of counting queries under differential privacy with the least noise to be had.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"batchdp {version('batchdp')}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")] = False,
) -> None:
    """Answer a batch of counting queries under differential privacy with the least noise to be had."""


@app.command(epilog="Example: batchdp demo")
def demo() -> None:
    """Show what each mechanism makes of the two examples in the paper's introduction."""
    from batchdp.demo import EXAMPLES, introduction

    for title, comparison in introduction().items():
        console.print(comparison_table(comparison, title, EXAMPLES[title].names))
    console.print(
        "Next: put your own queries in a matrix, one query a row and one cell a column, and run\n"
        "  batchdp compare MATRIX.csv"
    )


@app.command(epilog="Example: batchdp compare queries.npy --json")
def compare(
    matrix: Annotated[Path, typer.Argument(help="The workload: .npy, .npz (scipy.sparse) or .csv.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """Run every method on a workload and show their expected errors side by side; no data is read."""
    from batchdp.comparison import compare as run

    comparison = run(read_matrix(matrix), progress=lambda names: tracked(names, "Optimising"))
    if as_json:
        print(dumps(asdict(comparison), indent=2))
    else:
        console.print(comparison_table(comparison, str(matrix)))


def main() -> None:
    """Run the command line; errors of our own become one line and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its figures
    try:
        app()
    except BatchDPError as error:
        print(f"batchdp: {error}", file=sys.stderr)
        sys.exit(1)
