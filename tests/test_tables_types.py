"""The types of each engine that are peculiar to it: what counts as a number, a day, a text or a unit there."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pa_dataset  # type: ignore[import-untyped]
import pytest

from batchdp.domain import as_domain
from batchdp.engines import count, open_table
from batchdp.errors import TableError
from batchdp.queries.query import Cut
from batchdp.workloads.encode.atoms import Atoms, LineAtoms, ListedAtoms
from engines import on_spark, postgres, spark

NUMBERS = {"range": [0, 100]}
DAYS = {"dates": ["2020-01-01", "2020-12-31"]}
TEXTS = {"values": ["a", "b"]}
TRUTHS = {"values": [True, False]}
ABOVE_TEN = LineAtoms("x", "number", (Cut(10),), None)
FROM_2020 = LineAtoms("x", "date", (Cut(date(2020, 1, 1).toordinal()),), None)
A_OR_ELSE = ListedAtoms("x", "text", (("a",),), None)
TRUE_OR_ELSE = ListedAtoms("x", "boolean", ((True,),), None)
EAST = timezone(timedelta(hours=5))


def counted(table: Any, declared: dict[str, Any], atoms: Atoms, unit: str | None = None) -> list[int]:
    """How many records each atom has."""
    domain = as_domain({"table": "t", "privacy": {"unit": unit} if unit else {}, "columns": {"x": declared}})
    found = [0] * atoms.size
    with open_table(table, domain) as source:
        for codes, counts in count(source, [atoms], unit=unit):
            for row, number in zip(codes.tolist(), counts.tolist(), strict=True):
                found[row[0]] += number
    return found


# ── pandas ──


def test_pandas_objects_are_read_as_declared() -> None:
    def frame(*values: Any) -> pd.DataFrame:
        return pd.DataFrame({"x": pd.Series(values, dtype=object)})

    assert counted(frame(1, 10.0, Decimal("9.5"), "20", "x", None, math.nan), NUMBERS, ABOVE_TEN) == [2, 2, 3]
    assert counted(frame("a", "b", 7, None, math.nan, pd.NA, pd.NaT), TEXTS, A_OR_ELSE) == [1, 2, 4]
    assert counted(frame(True, False, None, 1, "true", 7), TRUTHS, TRUE_OR_ELSE) == [3, 1, 2]  # as in CSV
    days = frame(date(2019, 12, 31), date(2020, 1, 1), datetime(2020, 1, 1, 5), None, "x", pd.Timestamp("2019-01-01"))
    assert counted(days, DAYS, FROM_2020) == [2, 2, 2]
    assert counted(frame(None, None), NUMBERS, ABOVE_TEN) == [0, 0, 2]
    assert counted(frame(), DAYS, FROM_2020) == [0, 0, 0]


def test_pandas_dtypes() -> None:
    for dtype in ("int8", "uint64", "Int64", "Float64", "float32", "float16", "int64[pyarrow]"):
        assert counted(pd.DataFrame({"x": pd.Series([1, 20], dtype=dtype)}), NUMBERS, ABOVE_TEN) == [1, 1, 0], dtype
    for dtype in ("Int64", "Float64", "float32", "category"):
        assert counted(pd.DataFrame({"x": pd.Series([1, 20, None], dtype=dtype)}), NUMBERS, ABOVE_TEN) == [1, 1, 1], (
            dtype
        )
    for dtype in ("str", "string", "category", "string[pyarrow]"):
        assert counted(pd.DataFrame({"x": pd.Series(["a", "b", None], dtype=dtype)}), TEXTS, A_OR_ELSE) == [1, 1, 1], (
            dtype
        )
    assert counted(pd.DataFrame({"x": pd.Series([True, None], dtype="boolean")}), TRUTHS, TRUE_OR_ELSE) == [1, 0, 1]
    for unit in ("s", "ns", "us"):
        moments = pd.Series(["2019-12-31T23:00", "2020-01-01T00:00", None], dtype=f"datetime64[{unit}]")
        assert counted(pd.DataFrame({"x": moments}), DAYS, FROM_2020) == [1, 1, 1], unit
    east = pd.Series([datetime(2020, 1, 1, 4, tzinfo=EAST), datetime(2020, 1, 1, 5, tzinfo=EAST)])
    assert counted(pd.DataFrame({"x": east}), DAYS, FROM_2020) == [1, 1, 0]  # the day in UTC
    with pytest.raises(TableError, match="'x' is declared to hold numbers"):
        counted(pd.DataFrame({"x": pd.to_timedelta([1, 2])}), NUMBERS, ABOVE_TEN)


def test_pandas_units_of_any_kind() -> None:
    one, two = uuid4(), uuid4()
    for values in ([one, one, two, None], [1, 1.0, "2", None], [(1, 2), (1, 2), 3, math.nan]):
        frame = pd.DataFrame({"x": [1, 2, 3, 4], "who": pd.Series(values, dtype=object)})
        assert counted(frame, NUMBERS, ABOVE_TEN, unit="who") == [2, 0, 0]
    frame = pd.DataFrame({"x": [1, 2, 3], "who": pd.Series([1, 1.0, "1"], dtype=object)})
    assert counted(frame, NUMBERS, ABOVE_TEN, unit="who") == [1, 0, 0]  # spelled alike is one person, as in CSV
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "who": pd.Categorical(["a", "a", "b", None])})
    assert counted(frame, NUMBERS, ABOVE_TEN, unit="who") == [2, 0, 0]


def test_pandas_indices_and_odd_column_names() -> None:
    frame = pd.DataFrame({"x": [1, 20], 7: [1, 2], ("a", "b"): [1, 2]}, index=[5, 5])
    assert counted(frame, NUMBERS, ABOVE_TEN) == [1, 1, 0]


# ── Polars and PyArrow ──


def test_polars_types() -> None:
    cases: list[tuple[pl.Series, dict[str, Any], Atoms]] = [
        (pl.Series("x", [1, 20, None], pl.UInt8), NUMBERS, ABOVE_TEN),
        (pl.Series("x", [1.0, 20.0, math.nan], pl.Float32), NUMBERS, ABOVE_TEN),
        (pl.Series("x", [Decimal("9.99"), Decimal("10.00"), None], pl.Decimal(10, 2)), NUMBERS, ABOVE_TEN),
        (pl.Series("x", ["a", "b", None], pl.Categorical), TEXTS, A_OR_ELSE),
        (pl.Series("x", ["a", "b", None], pl.Enum(["a", "b"])), TEXTS, A_OR_ELSE),
        (pl.Series("x", [date(2019, 1, 1), date(2020, 1, 1), None]), DAYS, FROM_2020),
        (pl.Series("x", [datetime(2019, 1, 1), datetime(2020, 1, 1), None], pl.Datetime("ms", "UTC")), DAYS, FROM_2020),
    ]
    for series, declared, atoms in cases:
        assert counted(series.to_frame(), declared, atoms) == [1, 1, 1], series.dtype
        assert counted(series.to_frame().lazy(), declared, atoms) == [1, 1, 1], series.dtype
    assert counted(pl.DataFrame({"x": [None, None]}), TEXTS, A_OR_ELSE) == [0, 0, 2]


def test_arrow_types() -> None:
    cases: list[tuple[Any, dict[str, Any], Atoms]] = [
        (pa.array([1, 20, None], pa.uint16()), NUMBERS, ABOVE_TEN),
        (pa.array([1.0, 20.0, None], pa.float32()), NUMBERS, ABOVE_TEN),
        (pa.array([Decimal(1), Decimal(20), None], pa.decimal128(38, 30)), NUMBERS, ABOVE_TEN),
        (pa.array(["a", "b", None], pa.large_string()), TEXTS, A_OR_ELSE),
        (pa.array(["a", "b", None], pa.string_view()), TEXTS, A_OR_ELSE),
        (pa.array(["a", "b", None]).dictionary_encode(), TEXTS, A_OR_ELSE),
        (pa.array([date(2019, 1, 1), date(2020, 1, 1), None], pa.date64()), DAYS, FROM_2020),
        (pa.array([datetime(2019, 1, 1), datetime(2020, 1, 1), None], pa.timestamp("ns", "UTC")), DAYS, FROM_2020),
    ]
    for array, declared, atoms in cases:
        table = pa.table({"x": array})
        for frame in (table, table.to_batches()[0], pa_dataset.dataset(table)):
            assert counted(frame, declared, atoms) == [1, 1, 1], array.type
    for declared, atoms in ((NUMBERS, ABOVE_TEN), (TEXTS, A_OR_ELSE), (TRUTHS, TRUE_OR_ELSE), (DAYS, FROM_2020)):
        assert counted(pa.table({"x": pa.nulls(3)}), declared, atoms) == [0, 0, 3]


# ── DuckDB ──


def duck(select: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TYPE letter AS ENUM ('a', 'b', 'c')")
    connection.execute(f"CREATE TABLE t AS {select}")
    return connection


def test_duckdb_types() -> None:
    for type_ in ("TINYINT", "UTINYINT", "UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL(4, 2)", "DECIMAL(38, 10)", "FLOAT"):
        assert counted(duck(f"SELECT unnest([1, 20, NULL])::{type_} AS x"), NUMBERS, ABOVE_TEN) == [1, 1, 1], type_
    assert counted(duck("SELECT unnest([-1e38, 1.7e38])::HUGEINT AS x"), NUMBERS, ABOVE_TEN) == [1, 1, 0]
    assert counted(
        duck("SELECT '0.5'::DECIMAL(38, 37) AS x"), NUMBERS, LineAtoms("x", "number", (Cut(0.1), Cut(100)), None)
    ) == [0, 1, 0, 0]
    assert counted(duck("SELECT unnest(['a', 'b', NULL])::letter AS x"), TEXTS, A_OR_ELSE) == [1, 1, 1]
    moments = "SELECT unnest(['2019-12-31 23:00', '2020-01-01', 'infinity', '-infinity', NULL])"
    for type_ in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_NS", "DATE"):
        assert counted(duck(f"{moments}::TIMESTAMP::{type_} AS x"), DAYS, FROM_2020) == [2, 2, 1], type_
    for type_ in ("UUID", "BLOB", "TIME", "INTERVAL", "INTEGER[]", "STRUCT(a INTEGER)", "BIT"):
        with pytest.raises(TableError, match="declared to hold numbers but"):
            counted(duck(f"SELECT NULL::{type_} AS x"), NUMBERS, ABOVE_TEN)


def test_days_that_are_listed_as_texts_are_missing_where_they_are() -> None:
    """And what has no spelling is something else."""
    listed, first = {"values": ["2020-01-01"]}, ListedAtoms("x", "text", (("2020-01-01",),), None)
    for table in (
        duck("SELECT unnest([DATE '2020-01-01', DATE '2020-01-02', NULL]) AS x"),
        pa.table({"x": [date(2020, 1, 1), date(2020, 1, 2), None]}),
    ):
        assert counted(table, listed, first) == [1, 1, 1]
    moments = "SELECT unnest([make_timestamp(9223372036854775806), TIMESTAMP '2020-01-01', NULL])::TIMESTAMP_S AS x"
    assert counted(duck(moments), listed, first) == [0, 2, 1]


def test_a_collation_does_not_count_a_record_twice() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (x VARCHAR COLLATE NOCASE)")
    connection.execute("INSERT INTO t VALUES ('a'), ('A'), ('b')")
    values = tuple(f"{letter}{i}" for letter in "xX" for i in range(30))
    atoms = ListedAtoms("x", "text", (("a",), ("A",), values), None)
    assert counted(connection, {"values": ["a", "A", *values]}, atoms) == [1, 1, 0, 1, 0]


def test_duckdb_units_of_any_type() -> None:
    for type_ in ("UUID", "BLOB", "DATE", "INTEGER[]", "DECIMAL(10, 2)"):
        value = {"UUID": f"'{UUID(int=1)}'", "BLOB": "'x'", "DATE": "'2020-01-01'", "INTEGER[]": "[1]"}.get(type_, "1")
        table = duck(f"SELECT unnest([1, 2, 3]) AS x, {value}::{type_} AS who UNION ALL SELECT 1, NULL")
        assert counted(table, NUMBERS, ABOVE_TEN, unit="who") == [1, 0, 0], type_
    not_a_number = duck("SELECT unnest([1, 2]) AS x, 'nan'::DOUBLE AS who")
    assert counted(not_a_number, NUMBERS, ABOVE_TEN, unit="who") == [0, 0, 0]


# ── PostgreSQL ──


@pytest.mark.xdist_group("postgres")
def test_postgres_types() -> None:
    address = postgres()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA types")
        connection.execute("CREATE TYPE types.letter AS ENUM ('a', 'b', 'c')")
        connection.execute("CREATE DOMAIN types.small AS numeric(4, 1) CHECK (value < 1000)")
        connection.execute(
            "CREATE COLLATION types.blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )

    def having(type_: str, *values: str) -> str:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS types.t")
            connection.execute(f"CREATE TABLE types.t (x {type_}, who uuid, what json)".encode())
            for value in values:
                connection.execute(f"INSERT INTO types.t VALUES ({value}, '{UUID(int=1)}')".encode())
        return f"{address}#types.t"

    for type_ in (
        "smallint",
        "integer",
        "bigint",
        "real",
        "double precision",
        "numeric",
        "numeric(10, 4)",
        "types.small",
    ):
        table = having(type_, "1", "20", "NULL")
        assert counted(table, NUMBERS, ABOVE_TEN) == [1, 1, 1], type_
        assert counted(table, NUMBERS, ABOVE_TEN, unit="who") == [0, 1, 0], type_
    for type_ in ("real", "double precision", "numeric"):
        table = having(type_, "'NaN'", "'Infinity'", "'-Infinity'", "'1e30'")
        assert counted(table, NUMBERS, ABOVE_TEN) == [1, 2, 1], type_
    assert counted(having("numeric", "'1e500'", "'-1e500'", "'9.99999999999999999999'"), NUMBERS, ABOVE_TEN) == [
        2,
        1,
        0,
    ]
    for type_ in ("text", "varchar(5)", "char(5)", "types.letter", "text COLLATE types.blind", "name"):
        assert counted(having(type_, "'a'", "'b'", "NULL"), TEXTS, A_OR_ELSE) == [1, 1, 1], type_
    values = tuple(f"{letter}{i}" for letter in "xX" for i in range(30))
    blind = having("text COLLATE types.blind", "'a'", "'A'", "'b'")
    atoms = ListedAtoms("x", "text", (("a",), ("A",), values), None)
    assert counted(blind, {"values": ["a", "A", *values]}, atoms) == [1, 1, 0, 1, 0]
    for type_ in ("date", "timestamp", "timestamptz"):
        zone = "" if type_ == "date" else " 23:00+00" if type_ == "timestamptz" else " 23:00"
        table = having(type_, f"'2019-12-31{zone}'", "'2020-01-01 00:00+00'", "'infinity'", "'-infinity'", "NULL")
        assert counted(table, DAYS, FROM_2020) == [2, 2, 1], type_
    assert counted(having("boolean", "true", "false", "NULL"), TRUTHS, TRUE_OR_ELSE) == [1, 1, 1]
    for type_ in ("uuid", "json", "bytea", "interval", "int[]", "money", "inet"):
        with pytest.raises(TableError, match="declared to hold numbers but"):
            counted(having(type_), NUMBERS, ABOVE_TEN)


# ── Spark ──


@on_spark
def test_spark_types() -> None:
    def having(type_: str, *values: str) -> Any:
        rows = ", ".join(f"({value})" for value in values)
        return spark().sql(
            f"SELECT CAST(x AS {type_}) AS x, 'me' AS who, map('a', 1) AS what FROM VALUES {rows} AS t(x)"
        )

    for type_ in ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(4, 2)", "DECIMAL(38, 37)"):
        small = type_ == "DECIMAL(38, 37)"
        table = having(type_, "1", "9" if small else "20", "NULL")
        assert counted(table, NUMBERS, ABOVE_TEN) == ([2, 0, 1] if small else [1, 1, 1]), type_
    assert counted(having("DOUBLE", "'NaN'", "'Infinity'", "'-Infinity'"), NUMBERS, ABOVE_TEN) == [1, 1, 1]
    for type_ in ("STRING", "VARCHAR(5)"):
        assert counted(having(type_, "'a'", "'b'", "NULL"), TEXTS, A_OR_ELSE) == [1, 1, 1], type_
    for type_ in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        assert counted(having(type_, "'2019-12-31 23:00'", "'2020-01-01 00:00'", "NULL"), DAYS, FROM_2020) == [
            1,
            1,
            1,
        ], type_
    assert counted(having("BOOLEAN", "true", "false", "NULL"), TRUTHS, TRUE_OR_ELSE) == [1, 1, 1]
    assert counted(having("INT", "1", "2", "3"), NUMBERS, ABOVE_TEN, unit="who") == [1, 0, 0]
    with pytest.raises(TableError, match="declared to hold numbers but"):
        counted(having("BINARY", "'a'"), NUMBERS, ABOVE_TEN)


def test_moments_with_a_time_zone_count_as_their_day_in_utc() -> None:
    moments = [
        datetime(2020, 1, 1, 4, tzinfo=EAST),
        datetime(2020, 1, 1, 5, tzinfo=EAST),
        datetime(2019, 12, 31, 23, tzinfo=UTC),
    ]
    for zone in ("UTC", "Asia/Karachi"):
        table = pa.table({"x": pa.array(moments, pa.timestamp("us", zone))})
        assert counted(table, DAYS, FROM_2020) == [2, 1, 0]
