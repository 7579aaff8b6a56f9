"""Whatever the user calls a table, opened for reading."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ibis  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.engines.columns import PARSING, check_schema, declared_columns, refuse_type
from batchdp.engines.derived import Derived, open_derived
from batchdp.engines.duck import (
    DuckEngine,
    DuckFile,
    narrow,
    open_connection,
    open_database,
    open_file,
    open_relation,
    set_session,
)
from batchdp.engines.postgres import PostgresEngine, drop_nan, open_postgres
from batchdp.engines.source import Engine, Opened, Source, Units, replace_columns, shield
from batchdp.engines.spark import SparkEngine, open_spark
from batchdp.errors import TableError


def open_ibis(table: Any) -> Opened:
    """A table of an engine whose rules are known: with others, one value could decide about all."""
    backend = shield(table.get_backend, "looking at the ibis table")
    description = f"the ibis table on {backend.name}"
    engine: Engine
    units: Units = {}
    match backend.name:
        case "duckdb":
            undo = ExitStack()
            shield(lambda: set_session(backend.con.execute, undo), f"looking at {description}")
            engine = DuckEngine(backend.con, undo)
            # What ibis takes for a decimal of 38 digits may be a whole number of 128 bits, which reaches further.
            huge = [name for name, dtype in table.schema().items() if dtype.is_decimal() and dtype.precision == 38]
            huge = [name for name in huge if table.schema()[name].scale == 0]
            table, units = narrow(table, huge)
        case "postgres":
            engine = PostgresEngine(backend.con, ExitStack())  # somebody else's, which stays open
            blind = shield(lambda: _find_citext(backend.con, table), f"looking at {description}")
            table, units = replace_columns(
                table,
                {name: drop_nan(table[name]) for name, dtype in table.schema().items() if dtype.is_decimal()},
                {name: table[name].cast("string").lower() for name in blind},
            )
        case "pyspark":
            engine = SparkEngine(backend._session, ExitStack(), collates=True)
        case _:
            raise TableError(
                f"{description} cannot be counted: what that engine does with odd values is not known; give an ibis "
                "table on DuckDB, PostgreSQL or Spark, or write the table to Parquet"
            )
    return Opened(description, table, units, engine)


def _find_citext(connection: Any, table: Any) -> list[str]:
    """The columns of type `citext`, to which Bob and bob are one; ibis takes them for any other text."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({ibis.to_sql(table, dialect='postgres')}) AS looked_at LIMIT 0")
        types = {column.name: column.type_code for column in cursor.description}
        cursor.execute("SELECT oid FROM pg_catalog.pg_type WHERE typname = 'citext'")
        blind = {row[0] for row in cursor.fetchall()}
    return [name for name, type_ in types.items() if type_ in blind]


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
    closed with the source; the user's own connections and sessions stay open, and as they were.
    """
    if isinstance(table, Derived):
        return open_derived(open_table, table, domain, columns)
    if isinstance(table, (str, os.PathLike)) and not is_database(table):
        from batchdp.engines.files import open_files

        return open_files(Path(table).expanduser(), domain, columns)
    library = type(table).__module__.partition(".")[0].lstrip("_")
    if {kind.__name__ for kind in type(table).__mro__} & FRAMES.get(library, set()):
        from batchdp.engines.frames import open_frame

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
    declared = declared_columns(domain, names)
    # The units that PostgreSQL does not tell apart by their spelling are of one type, citext.
    rule = "citext" if engine.dialect == "postgres" and names.get(None) in opened.units else ""
    return Source(opened.description, opened.table, engine, names, names, unit, declared, rule)


def is_database(table: str | os.PathLike[str]) -> bool:
    """Whether a text or path leads to a database rather than to files."""
    if isinstance(table, str) and "://" in table:
        return True
    path = Path(table).expanduser()
    return path.suffix.lower() in DATABASES and not path.is_dir()


def is_one_database(table: Any) -> bool:
    """Whether this is a database, with no table of it named."""
    if isinstance(table, (str, os.PathLike)):
        return is_database(table) and split_address(str(table))[1] is None
    return "DuckDBPyConnection" in {kind.__name__ for kind in type(table).__mro__}


def open_files_once(tables: Mapping[str, Any], undo: ExitStack) -> dict[str, Any]:
    """The tables by name, with every DuckDB file that several of them are in opened once, until undone."""
    files: dict[Path, DuckFile] = {}
    found = {}
    for name, table in tables.items():
        path = _duckdb_file(table)
        if path is not None and path not in files:
            files[path] = open_file(path, undo)
        found[name] = table if path is None else (files[path], split_address(str(table))[1])
    return found


def _duckdb_file(table: Any) -> Path | None:
    """The file of a path or address of DuckDB's, as it can be compared."""
    if not isinstance(table, (str, os.PathLike)) or not is_database(table):
        return None
    where = split_address(str(table))[0] if isinstance(table, str) else str(table)
    scheme, mark, rest = where.partition("://")
    if mark and scheme.lower() != "duckdb":
        return None
    return Path(rest if mark else where).expanduser().resolve()


def open_database_table(table: Any, domain: Domain) -> Opened:
    """A table that an engine holds."""
    if isinstance(table, tuple) and isinstance(table[0], DuckFile):
        return table[0].table(table[1], domain)
    if isinstance(table, str) and "://" in table:
        return _open_address(table, domain)
    if isinstance(table, (str, os.PathLike)):
        return open_database(Path(table).expanduser(), None, domain)
    library = type(table).__module__.partition(".")[0].lstrip("_")
    names = {kind.__name__ for kind in type(table).__mro__}
    if library == "duckdb" and names & {"DuckDBPyConnection", "DuckDBPyRelation"}:
        return open_connection(table, domain) if "DuckDBPyConnection" in names else open_relation(table)
    if library == "ibis" and "Table" in names:
        return open_ibis(table)
    if library == "pyspark" and "DataFrame" in names:
        return open_spark(table)
    raise TableError(f"table is a {type(table).__module__}.{type(table).__name__}; give {ACCEPTED}")


def _open_address(address: str, domain: Domain) -> Opened:
    """A database's address, perhaps with `#table` or `#schema.table` behind it."""
    scheme = address.partition("://")[0].lower()
    where, table = split_address(address)
    if scheme in ADDRESSES:
        return ADDRESSES[scheme](where, table, domain)
    raise TableError(f"table is a {scheme}:// address; give {ACCEPTED}")


def split_address(address: str) -> tuple[str, str | None]:
    """A database's address, and the table that it names behind a #, if it does."""
    before, mark, behind = address.rpartition("#")
    # A password may hold a # of its own; what follows it is never free of @ and /.
    return (before, behind) if mark and not set(behind) & set("@/") else (address, None)


def _open_duckdb(address: str, table: str | None, domain: Domain) -> Opened:
    return open_database(Path(address.partition("://")[2]), table, domain)


ADDRESSES = {"postgresql": open_postgres, "postgres": open_postgres, "duckdb": _open_duckdb}
"""How the table of an address is opened, by the scheme: the address, the table behind its #, and the domain."""
