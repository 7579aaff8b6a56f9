"""The boundary to types: what a column may hold is declared, never guessed from its values."""

from __future__ import annotations

import io
import logging
import warnings
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis  # type: ignore[import-untyped]
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from batchdp.domain import Domain
from batchdp.engines import open_table
from batchdp.engines.cleaning import spell_array
from batchdp.engines.frames import unit_text
from batchdp.errors import TableError
from batchdp.queries.query import Cut
from batchdp.release.counts import counts_of
from batchdp.workloads.encode.atoms import Atoms, LineAtoms, ListedAtoms
from boundary_cases import MANY, counted, domain, quiet
from engines import on_spark, postgres, spark

__all__ = ["quiet"]


def test_moments_beyond_every_range(tmp_path: Path) -> None:
    days = LineAtoms("x", "date", (Cut(date(2020, 1, 1).toordinal()),), None)
    declared = domain(x={"dates": ["2020-01-01", "2020-12-31"]})
    for unit in ("s", "ms", "us", "ns"):
        moments = pa.array([-(2**63) + 1, 0, 2**63 - 1, None], pa.timestamp(unit))
        for one in (
            pa.table({"x": moments}),
            pl.DataFrame({"x": moments}) if unit != "s" else pa.table({"x": moments}),
        ):
            assert counted(one, declared, days) == {(0,): 2, (1,): 1, (2,): 1}
        if unit != "s":  # which Parquet does not have
            pq.write_table(pa.table({"x": moments}), tmp_path / "a.parquet")
            assert sum(counted(tmp_path / "a.parquet", declared, days).values()) == 4
    connection = duckdb.connect()
    for type_ in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ"):
        connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT unnest(['infinity', '2020-05-05'])::{type_} AS x")
        assert sum(counted(connection, declared, days).values()) == 2
    connection.execute("CREATE OR REPLACE TABLE t AS SELECT make_timestamp_ms(9e15::BIGINT) AS x")
    assert sum(counted(connection, declared, days).values()) == 1


@pytest.mark.parametrize(
    ("type_", "most", "by_ibis"),
    [("UHUGEINT", 2**128 - 1, False), ("HUGEINT", 2**127 - 1, False), ("HUGEINT", 2**127 - 1, True)],
)
def test_whole_numbers_of_128_bits(type_: str, most: int, by_ibis: bool) -> None:
    backend = ibis.duckdb.connect()
    backend.con.execute(f"CREATE TABLE t (x {type_})")
    backend.con.execute(f"INSERT INTO t VALUES (1), (3), ({most})")
    connection = backend.table("t") if by_ibis else backend.con
    listed = ListedAtoms("x", "integer", MANY, None)
    assert counted(connection, domain(x={"values": list(range(40))}), listed) == {(1,): 1, (3,): 1, (40,): 1}
    below = LineAtoms("x", "number", (Cut(-5), Cut(2)), None)
    assert counted(connection, domain(x={"range": [-5, 100]}), below) == {(1,): 1, (2,): 2}
    assert counted(connection, domain("x", x={"range": [-5, 100]}), below) == {(1,): 1, (2,): 2}


WIDE = [LineAtoms(f"n{i}", "number", tuple(Cut(k) for k in range(1, 100)), None) for i in range(4)]


CODES = ListedAtoms("code", "text", tuple((f"c{i}",) for i in range(40)), None)


def wide_domain() -> Domain:
    columns: dict[str, Any] = {f"n{i}": {"integers": [0, 99]} for i in range(4)}
    return domain(None, **columns, code={"values": [f"c{i}" for i in range(40)]})


