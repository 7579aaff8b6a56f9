"""`batchdp change`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.show import console, figure, print_json, say, table
from batchdp.errors import ReleaseError

EXAMPLES = (
    "batchdp change october.release november.release",
    "batchdp change october.release november.release -o change.csv",
)
HEADINGS = ("query", "old", "new", "difference", "from", "to", "ratio", "from", "to")
SHOWN = ("name", "old", "new", "difference", "low", "high", "ratio", "ratio_low", "ratio_high")


def command(
    old: Annotated[Path, files.path_argument("OLD", "The earlier release, of one snapshot.")],
    new: Annotated[Path, files.path_argument("NEW", "The later release, of another snapshot.")],
    output: Annotated[
        Path | None, files.path_option("OUT", "Where to write the table: .csv, .json or .html.", "--output", "-o")
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Of the intervals; the new release's if left out.", metavar="SHARE")
    ] = None,
    as_json: files.AsJson = False,
) -> None:
    """Show what changed between two releases: differences and ratios with intervals, from the releases alone."""
    if output is not None:
        files.check_output(output, ReleaseError, (".csv", ".json", ".html"), inputs=(old, new))
    found = batchdp.change(
        *(batchdp.load_release(files.find_release(one)) for one in (old, new)), confidence=confidence
    )
    if output is not None:
        _write(found, output)
    if as_json:
        print_json({**found.attrs, "changes": found.to_dict("records")})
        return
    rows = ((name, *map(_figure, figures)) for name, *figures in found[list(SHOWN)].itertuples(index=False))
    title = f"{found.attrs['old']} to {found.attrs['new']}, {100 * found.attrs['confidence']:g} % intervals"
    console().print(table(title, HEADINGS, rows, important="difference"))
    say(f"Charged: {found.attrs['charges']}.")
    if output is not None:
        say(f"Written to {output}.")


def _figure(value: float) -> str:
    return "" if math.isnan(value) else figure(value)


def _write(found: Any, output: Path) -> None:
    from batchdp.archive import write_atomically
    from batchdp.release.exports import no_formula

    if output.suffix.lower() == ".json":
        text = found.to_json(orient="records", indent=2, force_ascii=False)
    elif output.suffix.lower() == ".html":
        from batchdp.reports.changes import change_page

        text = change_page(found)
    else:
        text = found.assign(name=found["name"].map(no_formula), table=found["table"].map(no_formula)).to_csv(
            index=False
        )
    write_atomically(output, text.encode(), ReleaseError)
