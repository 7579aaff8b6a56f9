"""A table that the user has opened with ibis, counted through the connection behind it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import ibis  # type: ignore[import-untyped]

from batchdp.errors import TableError
from batchdp.tables.duck import DuckEngine, set_session
from batchdp.tables.postgres import PostgresEngine, drop_nan
from batchdp.tables.source import Engine, Opened, Units, replace_columns, shield
from batchdp.tables.spark import SparkEngine


class _Borrowed(PostgresEngine):
    """Somebody else's connection."""

    def close(self) -> None:
        """Stays open."""


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
            table, units = replace_columns(
                table,
                {name: table[name].try_cast("float64") for name in huge},
                {name: table[name].cast("string") for name in huge},
            )
        case "postgres":
            engine = _Borrowed(backend.con)
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
