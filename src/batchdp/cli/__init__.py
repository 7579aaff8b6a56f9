"""The command line: it translates and never computes. One command a file; heavy imports wait until a command runs.

Exit codes: 0 done, 1 refused or failed with one clear line on stderr, 2 wrong usage.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

import typer

from batchdp.cli import answer, audit, budget, compare, demo, init, plan, report
from batchdp.errors import BatchDPError

SUMMARY = "Answer a batch of counting queries under differential privacy with the least noise to be had."

app = typer.Typer(
    name="batchdp",
    help=SUMMARY,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"batchdp {version('batchdp')}")
        raise typer.Exit


@app.callback()
def root(
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which version."),
) -> None:
    """Answer a batch of counting queries under differential privacy with the least noise to be had."""


for module in (demo, init, plan, budget, answer, report, compare, audit):
    name = module.__name__.rpartition(".")[2]
    app.command(name, epilog="Examples: " + " · ".join(module.EXAMPLES))(module.command)


def main() -> None:
    """Run the command line; errors of our own become one line and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its figures
    try:
        app()
    except BatchDPError as error:
        print(f"batchdp: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        sys.exit(1)
