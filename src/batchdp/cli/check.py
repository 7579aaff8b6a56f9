"""`batchdp check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.answer import accounted_for, ask
from batchdp.cli.show import console, figure, progress, say, table
from batchdp.errors import ReleaseError

if TYPE_CHECKING:
    from batchdp.release.answering import Cost

EXAMPLES = (
    "batchdp check domain.toml -t visits.csv -l budget.db -e 0.05",
    "batchdp check domain.toml -t visits.csv -l budget.db -e 0.05 -o fit.html -y",
    "batchdp check domain.toml -t visits.csv --exact",
)
EXACT = (
    "Exact counts, for the owner's eyes only: they are not private. Do not write them down or pass them on. Use them "
    "only to correct a mistake of your own, such as a misspelt value; a list or range that follows the data gives "
    "people away."
)
HEADINGS = ("column", "declared", "anything else", "NULL")


def command(
    domain: Annotated[Path, files.path_argument("DOMAIN.toml", "What is declared about the table.")],
    table_: Annotated[
        str, typer.Option("--table", "-t", help="CSV or Parquet file or folder, or a database's address.", metavar="T")
    ],
    ledger: Annotated[
        Path | None, files.path_option("LEDGER", "The budget; see `batchdp budget`.", "--ledger", "-l")
    ] = None,
    epsilon: files.Epsilon = None,
    output: Annotated[
        Path | None, files.path_option("OUT.html", "Also write what was found as a page.", "--output", "-o")
    ] = None,
    release_id: Annotated[
        str | None,
        typer.Option(help="A name for this check; the same name gives what it found again, free.", metavar="NAME"),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Without noise, on a terminal only, for the owner of the data.", metavar="")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.", metavar="")] = False,
) -> None:
    """Before the real release: does the domain fit the table? Privately, for a little of the budget.

    Says how many rows of every column are declared, anything else and NULL, before anything is dropped or clipped, and
    what would go wrong: values that are written otherwise in the data, a range of dates that ended.
    """
    if exact:
        _show_exact(domain, table_, ledger, epsilon, output)
        return
    if ledger is None or epsilon is None:
        raise typer.BadParameter("a check needs --ledger and --epsilon (or --exact, on a terminal)")
    if output is not None:
        files.check_output(output, ReleaseError, (".html",), inputs=(domain, table_, ledger))
    from batchdp.release.checking import findings, fits

    declared = batchdp.load_domain(domain)
    books, identity = files.open_ledger(ledger), release_id or uuid4().hex
    with accounted_for(books, identity), progress("Counting") as bar:

        def confirmed(cost: Cost) -> bool:
            with bar.hidden():
                return ask(cost, books.path.name)

        done = batchdp.check(
            declared,
            table_,
            epsilon=epsilon,
            ledger=books,
            release_id=identity,
            progress=bar,
            confirm=None if yes else confirmed,
        )
    if output is not None:
        batchdp.report(done, output, title=f"Does the domain of {declared.table} fit?")
    rows = []
    for one in fits(done, declared):
        counts = (one.declared, one.outside, one.missing)
        rows.append((one.column, *(f"{figure(value)} ± {figure(error)}" for value, error in counts)))
    console().print(table("Rows, with standard errors", HEADINGS, rows))
    found = findings(done, declared)
    for sentence in found or ("No problem was found.",):
        say(sentence)
    say(f"Release {identity}.")


def _show_exact(domain: Path, where: str, ledger: Path | None, epsilon: float | None, output: Path | None) -> None:
    """The same without noise; never where it could end in a file."""
    from batchdp.release.checking import look

    if ledger is not None or epsilon is not None or output is not None:
        raise typer.BadParameter("--exact spends nothing and writes nothing; leave out --ledger, --epsilon and -o")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ReleaseError("--exact shows exact counts on a terminal only, and there is none; nothing was read")
    declared = batchdp.load_domain(domain)
    counts = look(declared, where).counts
    rows = [(name, *(f"{int(n):,}" for n in own)) for name, own in zip(declared.columns, counts, strict=True)]
    console().print(table("Rows, exactly", HEADINGS, rows))
    say(EXACT)
