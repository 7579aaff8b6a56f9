"""Databases: DuckDB, PostgreSQL, Spark, and ibis on the first two."""

from __future__ import annotations

import atexit
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import duckdb
import ibis  # type: ignore[import-untyped]
import psycopg
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from boundary.adapters import Adapter
from boundary.domains import TABLE, TOWNS
from boundary.files import arrow_table
from boundary.neighbours import Row, Storages
from boundary.storages import (
    ARROW,
    ARROW_UNITS,
    BIG_IDS,
    FLOATS,
    IDS,
    SKIP,
    TEXTS,
    WHOLE,
    Storage,
    as_day,
    as_float,
    as_text,
    as_truth,
    decimals,
    sql,
    sql_number,
    whole,
)
from engines import postgres, spark

DATES = ("infinity", "-infinity", "0001-01-01", "9999-12-31", "1970-01-01")


def _quoted(value: Any) -> str:
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def _wholes(type_: str, low: int, high: int) -> Storage:
    return sql(type_, whole(low, high), (low, high, *(n for n in WHOLE if low <= n <= high)), sql_number)


def _decimals(type_: str, precision: int, scale: int, hostile: tuple[str, ...]) -> Storage:
    return sql(type_, decimals(precision, scale), tuple(map(Decimal, hostile)), sql_number)


def itself(value: Any) -> Any:
    """A unit is never read through a collation."""
    return value


def _lower(value: Any) -> Any:
    return None if value is None else value.lower()


# ── DuckDB ──

DUCK_NUMBERS = (
    _wholes("TINYINT", -128, 127),
    _wholes("UTINYINT", 0, 255),
    _wholes("BIGINT", -(2**63), 2**63 - 1),
    _wholes("UBIGINT", 0, 2**64 - 1),
    _wholes("HUGEINT", -(2**127), 2**127 - 1),
    _wholes("UHUGEINT", 0, 2**128 - 1),
    _decimals("DECIMAL(4, 2)", 4, 2, ("99.99", "-99.99", "0.01")),
    _decimals("DECIMAL(38, 0)", 38, 0, ("9" * 38, "-" + "9" * 38)),
    _decimals("DECIMAL(38, 37)", 38, 37, ("9." + "9" * 37, "-9." + "9" * 37)),
    sql("FLOAT", as_float, [n for n in FLOATS if abs(n) < 1e38 or n - n != 0], sql_number),
    sql("DOUBLE", as_float, FLOATS, sql_number),
)
DUCK: dict[str, tuple[Storage, ...]] = {
    "text": (
        sql("VARCHAR", as_text, TEXTS),
        sql("VARCHAR COLLATE NOCASE", as_text, TEXTS, itself),
        sql("VARCHAR COLLATE NOACCENT", as_text, (*TEXTS, "ÑY"), itself),
    ),
    "integer": DUCK_NUMBERS,
    "number": DUCK_NUMBERS,
    "boolean": (sql("BOOLEAN", as_truth, ()),),
    "date": (
        sql("DATE", as_day, (*DATES, "5881580-07-10", "5877642-06-25 (BC)")),
        sql("TIMESTAMP", as_day, (*DATES, "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00")),
        sql("TIMESTAMPTZ", as_day, (*DATES, "294247-01-10 04:00:54.775806+00")),
        *(sql(type_, as_day, (*DATES[:2], *DATES[2:], "200000-01-01")) for type_ in ("TIMESTAMP_S", "TIMESTAMP_MS")),
        sql(
            "TIMESTAMP_NS",
            lambda value: as_day(value) if as_day(value) is not SKIP and 1900 < value.year < 2200 else SKIP,
            ("infinity", "-infinity", "1970-01-01", "2262-04-11"),
        ),
    ),
}
DUCK_UNITS = (
    sql("VARCHAR", as_text, IDS),
    sql("VARCHAR COLLATE NOCASE", as_text, ("a", "A", "b", "B", "c"), itself),
    sql("BIGINT", as_text, BIG_IDS),
    sql("DOUBLE", as_text, FLOATS, sql_number),
    sql("UHUGEINT", as_text, (0, 1, 2**53, 2**53 + 1, 2**127, 2**128 - 1)),
    sql("HUGEINT", as_text, (0, -1, 2**53 + 1, 2**127 - 1, -(2**127))),
    sql("DECIMAL(38, 0)", as_text, ("1", "9" * 38, "-" + "9" * 38)),
    sql("UUID", as_text, ("00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff")),
    sql("BLOB", as_text, ("a", "\\xff", "\\x00")),
    sql("DATE", as_text, ("infinity", "2020-01-01", "5881580-07-10")),
    sql("TIMESTAMP_NS", as_text, ("infinity", "2020-01-01", "-infinity")),
    sql("INTEGER[]", as_text, ("[1]", "[1, 2]", "[]")),
    sql("STRUCT(a DOUBLE)", as_text, ("{'a': 1}", "{'a': nan}", "{'a': 1e300}")),
    sql("INTERVAL", as_text, ("1 day", "3 hours", "1 year")),
    sql("TIME", as_text, ("00:00:00", "23:59:59")),
    sql("BIT", as_text, ("0", "00", "1")),
)


