"""`python -m reproduction`, in a clone of the repository."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchdp import cli
from batchdp.cli.show import progress, say
from batchdp.cli.streams import InterruptedCommandError
from reproduction.evaluation import publish, reproduce
from reproduction.journal import read_all

EXAMPLES = (
    "python -m reproduction all --quick",
    "python -m reproduction figure-5 figure-7 -o results --workers 4",
    "python -m reproduction all -o results --data originals",
)

app = typer.Typer(
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Target(StrEnum):
    """What can be reproduced."""

    table_1 = "table-1"
    examples = "examples"
    figure_2 = "figure-2"
    figure_3 = "figure-3"
    figure_4 = "figure-4"
    figure_5 = "figure-5"
    figure_6 = "figure-6"
    figure_7 = "figure-7"
    figure_8 = "figure-8"
    figure_9 = "figure-9"
    peers = "peers"
    all = "all"


@app.command(epilog="\n".join(("Examples:", *(f"  {line}" for line in EXAMPLES))))
def command(
    targets: Annotated[
        list[Target],
        typer.Argument(metavar="FIGURE…", help="`figure-2` to `figure-9`, `table-1`, `examples`, `peers` or `all`."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for CSVs and pictures.", metavar="DIR")
    ] = Path("results"),
    quick: Annotated[
        bool, typer.Option("--quick", help="An eighth of the sizes: minutes, not days.", metavar="")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="A folder with the original datasets; stand-ins if left out.", metavar="DIR")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="How many strategies to look for at a time; as many as there are cores if left out.",
            metavar="N",
            min=1,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Computing time for one strategy; 300 if left out, 20 with --quick.", metavar="S"),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Where the page goes; README.md in the folder if left out.", metavar="PAGE.md")
    ] = None,
    draw: Annotated[
        bool, typer.Option("--draw", help="Only draw and judge what the folder holds.", metavar="")
    ] = False,
) -> None:
    """Measure the paper's evaluation again: figures as CSV, PNG and SVG, and its claims with verdicts.

    `peers` plans what others publish about batches over many columns, and says who is ahead.

    A run that was interrupted continues where it left off. Its noise is simulated: these are experiments, not releases.
    """
    if draw:
        publish(output, page)
    else:
        try:
            with progress("Measuring", time_left=True) as report:
                reproduce(
                    [target.value for target in targets],
                    output,
                    quick=quick,
                    data=data,
                    workers=workers,
                    seconds=seconds,
                    page_at=page,
                    progress=report,
                )
        except KeyboardInterrupt:
            raise InterruptedCommandError("the same command continues where it left off") from None
    rows = read_all(output)
    lost = sum(not row.ok for row in rows)
    say(f"{len(rows):,} points, {lost:,} of them without figures. Read {page or output / 'README.md'}.")


def main() -> None:
    """Run the command: every error ends as one line on stderr and an exit code, as with `batchdp`."""
    cli.main(app)


if __name__ == "__main__":
    main()
