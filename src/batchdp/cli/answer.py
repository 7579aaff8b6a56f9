"""`batchdp answer`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchdp.cli.options import AsJson, Epsilon, Plan, Rho

if TYPE_CHECKING:
    from batchdp.ledger import Ledger

EXAMPLES = (
    "batchdp answer patients.plan --table patients.csv --epsilon 0.5 --ledger budget.db -o answers.csv",
    "batchdp answer patients.plan -t postgresql://me@host/db -e 0.5 -l budget.db -o answers.json --yes",
)


def command(
    plan: Plan,
    table: Annotated[
        str, typer.Option("--table", "-t", help="CSV or Parquet file or folder, or a database's address.")
    ],
    ledger: Annotated[Path, typer.Option("--ledger", "-l", help="The budget's ledger; see `batchdp budget`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write: .csv, .json or .release.")],
    epsilon: Epsilon = None,
    rho: Rho = None,
    release_id: Annotated[
        str | None, typer.Option(help="A name for this release; the same name gives the stored answers again, free.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")] = False,
    as_json: AsJson = False,
) -> None:
    """Spend some of the budget and write one private release: name, value, standard_error, low, high.

    A .release file with everything that `batchdp report` needs is written beside the answers.
    """
    from batchdp.cli.files import RELEASE_ENDINGS, answers_as_json, checked_output, write_release
    from batchdp.cli.show import console, figure, print_json, progress
    from batchdp.cli.show import table as shown_table
    from batchdp.errors import ReleaseError
    from batchdp.ledger import Ledger
    from batchdp.plans import load_plan
    from batchdp.release import answer

    checked_output(output, ReleaseError, RELEASE_ENDINGS)
    made = load_plan(plan)
    opened = Ledger.open(ledger)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        _ask(opened, epsilon if epsilon is not None else rho, "ε" if epsilon is not None else "ρ")
    with progress("Counting") as report:
        done = answer(
            made,
            table,
            epsilon=epsilon,
            rho=rho,
            ledger=opened,
            release_id=release_id,
            confidence=confidence,
            progress=report,
        )
    release_file = write_release(done, output)
    if as_json:
        print_json(answers_as_json(done, opened))
        return
    rows = ((a.name, *(figure(x) for x in (a.value, a.standard_error, a.low, a.high))) for a in done.answers)
    headings = ("query", "answer", "standard error", f"{confidence:.0%} from", "to")
    console.print(shown_table(f"{len(done.answers)} private answers", headings, rows))
    left = f"{figure(opened.remaining)} of {figure(opened.total)} is left in {ledger}."
    written = f"Written to {output}" if release_file == output else f"Written to {output} and {release_file}"
    for line in (f"{written}; release {done.certificate.release_id}.", left):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _ask(ledger: Ledger, amount: float | None, unit: str) -> None:
    """Say what will be left, and go on only if that is wanted."""
    from batchdp.cli.show import figure

    if amount is not None:
        left = figure(ledger.remaining - amount)
        question = f"Spend {unit} = {figure(amount)} of the {figure(ledger.remaining)} left? {left} will remain."
        typer.confirm(question, abort=True)