class Duck(Adapter):
    """A connection, a relation or a file; or ibis on a connection."""

    kinds = DUCK
    units = DUCK_UNITS

    def __init__(self, name: str, form: str) -> None:
        super().__init__(name)
        self.form = form

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        path = folder / "visits.duckdb"
        path.unlink(missing_ok=True)
        connection = duckdb.connect(str(path) if self.form == "file" else ":memory:", config={"threads": 1})
        connection.execute(_created(TABLE, storages))
        if rows:
            connection.execute(_filled(TABLE, storages, rows))
        if self.form == "file":
            connection.close()
            return path
        if self.form == "relation":
            return connection.table(TABLE)
        return ibis.duckdb.from_connection(connection).table(TABLE) if self.form == "ibis" else connection

    def close(self, table: Any) -> None:
        if self.form == "connection":
            table.close()


def _created(name: str, storages: Storages) -> str:
    return f"CREATE TABLE {name} ({', '.join(f'{column} {storage.name}' for column, storage in storages.items())})"


def _filled(name: str, storages: Storages, rows: list[Row]) -> str:
    types = {column: storage.name.split(" COLLATE")[0] for column, storage in storages.items()}
    values = ", ".join(
        f"({', '.join(f'CAST({_quoted(row[column])} AS {type_})' for column, type_ in types.items())})" for row in rows
    )
    return f"INSERT INTO {name} VALUES {values}"


# ── PostgreSQL ──

POSTGRES_NUMBERS = (
    _wholes("int2", -(2**15), 2**15 - 1),
    _wholes("int4", -(2**31), 2**31 - 1),
    _wholes("int8", -(2**63), 2**63 - 1),
    sql("float4", as_float, [n for n in FLOATS if 1e-38 < abs(n) < 1e38 or n == 0 or n - n != 0], sql_number),
    sql("float8", as_float, FLOATS, sql_number),
    sql("numeric", as_float, (*FLOATS, "1e400", "-1e400", "0.1e-400", "NaN", "Infinity", "-Infinity"), sql_number),
    sql("numeric(10, 2)", decimals(10, 2), ("NaN", "99999999.99"), sql_number),
    sql("numeric(38, 37)", decimals(38, 37), ("NaN", "9." + "9" * 37), sql_number),
)
ENUM = ("NY", "NJ", "ny", "CA", "1", *TOWNS[:3], *TOWNS[-5:])
POSTGRES: dict[str, tuple[Storage, ...]] = {
    "text": (
        sql("text", as_text, TEXTS),
        sql("varchar", as_text, TEXTS),
        sql("char(20)", lambda value: as_text(value) if len(as_text(value)) <= 20 else SKIP, ("", " ", "ny")),
        sql("citext", as_text, TEXTS, _lower),
        sql("text COLLATE careless", as_text, TEXTS, itself),
        sql("word", lambda value: value if value in ENUM else SKIP, ENUM),
    ),
    "integer": POSTGRES_NUMBERS,
    "number": POSTGRES_NUMBERS,
    "boolean": (sql("bool", as_truth, ()),),
    "date": (
        sql("date", as_day, (*DATES, "4713-01-01 BC", "5874897-12-31")),
        sql("timestamp", as_day, (*DATES, "4713-01-01 BC", "294276-12-31 23:59:59")),
        sql("timestamptz", as_day, (*DATES, "294276-12-31 23:59:59+00", "2020-01-01 00:00:00+05:30")),
    ),
}
POSTGRES_UNITS = (
    sql("text", as_text, IDS),
    sql("citext", as_text, ("a", "A", "b", "B", "É", "é"), _lower),
    sql("text COLLATE careless", as_text, ("a", "A", "b", "B", "c"), itself),
    sql("char(4)", as_text, ("a", "b", "A", "abcd")),
    sql("int8", as_text, BIG_IDS),
    sql("float8", as_text, FLOATS, sql_number),
    sql("numeric", as_text, ("1", "1.0", "1.00", "NaN", "1e400", "Infinity", "2"), sql_number),
    sql("uuid", as_text, ("00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff")),
    sql("bytea", as_text, ("a", "\\xff", "\\x00")),
    sql(
        "timestamptz",
        as_text,
        ("infinity", "2020-01-01 00:00+00", "2020-01-01 05:00+05", "-infinity"),
        lambda value: None if value is None else value.replace("05:00+05", "00:00+00"),
    ),
    sql(
        "interval",
        as_text,
        ("1 day", "24:00:00", "2 days"),
        lambda value: None if value is None else value.replace("24:00:00", "1 day"),
    ),
    sql("jsonb", as_text, ("1", "1.0", '"a"', "{}"), lambda value: None if value is None else value.removesuffix(".0")),
    sql(
        "inet",
        as_text,
        ("10.0.0.1", "10.0.0.1/32", "10.0.0.2"),
        lambda value: None if value is None else value.removesuffix("/32"),
    ),
    sql("int4[]", as_text, ("{1}", "{1,2}", "{}")),
)
"""What is one person is what the database takes for equal."""


