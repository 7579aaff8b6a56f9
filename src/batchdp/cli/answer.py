"""`batchdp answer`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from batchdp.cli.options import AsJson, Epsilon, Plan, Rho, either

if TYPE_CHECKING:
    from batchdp.ledger import Ledger
    from batchdp.plans import Plan as Planned

EXAMPLES = (
    "batchdp answer visits.plan -t visits.csv -e 0.5 -l budget.db -o answers.csv",
    "batchdp answer visits.plan -t clinic.duckdb -e 0.5 -l budget.db -o out.json -y",
    "batchdp answer visits.plan -t postgresql://host/db -e 1 -l my.db -o out.csv",
)
FREE = "the same command with --release-id {id} gets them, free of charge"


def command(
    plan: Plan,
    table: Annotated[
        str, typer.Option("--table", "-t", help="CSV or Parquet file or folder, or a database's address.", metavar="T")
    ],
    ledger: Annotated[
        Path, typer.Option("--ledger", "-l", help="The budget; see `batchdp budget`.", metavar="LEDGER", readable=False)
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Where to write: .csv, .json or .release.", metavar="OUT", readable=False),
    ],
    epsilon: Epsilon = None,
    rho: Rho = None,
    release_id: Annotated[
        str | None,
        typer.Option(
            help="A name for this release; the same name gives the stored answers again, free.", metavar="NAME"
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.", metavar="SHARE")] = 0.95,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.", metavar="")] = False,
    as_json: AsJson = False,
) -> None:
    """Spend some of the budget and write private answers: name, value, standard_error, low, high.

    The budget is charged before the table is read. A .release file with everything that `batchdp report` needs is
    written beside the answers.
    """
    either(epsilon, rho)
    from batchdp.cli.files import RELEASE_ENDINGS, answers_as_json, checked_output, open_ledger, write_release
    from batchdp.cli.show import console, figure, print_json, progress, say
    from batchdp.cli.show import table as shown_table
    from batchdp.errors import ReleaseError
    from batchdp.measuring.neighbours import in_words
    from batchdp.plans import load_plan
    from batchdp.release import answer

    for path in (output, output.with_suffix(".release")) if output.suffix else (output,):
        checked_output(path, ReleaseError, RELEASE_ENDINGS, inputs=(plan, table, ledger))
    if Path(table).is_dir() and output.resolve().is_relative_to(Path(table).resolve()):
        raise ReleaseError(f"{output} would become a part of the table in {table}; name an output outside of it")
    made = load_plan(plan)
    opened = open_ledger(ledger)
    identity = release_id or uuid4().hex
    stored = any(entry.release_id == identity and entry.state == "released" for entry in opened.history())
    with _accounted_for(opened, identity):
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            _ask(made, table, opened, epsilon, rho, identity)
        with progress("Counting") as report:
            done = answer(
                made,
                table,
                epsilon=epsilon,
                rho=rho,
                ledger=opened,
                release_id=identity,
                confidence=confidence,
                progress=report,
            )
        try:
            release_file = write_release(done, output)
        except ReleaseError as error:
            raise ReleaseError(f"{error}; the answers are in {ledger}: {FREE.format(id=identity)}") from error
    if as_json:
        print_json(answers_as_json(done, opened))
        return
    rows = ((a.name, *(figure(x) for x in (a.value, a.standard_error, a.low, a.high))) for a in done.answers)
    headings = ("query", "answer", "standard error", f"{100 * confidence:g} % from", "to")
    console.print(shown_table(f"{len(done.answers)} private answers", headings, rows, important="answer"))
    if stored:
        say(f"These are the stored answers of release {identity}: nothing was read or spent.")
    written = f"Written to {output}" if release_file == output else f"Written to {output} and {release_file}"
    say(f"{written}; release {done.certificate.release_id}.")
    say(f"Whose privacy: {in_words(done.certificate.privacy_unit)}; {done.certificate.neighbours}.")
    say(f"{'ε' if opened.unit == 'epsilon' else 'ρ'} = {figure(opened.remaining)} of {figure(opened.total)} is left.")


def _ask(plan: Planned, table: str, ledger: Ledger, epsilon: float | None, rho: float | None, release_id: str) -> None:
    """Say what it costs and what will be left, and go on only if that is wanted; refused first what can be."""
    from batchdp.cli.show import figure
    from batchdp.errors import ReleaseError
    from batchdp.ledger.accounting import as_float, charge, exact, one_of
    from batchdp.measuring.neighbours import in_words
    from batchdp.measuring.preparing import checked_budget, exact_charge
    from batchdp.plans.settling import settled
    from batchdp.tables import open_table
    from batchdp.terminal import harmless

    amount, _ = exact_charge(checked_budget(plan.strategy, epsilon, rho))
    unit, _ = one_of(epsilon, rho)
    with open_table(table, plan.domain, columns=[atom.column for atom in plan.cells.atoms]):
        pass
    cost = as_float(charge(unit, exact(unit, amount), ledger_unit=ledger.unit))
    left = ledger.remaining - cost
    if left < -1e-12 or any(entry.release_id == release_id for entry in ledger.history()):
        return  # refused without a question, or free
    letters = {"epsilon": "ε", "rho": "ρ"}
    spent = f"{letters[ledger.unit]} = {figure(cost)}"
    if unit != ledger.unit:
        spent = f"{letters[unit]} = {figure(float(amount))}, which costs {spent},"
    _, neighbours, _ = settled(plan, None, None, None)
    whose = harmless(f"Whose privacy: {in_words(neighbours.privacy_unit)}; {neighbours}.")
    question = harmless(f"Spend {spent} of the {figure(ledger.remaining)} left in {ledger.path.name}?")
    print(whose, file=sys.stderr)
    print(f"{question} {figure(max(left, 0.0))} will remain. [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ReleaseError("not confirmed, so nothing was read and nothing was spent")


@contextmanager
def _accounted_for(ledger: Ledger, release_id: str) -> Iterator[None]:
    """Ctrl-C at any time: say what became of the budget."""
    try:
        yield
    except KeyboardInterrupt:
        from batchdp.cli.streams import InterruptedCommandError

        state = next((entry.state for entry in ledger.history() if entry.release_id == release_id), None)
        if state == "released":
            raise InterruptedCommandError(f"the answers are in the ledger: {FREE.format(id=release_id)}") from None
        if state == "reserved":
            raise InterruptedCommandError(
                f"release {release_id} was charged already and its budget stays spent"
            ) from None
        raise InterruptedCommandError("nothing was spent") from None
