"""`batchdp discover`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from batchdp.cli import files
from batchdp.cli.answer import accounted_for, ask
from batchdp.cli.show import progress, say
from batchdp.errors import DomainError

if TYPE_CHECKING:
    from batchdp.release.answering import Cost

EXAMPLES = (
    "batchdp discover visits.csv -l budget.db -e 0.5 --delta 1e-6 -o domain.toml",
    "batchdp discover visits.csv -l my.db -e 0.2 --unit patient -o domain.toml",
    "batchdp discover visits.csv -l my.db -e 0.5 --domain known.toml -o domain.toml",
)


def command(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="CSV or Parquet file or folder, or a database's address.")
    ],
    ledger: Annotated[Path, files.path_option("LEDGER", "The budget; see `batchdp budget`.", "--ledger", "-l")],
    output: Annotated[Path, files.path_option("DOMAIN.toml", "Where to write the domain.", "--output", "-o")],
    epsilon: files.Epsilon = None,
    delta: Annotated[
        float | None, typer.Option(help="For values of texts; without it, columns of texts are left out.", metavar="D")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="The column with one value per person; if left out, every row is a person.", metavar="NAME"),
    ] = None,
    rows_per_unit: Annotated[
        int | None, typer.Option(help="The most rows of one person that are looked at.", metavar="C", min=1)
    ] = None,
    domain: Annotated[
        Path | None, files.path_option("KNOWN.toml", "What is known already; it is kept and costs nothing.")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="The first line of the CSV file names its columns.", metavar="")
    ] = False,
    release_id: Annotated[
        str | None, typer.Option(help="A name for this; the same name gives the same domain, free.", metavar="NAME")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.", metavar="")] = False,
) -> None:
    """Find values, bounds and a cap in an unknown table, privately, and write them as a domain file.

    Types come from the schema; of a CSV file, which has none, from the data, with noise. Values of texts are found
    where enough persons have them, bounds of numbers and dates where noisy counts end. The budget is charged once,
    before the table is read; what a KNOWN.toml declares is kept.
    """
    if epsilon is None:
        raise typer.BadParameter("is missing; say what it may cost, such as --epsilon 0.5", param_hint="--epsilon")
    files.check_output(output, DomainError, (".toml",), inputs=(table, ledger, domain))
    from batchdp.archive import write_atomically
    from batchdp.domain import load_domain
    from batchdp.release.discovering import find

    books, identity = files.open_ledger(ledger), release_id or uuid4().hex
    with accounted_for(books, identity), progress("Finding the domain") as bar:

        def confirmed(cost: Cost) -> bool:
            with bar.hidden():
                return ask(cost, books.path.name)

        def tell(sentence: str) -> None:
            with bar.hidden():
                say(sentence)

        found = find(
            table,
            epsilon=epsilon,
            delta=delta,
            ledger=books,
            unit=unit,
            rows_per_unit=rows_per_unit,
            domain=None if domain is None else load_domain(domain),
            header=header,
            release_id=identity,
            progress=bar,
            confirm=None if yes else confirmed,
            tell=tell,
        )
    write_atomically(output, found.text.encode(), DomainError)
    say(f"Written to {output}: {len(found.domain.columns)} columns; release {identity}. Read it, then run")
    plan = quote(f"{found.domain.table}.plan")
    say(f"  batchdp plan --marginals 1 --domain {quote(str(output))} -o {plan}")
