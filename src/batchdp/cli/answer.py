"""`batchdp answer`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.show import Part, console, figure, parts, pieces, print_json, progress, say, say_rules, table
from batchdp.cli.streams import InterruptedCommandError, read_reply
from batchdp.errors import ReleaseError
from batchdp.text import sanitise

if TYPE_CHECKING:
    from batchdp.ledger import Ledger
    from batchdp.release import Beside, Release
    from batchdp.release.answering import Cost
    from batchdp.reports.notebook import Seen


EXAMPLES = (
    "batchdp answer visits.plan -t visits.csv -e 0.5 -l budget.db -o answers.csv",
    "batchdp answer visits.plan -t clinic.duckdb -e 0.5 -l budget.db -o out.json -y",
    "batchdp answer visits.plan -t visits.csv -e 1 -l my.db -o out.csv --consistent",
    "batchdp answer visits.plan -t postgresql://host/db -e 1 -l my.db -o out.csv",
    "batchdp answer visits.plan -t visits.csv -e 1 --delta 1e-6 -l my.db -o out.csv",
    "batchdp answer care.plan -t who=p.csv -t visits=v.csv -e 1 -l my.db -o a.csv",
)
FREE = "the same command with --release-id {id} gets them, free of charge"


def command(
    plan: files.Plan,
    tables: Annotated[
        list[str],
        typer.Option(
            "--table",
            "-t",
            help="CSV or Parquet file or folder, or a database's address; of several tables NAME=T for each.",
            metavar="T",
        ),
    ],
    ledger: Annotated[Path, files.path_option("LEDGER", "The budget; see `batchdp budget`.", "--ledger", "-l")],
    output: Annotated[Path, files.path_option("OUT", "Where to write: .csv, .json or .release.", "--output", "-o")],
    epsilon: files.Epsilon = None,
    rho: files.Rho = None,
    delta: files.Delta = None,
    share: files.Share = None,
    release_id: Annotated[
        str | None,
        typer.Option(
            help="A name for this release; the same name gives the stored answers again, free.", metavar="NAME"
        ),
    ] = None,
    snapshot: files.Snapshot = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.", metavar="SHARE")] = 0.95,
    consistent: files.WantConsistent = False,
    denoised: files.WantDenoised = False,
    whole: files.Whole = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.", metavar="")] = False,
    everything: files.All = False,
    verbose: files.Verbose = False,
    as_json: files.AsJson = False,
) -> None:
    """Spend some of the budget and write private answers: name, value, standard_error, low, high, derived.

    The budget is charged before the table is read. A .release file with everything that `batchdp report` needs is
    written beside the answers, and beside a CSV file one that says what its columns are and what is counted
    (answers.csv-metadata.json, CSV on the Web). With --consistent the last columns have answers that agree and are not
    negative, with --denoised estimates whose errors are smaller on average; the intervals are those of value.
    """
    files.either(epsilon, rho, delta)
    table = files.tables_named(tables)
    _check_output(output, plan, list(table.values()) if isinstance(table, dict) else [table], ledger)
    made = batchdp.load_plan(plan)
    books, identity = files.open_ledger(ledger), release_id or uuid4().hex
    stored = any(entry.release_id == identity and entry.state == "released" for entry in books.history())
    with accounted_for(books, identity):
        with progress("Counting") as bar:

            def confirmed(cost: Cost) -> bool:
                with bar.hidden():
                    return ask(cost, books.path.name)

            done = batchdp.answer(
                made,
                table,
                epsilon=epsilon,
                rho=rho,
                delta=delta,
                ledger=books,
                share=share,
                snapshot=snapshot,
                release_id=identity,
                confidence=confidence,
                progress=bar,
                confirm=None if yes else confirmed,
            )
        try:
            release_file = files.write_release(done, output)
        except ReleaseError as error:
            raise ReleaseError(f"{error}; the answers are in {ledger}: {FREE.format(id=identity)}") from error
    beside = files.make_beside(done, consistent=consistent, denoised=denoised, whole=whole)
    if beside is not None:
        files.write_answers(done, output, beside)
    if as_json:
        print_json(files.answers_as_json(done, books, beside))
        return
    show_answers(done, beside, everything=everything)
    _say_the_rest(done, books, stored=stored, output=output, release_file=release_file)
    _say_notes(done, beside, verbose=verbose)


def _check_output(output: Path, plan: Path, tables: Sequence[str], ledger: Path) -> None:
    """Refuse an output that could not be written, or would become a part of what is read."""

    for path in (output, output.with_suffix(".release")) if output.suffix else (output,):
        files.check_output(path, ReleaseError, files.RELEASE_ENDINGS, inputs=(plan, *tables, ledger))
    if output.suffix.lower() == ".csv":
        files.check_output(files.described(output), ReleaseError, inputs=(plan, *tables, ledger))
    for given in tables:
        if Path(given).is_dir() and output.resolve().is_relative_to(Path(given).resolve()):
            raise ReleaseError(f"{output} would become a part of the table in {given}; name an output outside of it")


def _say_the_rest(done: Release, books: Ledger, *, stored: bool, output: Path, release_file: Path) -> None:
    """Where the answers are, whose privacy it is and what is left."""
    from batchdp.mechanism.measurement import describe_neighbours
    from batchdp.privacy import LETTERS

    if stored:
        say(f"These are the stored answers of release {done.certificate.release_id}: nothing was read or spent.")
    written = f"Written to {output}" if release_file == output else f"Written to {output} and {release_file}"
    say(f"{written}; release {done.certificate.release_id}.")
    say(f"Whose privacy: {describe_neighbours(done.certificate.privacy_unit)}; {done.certificate.neighbours}.")
    now = books.standing()
    kept = "" if books.delta is None else f" in a ledger of {now.promise}"
    say(f"{LETTERS[now.unit]} = {figure(now.remaining)} of {figure(now.total)} is left{kept}.")


def _say_notes(done: Release, beside: Beside | None, *, verbose: bool) -> None:
    """What is counted, and what the values beside are not."""
    say_rules(done.notes, verbose=verbose)
    for note in beside.notes if beside else ():
        say(note)


def show_answers(done: Release, beside: Beside | None = None, *, everything: bool = False) -> None:
    """The tables with their typical errors and top rows, or with every answer and its interval."""
    from batchdp.release.shown import seen
    from batchdp.reports.notebook import look_at

    headings = ("query", "answer", "standard error", f"{100 * done.confidence:g} % from", "to")
    for name, columns, own, _ in seen(done):
        rows = ((*groups, *_figures(a.value, a.standard_error, a.low, a.high), ranks) for groups, a, ranks in own)
        console().print(
            table(f"{name}, as the SQL shows it", (*columns, *headings[1:], "ranks"), rows, important="answer")
        )
    title = f"{len(done.answers):,} private answers"
    if beside is not None:
        rows = (
            (_marked(a.name, a.derived), *_figures(a.value, a.standard_error, a.low, a.high), _figure(value))
            for a, value in zip(done.answers, beside.each(), strict=True)
        )
        console().print(table(title, (*headings, beside.heading), rows, important=beside.heading))
        return
    look = look_at(done, everything=everything)
    found = (
        Part(
            None
            if one.single
            else (_marked(f"{one.title} ({one.answers:,})", one.derived), "", _median(one.standard_error), "", ""),
            _rows(one),
            one.more,
        )
        for one in look.tables
    )
    for piece in pieces(found) if everything else [list(found)]:
        console().print(parts(title, headings, piece, important="answer", more=look.more))
        title = ""


def _rows(one: Seen) -> Iterator[Sequence[str]]:
    """The rows of a table as texts; where derived answers stand beside others, they say so themselves."""
    for label, *figures, derived in one.rows:
        yield _marked(label, derived and one.single), *_figures(*figures)


def _marked(name: str, derived: bool) -> str:
    return f"{name}, derived" if derived else name


def _figures(value: float, *others: float) -> list[str]:
    """Value, standard error, low and high; words where there is no value."""
    from batchdp.reports.notebook import NOT_DETERMINED

    if math.isnan(value):
        return [NOT_DETERMINED] + [""] * len(others)
    return [_figure(one) for one in (value, *others)]


def _figure(value: float) -> str:
    return "" if math.isnan(value) else figure(value)


def _median(error: float) -> str:
    return "" if math.isnan(error) else f"median {_figure(error)}"


def ask(cost: Cost, ledger: str) -> bool:
    """Say whose privacy it is, what it costs and what will be left; whether that is wanted.

    Refused where there is no terminal to ask at: a script must say that it means to spend.
    """
    from batchdp.mechanism.measurement import describe_neighbours
    from batchdp.privacy import LETTERS

    spent = f"{LETTERS[cost.unit]} = {figure(cost.charged)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ReleaseError(
            f"there is no terminal to ask at before {spent} of the {figure(cost.remaining)} left in {ledger} is spent; "
            "add --yes to spend it. Nothing was read or spent"
        )
    if cost.budget.noise.unit != cost.unit:
        spent = f"{cost.budget.noise.letter} = {figure(float(cost.budget))}, which costs {spent},"
    if cost.delta:
        spent += f" and δ = {cost.delta:g}"
    whose = f"Whose privacy: {describe_neighbours(cost.neighbours.privacy_unit)}; {cost.neighbours}."
    question = f"Spend {spent} of the {figure(cost.remaining)} left in {ledger}? {figure(cost.left)} will remain."
    print(sanitise(whose), file=sys.stderr)
    print(sanitise(question), "[y/N] ", end="", file=sys.stderr, flush=True)
    return read_reply().strip().lower() in ("y", "yes")


@contextmanager
def accounted_for(ledger: Ledger, release_id: str) -> Iterator[None]:
    """Ctrl-C at any time: say what became of the budget."""
    try:
        yield
    except KeyboardInterrupt:
        state = next((entry.state for entry in ledger.history() if entry.release_id == release_id), None)
        if state == "released":
            raise InterruptedCommandError(f"the answers are in the ledger: {FREE.format(id=release_id)}") from None
        if state == "reserved":
            raise InterruptedCommandError(
                f"release {release_id} was charged already and its budget stays spent"
            ) from None
        raise InterruptedCommandError("nothing was spent") from None