@cache
def _server() -> Any:
    connection = psycopg.connect(postgres(), autocommit=True)
    atexit.register(connection.close)
    connection.execute("CREATE EXTENSION IF NOT EXISTS citext")
    connection.execute(
        "CREATE COLLATION IF NOT EXISTS careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    known = connection.execute("SELECT 1 FROM pg_type WHERE typname = 'word'").fetchone()
    if known is None:
        connection.execute(f"CREATE TYPE word AS ENUM ({', '.join(map(_quoted, ENUM))})".encode())
    return connection


@cache
def _ibis() -> Any:
    return ibis.postgres.from_connection(_server())


class Postgres(Adapter):
    """A table on a server of our own, by its address or by ibis."""

    kinds = POSTGRES
    units = POSTGRES_UNITS

    def __init__(self, name: str, by_ibis: bool) -> None:
        super().__init__(name)
        self.by_ibis = by_ibis

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        server = _server()
        server.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
        server.execute(_created(TABLE, storages).encode())
        if rows:
            server.execute(_filled(TABLE, storages, rows).encode())
        return _ibis().table(TABLE) if self.by_ibis else postgres()


# ── Spark ──


class Spark(Adapter):
    """A frame made from Arrow, or read from Parquet. A query takes half a second, so several tables go into one.

    Ids are texts, which can be made different for every table.
    """

    together = 25

    kinds: ClassVar = {
        **{kind: ARROW[kind] for kind in ("text", "boolean")},
        **dict.fromkeys(("integer", "number"), tuple(s for s in ARROW["number"] if not s.name.startswith("uint"))),
        "date": tuple(s for s in ARROW["date"] if s.name in ("timestamp[us]", "timestamp[us, tz=UTC]", "date32[day]")),
    }
    units = ARROW_UNITS[:1]

    def __init__(self, name: str, by_parquet: bool) -> None:
        super().__init__(name)
        self.by_parquet = by_parquet

    def manner(self, rng: Random) -> Any:
        return rng.random() < 0.5

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        session = spark()
        session.conf.set("spark.sql.ansi.enabled", str(manner).lower())
        table = arrow_table(rows, storages)
        if not self.by_parquet:
            return session.createDataFrame(table)
        pq.write_table(table, folder / "visits.parquet")
        return session.read.parquet(str(folder / "visits.parquet"))


SERVERS: tuple[Adapter, ...] = (
    Duck("duckdb connection", "connection"),
    Duck("duckdb relation", "relation"),
    Duck("duckdb file", "file"),
    Duck("ibis on duckdb", "ibis"),
    Postgres("postgres", by_ibis=False),
    Postgres("ibis on postgres", by_ibis=True),
    Spark("spark", by_parquet=False),
    Spark("parquet on spark", by_parquet=True),
)
