"""`batchdp init`."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from batchdp.cli.files import check_output
from batchdp.cli.show import say
from batchdp.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchdp.domain.codebooks import Codebook
    from batchdp.domain.draft import Described


EXAMPLES = (
    "batchdp init visits.csv",
    "batchdp init duckdb://clinic.duckdb#visits",
    "batchdp init postgresql://me@host/db#visits --folder study",
    "batchdp init visits.csv --codebook tableschema.json",
    "batchdp init patients.csv visits.csv",
)


def command(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE…",
            help="CSV or Parquet file or folder, or database address; several of the same persons; an example if left "
            "out.",
        ),
    ] = None,
    codebook: Annotated[
        str | None,
        typer.Option(
            help="JSON: Frictionless Table Schema or CSV on the Web; package.json#visits for one of several tables.",
            metavar="FILE",
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Where to write domain.toml and queries.sql.", metavar="FOLDER", readable=False)
    ] = Path(),
    header: Annotated[
        bool, typer.Option("--header", help="The first line of the CSV file names its columns.", metavar="")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.", metavar="")] = False,
) -> None:
    """Write a commented domain file and a query file to start from.

    Only the names, types and CHECK constraints of the table's columns are looked at, never its values: the domain must
    not depend on them.
    A codebook adds values and ends; make sure that these were not looked up in the data either. Of a CSV file the first
    line is read: one that does not look like names of columns may be a record and is refused, unless --header says
    that it names them.
    """
    from batchdp.archive import write_atomically
    from batchdp.domain.codebooks import join_codebook, read_codebook
    from batchdp.domain.draft import EXAMPLE, draft
    from batchdp.domain.draft_tables import draft_several

    given = tables or []
    table = given[0] if given else None
    if codebook is not None and len(given) > 1:
        raise DomainError("--codebook describes one table; give it with one table, and put both drafts together")
    domain, queries = folder / "domain.toml", folder / "queries.sql"
    for path in (domain, queries):
        check_output(path, DomainError, inputs=(*given, codebook))
        if path.exists() and not force:
            raise DomainError(f"{path} exists already; use --force to replace it or --folder for another place")
    name, columns, remarks = "patients", list(EXAMPLE), ""
    if table is not None:
        from batchdp.engines.schema import read_schema

        name, columns = read_schema(table, has_header=header)
    if codebook is not None:
        book = read_codebook(codebook, table=None if table is None else name)
        if table is None:
            name, columns = book.table, list(book.columns)
        else:
            columns = join_codebook(columns, book)
            remarks = _differences(columns, book)
    if len(given) > 1:
        drafted = draft_several([(name, columns), *(read_schema(one, has_header=header) for one in given[1:])])
        name = "tables"
    else:
        drafted = draft(name, columns, codebook=codebook)
    write_atomically(domain, drafted.domain.encode(), DomainError)
    write_atomically(queries, drafted.queries.encode(), DomainError)
    plan = re.sub(r"\W+", "_", name)
    remarks += "".join(map(_first_line, given))
    say(
        f"{remarks}Wrote {domain} and {queries}. Edit both: declare what is public about each "
        "column, from what you know and not from the data, and write your queries. Then run\n"
        f"  batchdp plan {quote(str(queries))} --domain {quote(str(domain))} -o {quote(f'{plan}.plan')}"
    )


def _first_line(table: str) -> str:
    """Where the names of a CSV file's columns are from: a line of words can be a record too."""
    from batchdp.engines.schema import is_csv

    if not is_csv(table):
        return ""
    return (
        f"The names of the columns are those in the first line of {table}; if that is a record, delete these files and "
        "add a line with names.\n"
    )


def _differences(columns: Sequence[Described], book: Codebook) -> str:
    """Which columns only one of the two knows, in a sentence each."""
    from batchdp.domain.columns import fold
    from batchdp.engines.columns import list_names

    there = {fold(column.name) for column in columns}
    absent = [one.name for one in book.columns if not there & {fold(name) for name in (one.name, *one.also)}]
    silent = [column.name for column in columns if not column.documented]
    remarks = f"The table has no column {list_names(absent)}, which the codebook describes.\n" if absent else ""
    return remarks + (f"The codebook says nothing about {list_names(silent)}.\n" if silent else "")
