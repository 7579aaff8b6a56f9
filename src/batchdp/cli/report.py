"""`batchdp report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.show import progress, say, tracked
from batchdp.errors import PlanError, ReleaseError

EXAMPLES = (
    "batchdp report visits.plan --criteria wanted.toml -l budget.db -o page.html",
    "batchdp report answers.release -o page.html",
    "batchdp report answers.release -o page.html --consistent",
    "batchdp report answers.csv -o page.html --ledger budget.db",
)


def command(
    release: Annotated[
        Path,
        typer.Argument(
            metavar="RELEASE", help="A .release, or the .csv or .json with it; or a PLAN, before anything is spent."
        ),
    ],
    output: Annotated[Path, files.path_option("PAGE.html", "The page.", "--output", "-o")],
    ledger: Annotated[
        Path | None, files.path_option("LEDGER", "Show its history as a timeline.", "--ledger", "-l")
    ] = None,
    plan: Annotated[
        Path | None, files.path_option("PLAN", "Compare this plan's expected error with other methods'.")
    ] = None,
    criteria: Annotated[
        Path | None, files.path_option("FILE.toml", "For a plan: accuracies wanted, as for --accuracy.")
    ] = None,
    consistent: files.WantConsistent = False,
    denoised: files.WantDenoised = False,
    whole: files.Whole = False,
    title: Annotated[str | None, typer.Option(help="Of the page.", metavar="TEXT")] = None,
) -> None:
    """Write one self-contained page: answers, intervals, the mechanism and why it is private.

    Beyond some thousand answers the tables are in a folder beside it, PAGE_files, and are read when one is opened.
    Of a plan: how accurate every answer will be while ε moves along a slider, which criteria that meets, and what is
    left in the ledger; nothing is read or spent.
    """
    from batchdp.archive import read_format
    from batchdp.plans import file

    if read_format(release) == file.FORMAT:
        if plan is not None:
            raise typer.BadParameter("a plan is shown by itself; leave --plan out", param_hint="--plan")
        _before(release, output, criteria, ledger, title)
        return
    if criteria is not None:
        raise typer.BadParameter(f"criteria are for plans, and {release} is not one", param_hint="--criteria")
    source = files.find_release(release)
    files.check_output(output, ReleaseError, inputs=(release, source, ledger, plan))
    loaded = batchdp.load_release(source)
    books = None if ledger is None else files.open_ledger(ledger)
    compared = None
    if plan is not None:
        from batchdp.plans.comparison import quick_methods

        made = batchdp.load_plan(plan)
        planned = made.strategy
        methods = {"this plan": lambda _: planned, **quick_methods()}
        compared = batchdp.compare(made, methods, progress=lambda names: tracked(names, "Comparing"))
    beside = files.make_beside(loaded, consistent=consistent, denoised=denoised, whole=whole)
    with progress("Reading") as bar:
        batchdp.report(
            loaded,
            output,
            beside=beside,
            ledger=books,
            methods=() if compared is None else compared.methods,
            lower_bound=None if compared is None else compared.lower_bound,
            title=title,
            progress=bar,
        )
    say(f"Written to {output}; open it in a browser.")
    for note in beside.notes if beside else ():
        say(note)


def _before(plan: Path, output: Path, criteria: Path | None, ledger: Path | None, title: str | None) -> None:
    """The page of a plan."""
    files.check_output(output, PlanError, inputs=(plan, ledger, criteria))
    books = None if ledger is None else files.open_ledger(ledger)
    batchdp.report_plan(batchdp.load_plan(plan), output, criteria=criteria, ledger=books, title=title)
    say(f"Written to {output}; open it in a browser.")
