"""A table that the user has opened with ibis, counted through the connection behind it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from batchdp.errors import TableError
from batchdp.tables.duck import DuckEngine, set_session
from batchdp.tables.postgres import PostgresEngine, without_nan
from batchdp.tables.shield import shielded
from batchdp.tables.source import Engine, Opened, Units, mended
from batchdp.tables.spark import SparkEngine


class _Borrowed(PostgresEngine):
    """Somebody else's connection."""

    def close(self) -> None:
        """Stays open."""


def open_ibis(table: Any) -> Opened:
    """A table of an engine whose rules are known: with others, one value could decide about all."""
    backend = shielded(table.get_backend, "looking at the ibis table")
    description = f"the ibis table on {backend.name}"
    engine: Engine
    units: Units = {}
    match backend.name:
        case "duckdb":
            undo = ExitStack()
            shielded(lambda: set_session(backend.con.execute, undo), f"looking at {description}")
            engine = DuckEngine(backend.con, undo)
            # What ibis takes for a decimal of 38 digits may be a whole number of 128 bits, which reaches further.
            huge = [name for name, dtype in table.schema().items() if dtype.is_decimal() and dtype.precision == 38]
            huge = [name for name in huge if table.schema()[name].scale == 0]
            table, units = mended(
                table,
                {name: table[name].try_cast("float64") for name in huge},
                {name: table[name].cast("string") for name in huge},
            )
        case "postgres":
            engine = _Borrowed(backend.con)
            numerics = {name: without_nan(table[name]) for name, dtype in table.schema().items() if dtype.is_decimal()}
            table = table.mutate(**numerics) if numerics else table
        case "pyspark":
            engine = SparkEngine(backend._session, ExitStack(), collates=True)
        case _:
            raise TableError(
                f"{description} cannot be counted: what that engine does with odd values is not known; give an ibis "
                "table on DuckDB, PostgreSQL or Spark, or write the table to Parquet"
            )
    return Opened(description, table, units, engine)
