"""An engine in one file: tables by name, behind addresses such as memory://people, counted by a DuckDB of their own."""

from __future__ import annotations

from contextlib import ExitStack

import duckdb

from batchdp.domain import Domain
from batchdp.engines.duck import DuckEngine, find_table
from batchdp.engines.opening import ADDRESSES
from batchdp.engines.source import Opened

TABLES: dict[str, str] = {}
"""SQL that makes each table."""


def open_memory(address: str, table: str | None, domain: Domain) -> Opened:
    """The table of an address, with nothing read of it but its types."""
    name = address.partition("://")[2]
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE {domain.table} AS {TABLES[name]}")
    undo = ExitStack()
    undo.callback(connection.close)
    description = f"the table {name} in memory"
    return Opened(
        description, *find_table(connection, table or domain.table, None, description), DuckEngine(connection, undo)
    )


ADDRESSES["memory"] = open_memory
