"""`batchdp init`."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

EXAMPLES = (
    "batchdp init visits.csv",
    "batchdp init duckdb://clinic.duckdb#visits",
    "batchdp init postgresql://me@host/db#visits --folder study",
)


def command(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="CSV or Parquet file or folder, or database address; an example if left out."
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Where to write domain.toml and queries.sql.", metavar="FOLDER", readable=False)
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.", metavar="")] = False,
) -> None:
    """Write a commented domain file and a query file to start from.

    Only the names and types of the table's columns are looked at, never its values: the domain must not depend on them.
    """
    from batchdp.archive import write_atomically
    from batchdp.cli.files import checked_output
    from batchdp.cli.show import say
    from batchdp.domain.draft import draft
    from batchdp.errors import DomainError

    domain, queries = folder / "domain.toml", folder / "queries.sql"
    for path in (domain, queries):
        checked_output(path, DomainError, inputs=(table,))
        if path.exists() and not force:
            raise DomainError(f"{path} is there already; use --force to replace it or --folder for another place")
    name, drafted = "patients", draft("patients")
    if table is not None:
        from batchdp.tables.schema import read_schema

        name, columns = read_schema(table)
        drafted = draft(name, columns)
    write_atomically(domain, drafted.domain.encode(), DomainError)
    write_atomically(queries, drafted.queries.encode(), DomainError)
    plan = re.sub(r"\W+", "_", name)
    say(
        f"Wrote {domain} and {queries}. Edit both: declare what is public about each column, from what you know and "
        "not from the data, and write your queries. Then run\n"
        f"  batchdp plan {quote(str(queries))} --domain {quote(str(domain))} -o {quote(f'{plan}.plan')}"
    )
