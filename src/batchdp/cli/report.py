"""`batchdp report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = (
    "batchdp report answers.release -o page.html",
    "batchdp report answers.release -o page.html --ledger budget.db --plan patients.plan",
)


def command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release written by `batchdp answer`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")],
    ledger: Annotated[Path | None, typer.Option("--ledger", "-l", help="Show its history as a timeline.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Show every method's expected error for this plan.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
) -> None:
    """Write one self-contained page: answers, intervals, the mechanism and why it is private."""
    from batchdp.cli.files import beside, checked_output
    from batchdp.cli.show import console, tracked
    from batchdp.errors import ReleaseError
    from batchdp.ledger import Ledger
    from batchdp.release import load_release
    from batchdp.reports import report

    checked_output(output, ReleaseError)
    loaded = load_release(beside(release))
    opened = None if ledger is None else Ledger.open(ledger)
    compared = None
    if plan is not None:
        from batchdp.comparison import compare
        from batchdp.plans import load_plan

        compared = compare(load_plan(plan).workload, progress=lambda names: tracked(names, "Comparing"))
    report(
        loaded,
        output,
        ledger=opened,
        methods=() if compared is None else compared.methods,
        lower_bound=None if compared is None else compared.lower_bound,
        title=title,
    )
    console.print(f"Written to {output}; open it in a browser.", soft_wrap=True, markup=False, highlight=False)
