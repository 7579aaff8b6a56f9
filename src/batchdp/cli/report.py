"""`batchdp report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from batchdp.cli.options import WantConsistent, Whole

EXAMPLES = (
    "batchdp report answers.release -o page.html",
    "batchdp report answers.release -o page.html --consistent",
    "batchdp report answers.csv -o page.html --ledger budget.db",
)


def command(
    release: Annotated[
        Path,
        typer.Argument(metavar="RELEASE", help="A .release that `batchdp answer` wrote, or the .csv or .json with it."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.", metavar="PAGE.html", readable=False)],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", "-l", help="Show its history as a timeline.", metavar="LEDGER", readable=False),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Compare this plan's expected error with other methods'.", metavar="PLAN", readable=False),
    ] = None,
    consistent: WantConsistent = False,
    whole: Whole = False,
    title: Annotated[str | None, typer.Option(help="Of the page.", metavar="TEXT")] = None,
) -> None:
    """Write one self-contained page: answers, intervals, the mechanism and why it is private."""
    from batchdp.cli.files import beside, checked_output, open_ledger
    from batchdp.cli.show import say, tracked
    from batchdp.errors import ReleaseError
    from batchdp.release import TableRelease, load_release
    from batchdp.reports import report

    source = beside(release)
    checked_output(output, ReleaseError, inputs=(release, source, ledger, plan))
    loaded = load_release(source)
    if isinstance(loaded, TableRelease):
        raise ReleaseError(f"{source} is a release of tables, which has no page; write them with batchdp export")
    books = None if ledger is None else open_ledger(ledger)
    compared = None
    if plan is not None:
        from batchdp.plans import load_plan
        from batchdp.studies.comparison import compare, quick_methods

        made = load_plan(plan)
        planned = made.strategy
        methods = {"this plan": lambda _: planned, **quick_methods()}
        compared = compare(made.asked_workload, methods, progress=lambda names: tracked(names, "Comparing"))
    agreeing = loaded.consistent(whole=whole) if consistent or whole else None
    report(
        loaded,
        output,
        consistent=agreeing,
        ledger=books,
        methods=() if compared is None else compared.methods,
        lower_bound=None if compared is None else compared.lower_bound,
        title=title,
    )
    say(f"Written to {output}; open it in a browser.")
