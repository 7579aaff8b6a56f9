"""`batchdp init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = ("batchdp init patients.csv", "batchdp init postgresql://me@host/db#patients --folder study")


def command(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", help="CSV or Parquet file or folder, or database address; an example if left out."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where to write domain.toml and queries.sql.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.")] = False,
) -> None:
    """Write a commented domain file and a query file to start from.

    Only the names and types of the table's columns are looked at, never its values: the domain must not depend on them.
    """
    from batchdp.archive import write_atomically
    from batchdp.cli.files import checked_output
    from batchdp.cli.show import console
    from batchdp.domain.draft import draft_domain, draft_queries
    from batchdp.errors import DomainError

    files = {"domain.toml": draft_domain, "queries.sql": draft_queries}
    for name in files:
        path = folder / name
        checked_output(path, DomainError)
        if path.exists() and not force:
            raise DomainError(f"{path} is there already; use --force to replace it or --folder for another place")
    name, columns = "patients", None
    if table is not None:
        from batchdp.tables.schema import read_schema

        name, columns = read_schema(table)
    for file, draft in files.items():
        write_atomically(folder / file, draft(name, columns).encode(), DomainError)
    console.print(
        f"Wrote {folder / 'domain.toml'} and {folder / 'queries.sql'}. Edit both: declare what is public about each "
        "column (from what you know, not from the data) and write your queries. Then run\n"
        f"  batchdp plan {folder / 'queries.sql'} --domain {folder / 'domain.toml'} -o {name}.plan",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