def test_codes_are_numbers_of_64_bits() -> None:
    table = pa.table({**{f"n{i}": [99, 99] for i in range(4)}, "code": ["c0", "c39"]})
    expected = {(99, 99, 99, 99, 0): 1, (99, 99, 99, 99, 39): 1}
    connection = duckdb.connect()
    connection.register("rows", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    for one in (table, connection):
        assert counted(one, wide_domain(), *WIDE, CODES) == expected
    with psycopg.connect(postgres(), autocommit=True) as server:
        server.execute("DROP TABLE IF EXISTS t; CREATE TABLE t (n0 int, n1 int, n2 int, n3 int, code text)")
        server.execute("INSERT INTO t VALUES (99, 99, 99, 99, 'c0'), (99, 99, 99, 99, 'c39')")
    assert counted(f"{postgres()}#t", wide_domain(), *WIDE, CODES) == expected


@on_spark
def test_codes_are_numbers_of_64_bits_on_spark() -> None:
    frame = spark().createDataFrame(
        [(99, 99, 99, 99, "c0"), (99, 99, 99, 99, "c39")], "n0 int, n1 int, n2 int, n3 int, code string"
    )
    for ansi in ("true", "false"):
        spark().conf.set("spark.sql.ansi.enabled", ansi)
        try:
            assert counted(frame, wide_domain(), *WIDE, CODES) == {(99, 99, 99, 99, 0): 1, (99, 99, 99, 99, 39): 1}
        finally:
            spark().conf.unset("spark.sql.ansi.enabled")


@on_spark
def test_texts_on_spark_are_read_as_declared() -> None:
    def frame(*texts: str) -> Any:
        return spark().createDataFrame([(text,) for text in texts], "x string")

    days = LineAtoms("x", "date", (Cut(date(2020, 1, 1).toordinal()),), None)
    for one, declared, atoms, expected in (
        (frame("20", "n/k", "1"), {"range": [0, 120]}, LineAtoms("x", "number", (Cut(15),), None), [1, 1, 1]),
        (frame("true", "perhaps", "0"), {"values": [True]}, ListedAtoms("x", "boolean", ((True,),), None), [1, 1, 1]),
        (frame("2020-01-01", "soon", "2019-12-31 10:00:00"), {"dates": ["2019-01-01", "2020-12-31"]}, days, [1, 1, 1]),
    ):
        found = counted(one, domain(x=declared), atoms)
        assert [found.get((i,), 0) for i in range(3)] == expected


@on_spark
def test_spark_logs_no_record_that_a_frame_fails_on(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = spark().createDataFrame([("canary 31337",)], "x string")
    failing = texts.select(texts.x.cast("int").alias("x"))
    in_sql = spark().sql("SELECT CAST(concat('canary 31337', x) AS INT) AS x FROM VALUES ('a') AS t(x)")
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    for _ in range(2):  # the first time makes the loggers, if nobody has
        for frame in (failing, in_sql):
            with pytest.raises(TableError, match="failed in the engine") as refused:
                counted(frame, domain(x={"range": [0, 120]}), LineAtoms("x", "number", (Cut(15),), None))
            assert "31337" not in str(refused.value)
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
    assert logged == []
    for frame in (failing, in_sql):  # a query of the user's own still fails, and is logged, in Spark's words
        with pytest.raises(Exception, match="canary 31337"):
            frame.collect()
    assert len(logged) == 2


@pytest.mark.parametrize(
    ("column", "plain", "odd"),
    [
        ({"range": [0, 120]}, ["1", "20"], "n/k"),
        ({"integers": [0, 120]}, ["1", "20"], "True"),
        ({"values": [True, False]}, ["True", "False"], "perhaps"),
        ({"values": ["1", "20"]}, ["1", "20"], "x"),
        ({"dates": ["2020-01-01", "2020-12-31"]}, ["2020-01-01", "2020-06-01"], "soon"),
        ({"dates": ["2020-01-01", "2020-12-31"]}, ["", ""], "2020-01-01"),
        ({"values": [1, 20]}, ["1", "20"], ""),
    ],
)
def test_one_value_does_not_decide_whether_a_frame_is_accepted(
    column: dict[str, Any], plain: list[str], odd: str, tmp_path: Path
) -> None:
    declared = domain(x=column)
    atoms = split_of(declared)
    paths = [tmp_path / "plain.csv", tmp_path / "odd.csv"]
    for path, values in zip(paths, (plain, [*plain, odd]), strict=True):
        pd.DataFrame({"id": range(len(values)), "x": values}).to_csv(path, index=False)
    for read in (pd.read_csv, pl.read_csv, lambda path: pd.read_csv(path).convert_dtypes(), duckdb.read_csv):
        without, with_odd = (counted(read(str(path)), declared, *atoms) for path in paths)
        assert sum(without.values()) == 2
        assert sum(with_odd.values()) == 3
    direct, with_odd = (counted(path, declared, *atoms) for path in paths)
    assert sum(abs(with_odd.get(key, 0) - direct.get(key, 0)) for key in {*direct, *with_odd}) == 1


def split_of(declared: Domain) -> tuple[Atoms, ...]:
    from batchdp.sql import read_queries
    from batchdp.workloads.encode.atoms import split

    column = declared.columns["x"]
    groups = hasattr(column, "values")
    sql = "SELECT x, COUNT(*) AS n FROM t GROUP BY x" if groups else "SELECT COUNT(*) AS n FROM t WHERE x IS NOT NULL"
    return split(read_queries(sql, declared), declared)


def test_lone_surrogates_in_texts_of_python() -> None:
    atoms = ListedAtoms("x", "text", (("a",),), None)
    for dtype in ("string[python]", object):
        frame = pd.DataFrame({"x": pd.Series(["a", "\ud800", "b"], dtype=dtype)})
        assert counted(frame, domain(x={"values": ["a"]}), atoms) == {(0,): 1, (1,): 2}
    frame = pd.DataFrame({"x": ["a"] * 3, "who": pd.Series(["\udc80", "\\udc80", "\x00bytes edb280"], dtype=object)})
    assert counted(frame, domain("who", x={"values": ["a"]}), atoms) == {(0,): 3}


def test_what_arrow_guesses_of_a_file_refuses_no_column_and_changes_no_other_record() -> None:
    """Bytes of all texts where one is no UTF-8, times of a column that has nothing else."""
    states, ages = ListedAtoms("state", "text", (("NY",),), None), LineAtoms("age", "number", (Cut(15),), None)
    declared = domain(state={"values": ["NY"]}, age={"range": [0, 120]})

    def found(lines: bytes) -> dict[tuple[int, ...], int]:
        return counted(pa_csv.read_csv(io.BytesIO(b"state,age\n" + lines)), declared, states, ages)

    assert found(b"NY,3\nNJ,20\n") == {(0, 0): 1, (1, 1): 1}
    assert found(b"NY,3\nNJ,20\nZ\xfcrich,3\n") == {(0, 0): 1, (1, 1): 1, (1, 0): 1}
    assert found(b"NY,\n") == {(0, 2): 1}
    assert found(b"NY,\nNY,12:30\n") == {(0, 2): 2}


def test_objects_that_warn_or_raise_do_not() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("31337")

        __float__ = __eq__ = __hash__ = __repr__ = __str__  # type: ignore[assignment]

    poison = [
        np.complex128(1),
        1 + 2j,
        1e300,
        Hostile(),
        b"x",
        np.float32("inf"),
        10**5000,
        np.datetime64("9999999-01-01"),
    ]
    frame = pd.DataFrame({"x": pd.Series([*poison, 20], dtype=object), "who": pd.Series([*poison, 20], dtype=object)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for column in ({"range": [0, 120]}, {"dates": ["2020-01-01", "2020-12-31"]}, {"values": ["a"]}):
            declared = domain("who", x=column)
            assert sum(counted(frame, declared, *split_of(declared)).values()) == len(frame) - 1  # Hostile is nobody


def test_counts_may_be_floats_where_a_cell_is_empty() -> None:
    sizes = pd.Series(["a", "a", "c"]).groupby(["a", "a", "c"]).size()
    for counts in (
        sizes.reindex(["a", "b", "c"]),
        sizes.reindex(["a", "b", "c"]).astype("Int64"),
        [2, None, 1],
        [2.0, float("nan"), 1],
        np.array([2, np.nan, 1.9]),
        [2, -(10**30), True],
        [Decimal(2), pd.NA, 1],
        np.ma.MaskedArray([2, 7, 1], [False, True, False]),
        np.array([2, -np.inf, 1], np.longdouble),
    ):
        assert counts_of(counts, 3)().tolist() == [2, 0, 1]
    assert counts_of([10**30, 0, 0], 3)().tolist() == [2**62, 0, 0]
    for texts in (["2", "n/k", "1"], np.array(["2", "x", "1"]), np.array([2, 1j, 1]), [2, [7], b"1"]):
        assert counts_of(texts, 3)().tolist() == [2, 0, 1]


def test_types_that_cannot_hold_what_is_declared() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 7::UTINYINT AS x, '0.5'::DECIMAL(38, 37) AS y")
    line = LineAtoms("x", "number", (Cut(-5), Cut(5), Cut(1000)), (-5, 1000))
    assert counted(connection, domain(x={"range": [-5, 1000], "other": "drop"}), line) == {(2,): 1}
    listed = ListedAtoms("y", "integer", tuple((100 * i,) for i in range(40)), None)
    assert counted(connection, domain(y={"values": [100 * i for i in range(40)]}), listed) == {(40,): 1}
    negative = ListedAtoms("x", "integer", tuple((i - 20,) for i in range(40)), None)
    assert counted(connection, domain(x={"values": [i - 20 for i in range(40)]}), negative) == {(27,): 1}


def test_neighbouring_whole_numbers_in_32_bits_find_a_record_once() -> None:
    table = pa.table({"x": pa.array([2.0**24], pa.float32())})
    listed = ListedAtoms("x", "integer", tuple((2**24 + i,) for i in range(40)), None)
    assert counted(table, domain(x={"values": [2**24 + i for i in range(40)]}), listed) == {(0,): 1}


def test_objects_of_polars_are_refused() -> None:
    frame = pl.DataFrame({"who": pl.Series([object(), object()], dtype=pl.Object), "age": [1, 2]})
    with pytest.raises(TableError, match=r"holds Python objects; cast it, for instance to pl\.String"):
        open_table(frame, domain("who", age={"range": [0, 120]}))


def test_dictionaries_are_read_as_their_values() -> None:
    atoms = ListedAtoms("x", "text", (("a",), ("b",)), None)
    values = pa.array(["a", "b", None, "c"])
    for dictionary in (values, values.cast(pa.large_string()), values.cast(pa.string_view())):
        for indices in (pa.int8(), pa.uint64()):
            array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 3, None, 2], indices), dictionary)
            found = counted(pa.table({"x": array}), domain(x={"values": ["a", "b"]}), atoms)
            assert found == {(0,): 1, (1,): 2, (2,): 1, (3,): 2}


def test_types_that_have_no_room_for_one() -> None:
    truths = ListedAtoms("x", "boolean", ((True,),), None)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT '0.5'::DECIMAL(38, 38) AS x, '1e400'::DOUBLE AS z")
    assert counted(connection, domain(x={"values": [True]}), truths) == {(2,): 1}
    negative = pa.table({"x": pa.array([100], pa.decimal128(3, -2))})
    assert counted(negative, domain(x={"range": [0, 1000]}), LineAtoms("x", "number", (Cut(50),), None)) == {(1,): 1}


def test_whole_numbers_of_any_length_are_refused() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT '1'::BIGNUM AS x")
    with pytest.raises(TableError, match="declared to hold numbers but"):
        open_table(connection, domain(x={"range": [0, 10]}))


EQUAL_UNITS = [
    (2.0**63, 2**63),
    (1e22, 10**22),
    (np.float64(2**63), np.uint64(2**63)),
    (Decimal("1.50"), Decimal("1.5")),
    (Decimal("1.50"), 1.5),
    (Decimal("-0"), 0),
    (Decimal("0E-400"), 0),
    (Decimal("1E+301"), 10**301),
    (np.bytes_(b"a"), b"a"),
]


@pytest.mark.parametrize("pair", EQUAL_UNITS, ids=repr)
def test_equal_objects_are_one_person(pair: tuple[Any, Any]) -> None:
    assert unit_text(pair[0]) == unit_text(pair[1])
    assert unit_text(pair[0]) is not None


def test_whole_numbers_of_any_type_are_spelled_alike_in_files() -> None:
    number = 2**63 + 2**20
    types = (number, pa.uint64()), (float(number), pa.float64()), (Decimal(number), pa.decimal128(38, 2))
    assert {str(spell_array(pa.array([value], type_))[0]) for value, type_ in types} == {str(number)}
