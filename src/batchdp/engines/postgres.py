"""A PostgreSQL server, in a session that can only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np

from batchdp.domain import Domain
from batchdp.domain.columns import fold
from batchdp.engines.columns import list_names
from batchdp.engines.source import Columns, Engine, Opened, Query, Said, Units, compile_query, replace_columns, shield
from batchdp.errors import TableError

SETTINGS = ("SET default_transaction_read_only = on", "SET standard_conforming_strings = on", "SET TimeZone = 'UTC'")
TABLES = """
    SELECT n.nspname, c.relname, c.oid, pg_table_is_visible(c.oid)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
"""
COLUMNS = """
    WITH RECURSIVE within AS (
        SELECT a.attname, a.attnum, a.atttypid AS type
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT w.attname, w.attnum, t.typbasetype
        FROM within w JOIN pg_catalog.pg_type t ON t.oid = w.type WHERE t.typtype = 'd'
    )
    SELECT w.attname, t.typname, t.typcategory
    FROM within w JOIN pg_catalog.pg_type t ON t.oid = w.type WHERE t.typtype <> 'd'
    ORDER BY w.attnum
"""
SAID = """
    WITH RECURSIVE within AS (
        SELECT a.attname, a.atttypid AS type, a.atttypmod AS digits
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = format('%%I.%%I', %(schema)s::text, %(name)s::text)::regclass
            AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT w.attname, t.typbasetype, t.typtypmod
        FROM within w JOIN pg_catalog.pg_type t ON t.oid = w.type WHERE t.typtype = 'd'
    )
    SELECT w.attname,
        CASE WHEN t.typname = 'numeric' AND w.digits >= 4 THEN (((w.digits - 4) & 2047) # 1024) - 1024 END,
        ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
        ARRAY(SELECT pg_catalog.pg_get_expr(c.conbin, 0) FROM pg_catalog.pg_constraint c
              WHERE c.contypid = t.oid AND c.contype = 'c')
    FROM within w JOIN pg_catalog.pg_type t ON t.oid = w.type
"""
CHECKS = """
    SELECT pg_catalog.pg_get_expr(c.conbin, c.conrelid) FROM pg_catalog.pg_constraint c
    WHERE c.conrelid = format('%%I.%%I', %(schema)s::text, %(name)s::text)::regclass AND c.contype = 'c'
"""
TYPES = {
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "numeric": "decimal",  # whatever its digits: a literal of any is compared exactly
    "bool": "boolean",
    "text": "string",
    "varchar": "string",
    "uuid": "uuid",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamp('UTC')",
}
LIKE_TEXT = ("S", "E")
"""Categories of types that are texts with rules of their own: padded, without case, enumerated."""
COPY_HEADER = 19
BATCH_BYTES = 2**24


class PostgresEngine(Engine):
    """A connection; `undo` closes it where it is our own."""

    dialect = "postgres"

    def __init__(self, connection: Any, undo: ExitStack) -> None:
        super().__init__(undo)
        self._connection = connection

    @property
    def place(self) -> Any:
        """The server, the database and who asks."""
        info = self._connection.info
        return "PostgreSQL", info.host, info.port, info.dbname, info.user

    def check(self, query: Query) -> None:
        """Have the query planned, not run."""
        self._connection.execute(f"EXPLAIN {compile_query(query, self.dialect)}")

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch.

        By COPY, because a cursor would forbid the server to work on the query in several processes.
        """
        width = query.width
        fields = [(f"{part}{i}", type_) for i in range(width) for part, type_ in (("length", ">i4"), ("value", ">i8"))]
        record = np.dtype([("fields", ">i2"), *fields])
        copying = f"COPY ({compile_query(query, self.dialect)}) TO STDOUT (FORMAT BINARY)"
        buffer = bytearray()
        header = COPY_HEADER
        with self._connection.cursor() as cursor, cursor.copy(copying) as copy:
            for block in copy:
                buffer += block
                if header and len(buffer) >= header:
                    del buffer[:header]
                    header = 0
                if len(buffer) >= BATCH_BYTES:
                    yield _take_records(buffer, record, width)
        yield _take_records(buffer, record, width)

    def rows(self, query: Query) -> Iterator[Sequence[Any]]:
        """The rows of a query's result."""
        with self._connection.cursor(binary=True) as cursor:
            yield from cursor.execute(compile_query(query, self.dialect))

    def said(self, catalog: str | None, schema: str | None, name: str) -> Said:
        """What the schema says, and the types that are domains."""
        place = {"schema": schema, "name": name}
        rows = self._connection.execute(SAID, place).fetchall()
        checks = [(None, row[0]) for row in self._connection.execute(CHECKS, place).fetchall()]
        return Said(
            labels={column: tuple(labels) for column, _, labels, _ in rows if labels},
            digits={column: digits for column, digits, _, _ in rows if digits is not None},
            checks=checks + [(column, check) for column, _, _, own in rows for check in own],
        )


def _take_records(buffer: bytearray, record: np.dtype[Any], width: int) -> Columns:
    """The whole records at the buffer's start, which are removed from it."""
    whole = len(buffer) // record.itemsize * record.itemsize
    taken = np.frombuffer(bytes(buffer[:whole]), record)
    del buffer[:whole]
    if (taken["fields"] != width).any() or any((taken[f"length{i}"] != 8).any() for i in range(width)):
        raise ValueError("the result is not made of 64-bit integers")
    return [taken[f"value{i}"].astype(np.int64) for i in range(width)]


def open_postgres(address: str, name: str | None, domain: Domain) -> Opened:
    """A table on a server."""
    try:
        import psycopg
    except ImportError:
        raise TableError("a postgresql:// address needs psycopg: pip install 'batchdp[postgres]'") from None

    with ExitStack() as undo:

        def connect() -> Any:
            connection = psycopg.connect(address, autocommit=True)
            undo.callback(connection.close)
            connection.read_only = True
            for setting in SETTINGS:
                connection.execute(setting)
            return connection

        connection = shield(connect, "connecting to the PostgreSQL server")
        description = f"the PostgreSQL database {connection.info.dbname!r}"
        found = shield(
            lambda: _find_table(connection, name or domain.table, description), f"looking into {description}"
        )
        return Opened(description, *found, PostgresEngine(connection, undo.pop_all()))


def drop_nan(column: Any) -> Any:
    """A numeric column with NULL for NaN, which it has; casting to a type that ibis can ask for it would overflow."""
    return ibis.ifelse(column.cast("string") == "NaN", ibis.null(), column)


def _find_table(connection: Any, name: str, description: str) -> tuple[Any, Units]:
    schema, _, bare = name.rpartition(".")
    known = connection.execute(TABLES).fetchall()
    same = [row for row in known if fold(row[1]) == fold(bare)]
    same = [row for row in same if (fold(row[0]) == fold(schema) if schema else row[3])]
    same = [row for row in same if row[1] == bare] or same
    if not same:
        names = list_names([f"{row[0]}.{row[1]}" for row in known])
        raise TableError(
            f"{description} has no table {name!r}; it has {names}; say which behind #, as in #schema.table"
        )
    if len(same) > 1:
        names = list_names([f"{row[0]}.{row[1]}" for row in same])
        raise TableError(f"{description} has several tables {name!r}: {names}; say which behind #, as in #schema.table")
    place, actual, identity, _ = same[0]
    columns = connection.execute(COLUMNS, [identity]).fetchall()
    unknown = ibis.expr.datatypes.unknown
    types = {column: TYPES.get(type_, unknown) for column, type_, _ in columns}
    table = ibis.table(types, name=actual, database=place)
    changed, units = {}, {}
    for column, type_, category in columns:
        if type_ not in TYPES and category in LIKE_TEXT:
            changed[column] = table[column].cast("string")
        if type_ == "citext":  # to which Bob and bob are one
            units[column] = changed[column].lower()
        if type_ == "numeric":
            changed[column] = drop_nan(table[column])
    return replace_columns(table, changed, units)
