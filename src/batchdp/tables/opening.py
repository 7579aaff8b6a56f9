"""Whatever the user calls a table, opened for reading."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from batchdp.domain import Domain
from batchdp.errors import TableError
from batchdp.tables.columns import PARSING, check_schema, refuse_type
from batchdp.tables.source import Opened, Source

DATABASES = (".duckdb", ".db", ".ddb")

ACCEPTED = (
    "a path to CSV or Parquet files, a postgresql:// or duckdb:// address, a pandas, Polars or PyArrow frame, a DuckDB "
    "connection or relation, an ibis table or a Spark DataFrame"
)

FRAMES = {
    "pandas": {"DataFrame"},
    "polars": {"DataFrame", "LazyFrame"},
    "pyarrow": {"Table", "RecordBatch", "Dataset"},  # not a reader, which is empty after the first count
}


def open_table(table: Any, domain: Domain, *, columns: Collection[str] | None = None) -> Source:
    """The table, open for reading, once its schema has proved to fit the domain. No record is read.

    Looks for all declared columns, or only for those in `columns`, and for the privacy unit's. What is opened here is
    closed with the source; the user's own connections and sessions stay open, and as they were. Each kind's module is
    imported only when it is asked for.
    """
    if isinstance(table, (str, os.PathLike)) and not is_database(table):
        from batchdp.tables.files import open_files

        return open_files(Path(table).expanduser(), domain, columns)
    library = type(table).__module__.partition(".")[0].lstrip("_")
    if {kind.__name__ for kind in type(table).__mro__} & FRAMES.get(library, set()):
        from batchdp.tables.frames import open_frame

        return open_frame(table, domain, columns)
    return _check_fit(open_database_table(table, domain), domain, columns)


def _check_fit(opened: Opened, domain: Domain, columns: Collection[str] | None) -> Source:
    schema, engine = opened.table.schema(), opened.engine
    try:
        names = check_schema(schema, domain, columns, opened.description, parses=engine.dialect in PARSING)
        if None in names and schema[names[None]].is_interval():  # to engines, a month is thirty days
            refuse_type(names[None], None, schema[names[None]], opened.description)
    except BaseException:
        engine.close()
        raise
    unit = None if None not in names else opened.units.get(names[None], opened.table[names[None]])
    return Source(opened.description, opened.table, engine, names, names, unit)


def is_database(table: str | os.PathLike[str]) -> bool:
    """Whether a text or path leads to a database rather than to files."""
    if isinstance(table, str) and "://" in table:
        return True
    path = Path(table).expanduser()
    return path.suffix.lower() in DATABASES and not path.is_dir()


def open_database_table(table: Any, domain: Domain) -> Opened:
    """A table that an engine holds."""
    if isinstance(table, str) and "://" in table:
        return _open_address(table, domain)
    if isinstance(table, (str, os.PathLike)):
        from batchdp.tables.duck import open_database

        return open_database(Path(table).expanduser(), None, domain)
    library = type(table).__module__.partition(".")[0].lstrip("_")
    names = {kind.__name__ for kind in type(table).__mro__}
    if library == "duckdb" and names & {"DuckDBPyConnection", "DuckDBPyRelation"}:
        from batchdp.tables.duck import open_connection, open_relation

        return open_connection(table, domain) if "DuckDBPyConnection" in names else open_relation(table)
    if library == "ibis" and "Table" in names:
        from batchdp.tables.foreign import open_ibis

        return open_ibis(table)
    if library == "pyspark" and "DataFrame" in names:
        from batchdp.tables.spark import open_spark

        return open_spark(table)
    raise TableError(f"table is a {type(table).__module__}.{type(table).__name__}; give {ACCEPTED}")


def _open_address(address: str, domain: Domain) -> Opened:
    """A database's address, perhaps with `#table` or `#schema.table` behind it."""
    scheme = address.partition("://")[0].lower()
    before, mark, behind = address.rpartition("#")
    # A password may hold a # of its own; what follows it is never free of @ and /.
    named = bool(mark) and not set(behind) & set("@/")
    where, table = (before, behind) if named else (address, None)
    if scheme in ("postgresql", "postgres"):
        from batchdp.tables.postgres import open_postgres

        return open_postgres(where, table, domain)
    if scheme == "duckdb":
        from batchdp.tables.duck import open_database

        return open_database(Path(where.partition("://")[2]), table, domain)
    raise TableError(f"table is a {scheme}:// address; give {ACCEPTED}")
