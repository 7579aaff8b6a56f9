"""The boundary to the engines: no record decides how, or whether, another is counted; none is read before the charge.

The neighbour fuzzer looks for what nobody thought of; here stands what was once wrong.
"""

from __future__ import annotations

import csv
import gzip
import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
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
import pyarrow.dataset as pa_dataset  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.cells.atoms import Atoms, LineAtoms, ListedAtoms
from batchdp.domain import Domain, as_domain
from batchdp.errors import BudgetError, TableError
from batchdp.queries.conditions import Cut
from batchdp.release.answering import _counts_of
from batchdp.tables import count, counting, open_table
from batchdp.tables.separated import Layout, records
from engines import ibis_backend, on_spark, postgres, spark

AGES = LineAtoms("age", "number", (Cut(15),), None)
MANY = tuple((value,) for value in range(40))


def domain(unit: str | None = None, **columns: Any) -> Domain:
    return as_domain({"table": "t", "privacy": {"unit": unit} if unit else {}, "columns": columns})


def counted(table: Any, declared: Domain, *atoms: Atoms, rows_per_unit: int = 1) -> dict[tuple[int, ...], int]:
    found: dict[tuple[int, ...], int] = {}
    with open_table(table, declared) as source:
        for codes, counts in count(source, atoms, unit=declared.privacy.unit, rows_per_unit=rows_per_unit):
            for row, number in zip(codes.tolist(), counts.tolist(), strict=True):
                found[tuple(row)] = found.get(tuple(row), 0) + number
    return found


@pytest.fixture(autouse=True)
def _quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing about values is written anywhere; warnings are errors already."""
    yield
    assert "31337" not in capfd.readouterr().err


# ── CSV ──


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_breaks_in_a_note_touch_no_other_record(tmp_path: Path, zipped: bool, end: str) -> None:
    """The note stands where a reader that splits files at 8 000 000 bytes begins anew."""
    path = tmp_path / ("a.csv.gz" if zipped else "a.csv")
    line, total = f"fine,1,34{end}", 2_000_000
    before = (8_000_000 - len(f"note,id,age{end}")) // len(line)
    with gzip.open(path, "wt", newline="", compresslevel=1) if zipped else path.open("w", newline="") as file:
        file.write(f"note,id,age{end}" + line * before)
        csv.writer(file, lineterminator=end).writerow(["note\ny,1,34\ny,1,34\n", 1, 34])
        file.write(line * (total - before))
    assert counted(path, domain(age={"range": [0, 120]}), AGES) == {(1,): total + 1}


def lines(data: bytes, width: int = 3, returns: bool = False) -> list[tuple[bytes | None, ...]]:
    import io

    found: list[tuple[bytes | None, ...]] = []
    for columns in records(io.BytesIO(data), Layout(",", width, returns), range(width)):
        found += zip(*[column.to_pylist() for column in columns], strict=True)
    return found


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64, 1000, 2**22])
def test_what_a_csv_writer_wrote_is_read_back(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import random

    monkeypatch.setattr("batchdp.tables.separated.BLOCK", block)
    rng = random.Random(block)
    pieces = ['"', ",", "\n", "\r", "\r\n", "a", "é", '""', "x" * 50, " ", "'", "\\", "\0", "y,1,34\n"]
    for _ in range(10 if block < 10 else 100):
        end = rng.choice(["\n", "\r\n"])
        quoting: Any = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        rows = [
            ["".join(rng.choices(pieces, k=rng.choice([0, 1, 2, 5, 20]))), str(i), rng.choice(["", "5", '"', "x\r"])]
            for i in range(rng.randint(1, 60))
        ]
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator=end, quoting=quoting).writerows(rows)
        text = file.getvalue() if rng.random() < 0.7 else file.getvalue().removesuffix(end)
        expected = [tuple(value.encode() or None for value in row) for row in rows]
        assert lines(text.encode(), returns=end == "\r\n") == expected


def test_stray_quotation_marks_stay_in_their_field() -> None:
    assert lines(b'5" pipe,1,34\nfine,2,34\n') == [(b'5" pipe', b"1", b"34"), (b"fine", b"2", b"34")]
    assert lines(b'"x"y,1,34\nfine,2,34\n') == [(b'"x"y', b"1", b"34"), (b"fine", b"2", b"34")]
    swallowed = (b"a", b'open,3\nb,2,3\n"c', b"2")
    assert lines(b'a,"open,3\nb,2,3\n"c",2,3\nd,1,2\n') == [swallowed, (b"d", b"1", b"2")]  # as documented
    assert lines(b'a"b,1,2\n"c\nd",3,4\n') == [(b'a"b', b"1", b"2"), (b"c\nd", b"3", b"4")]


def test_a_lone_carriage_return_ends_no_record(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pd.DataFrame({"note": ["1", "a\rb", "2"], "age": [1, 2, 3]}).to_csv(path, index=False, lineterminator="\n")
    assert counted(path, domain(age={"range": [0, 120]}), AGES) == {(0,): 3}
    path.write_bytes(b"note\n1\na\rb\n2\n")
    assert counted(path, domain(note={"values": ["1", "b"]}), ListedAtoms("note", "text", (("1",), ("b",)), None)) == {
        (0,): 1,
        (2,): 2,
    }


def test_a_record_that_is_too_long_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.tables.separated.BLOCK", 16)
    monkeypatch.setattr("batchdp.tables.separated.LONGEST_RECORD", 100)
    fine = b"x,1,2\n"
    for long in (b"x" * 300, b'"' + b'y,1,2\n""' * 60 + b'"', b'"a"' + b"x" * 200, b'"' + b'""' * 200 + b'"'):
        for before in (b"", b"1,", b'"1",2,'):
            record = before + long + b",1,2\n"
            assert lines(fine + record + fine * 3) == [(b"x", b"1", b"2")] * 4, record[:40]


@pytest.mark.parametrize("column", ["age", "c0"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_folder_never_replaces_a_column(tmp_path: Path, form: str, column: str) -> None:
    """Whatever its name, and whatever the engine calls the columns of a file that it reads."""
    for value in (99, 98):
        place = tmp_path / f"{column}={value}"
        place.mkdir()
        if form == "csv":
            (place / "a.csv").write_text("age\n10\n")
        else:
            pq.write_table(pa.table({"age": [10]}), place / "a.parquet")
        assert counted(place, domain(age={"range": [0, 120]}), AGES) == {(0,): 1}
    assert counted(tmp_path, domain(age={"range": [0, 120]}), AGES) == {(0,): 2}


# ── Parquet ──


def test_a_new_partition_changes_no_type(tmp_path: Path) -> None:
    doses = LineAtoms("dose", "number", (Cut(5),), None)
    for value in ("1", "10", "unknown", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"dose={value}").mkdir()
        pq.write_table(pa.table({"age": [1, 2]}), tmp_path / f"dose={value}" / "a.parquet")
        found = counted(tmp_path, domain(dose={"range": [0, 100]}), doses)
        assert sum(found.values()) == 2 * len(list(tmp_path.iterdir()))
        assert found[0,] == 2
    dataset = pa_dataset.dataset(tmp_path, partitioning="hive")
    assert counted(dataset, domain(dose={"range": [0, 100]}), doses) == {(0,): 2, (1,): 2, (2,): 4}


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e300, -1e300, 2.0**53 + 2, 0.5])
def test_one_odd_float_beside_a_long_list(tmp_path: Path, odd: float) -> None:
    table = pa.table({"x": [3.0, odd, 39.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    connection = duckdb.connect()
    connection.register("rows", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    atoms = ListedAtoms("x", "integer", MANY, None)
    expected = {(3,): 1, (39,): 1, (41 if odd != odd else 40,): 1}
    for one in (tmp_path / "a.parquet", table, table.to_pandas(), connection):
        assert counted(one, domain(x={"values": list(range(40))}), atoms) == expected


def test_bytes_that_are_no_text_are_anything_else(tmp_path: Path) -> None:
    broken = pa.array([b"NY", b"\xff", b"\xed\xa0\x80", b"NJ", None], pa.binary())
    atoms = ListedAtoms("state", "text", (("NY",), ("NJ",)), None)
    declared = domain(state={"values": ["NY", "NJ"]})
    for array in (broken.view(pa.string()), broken.cast(pa.large_binary()).view(pa.large_string())):
        table = pa.table({"state": array})
        pq.write_table(table, tmp_path / "a.parquet")
        frame = pd.DataFrame({"state": pd.Series(pd.arrays.ArrowExtensionArray(array))})
        for one in (tmp_path / "a.parquet", table, pa_dataset.dataset(table), frame):
            assert counted(one, declared, atoms) == {(0,): 1, (1,): 1, (2,): 2, (3,): 1}
    (tmp_path / "a.csv").write_bytes(b"state\nNY\n\xff\nNJ\n")
    assert counted(tmp_path / "a.csv", declared, atoms) == {(0,): 1, (1,): 1, (2,): 1}


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


# ── 64 bits ──

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
    failing = spark().sql("SELECT CAST(concat('31337', x) AS INT) AS x FROM VALUES ('a') AS t(x)")
    with pytest.raises(TableError, match="failed in the engine"):
        counted(failing, domain(x={"range": [0, 120]}), LineAtoms("x", "number", (Cut(15),), None))


# ── types that were guessed from values ──


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
    from batchdp.cells.splitting import split
    from batchdp.sql import read_queries

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
        assert _counts_of(counts, 3)().tolist() == [2, 0, 1]
    assert _counts_of([10**30, 0, 0], 3)().tolist() == [2**62, 0, 0]
    for wrong in (["2", "0", "1"], np.array(["2", "0", "1"]), np.array([1j, 0, 0])):
        with pytest.raises(batchdp.BatchDPError, match="whole numbers"):
            _counts_of(wrong, 3)


# ── who is one person ──


def test_one_missing_id_merges_nobody(tmp_path: Path) -> None:
    ids = [2**53 + i for i in range(100)]
    pq.write_table(pa.table({"id": ids, "age": [1] * 100}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1.0, None, 2.0], "age": [1] * 3}), tmp_path / "b.parquet")
    assert counted(tmp_path, domain("id", age={"range": [0, 120]}), AGES) == {(0,): 102}
    dataset = pa_dataset.dataset([pa_dataset.dataset(tmp_path / name) for name in ("a.parquet",)])
    assert counted(dataset, domain("id", age={"range": [0, 120]}), AGES) == {(0,): 100}


def test_a_unit_is_never_read_as_a_column(tmp_path: Path) -> None:
    ids = [2**53, 2**53 + 1, 2**53 + 2]
    line = LineAtoms("id", "number", (Cut(10),), None)
    frame = pd.DataFrame({"id": ids})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for one in (frame, frame.astype(object), tmp_path / "a.csv", pl.DataFrame({"id": ids})):
        assert counted(one, domain("id", id={"range": [0, 10]}), line) == {(1,): 3}
    text = ListedAtoms("id", "text", (("a",),), None)
    frame = pd.DataFrame({"id": pd.Series([(1, 2), (3, 4), "a"], dtype=object)})
    assert counted(frame, domain("id", id={"values": ["a"]}), text) == {(0,): 1, (1,): 2}


def test_persons_under_a_collation() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (who VARCHAR COLLATE NOCASE, state VARCHAR COLLATE NOCASE)")
    connection.execute("INSERT INTO t VALUES ('bob', 'NY'), ('Bob', 'ny'), ('BOB', 'NY')")
    short = ListedAtoms("state", "text", (("NY",),), None)
    assert counted(connection, domain("who", state={"values": ["NY"]}), short) == {(0,): 2, (1,): 1}


def test_citext_knows_who_is_one_person() -> None:
    with psycopg.connect(postgres(), autocommit=True) as server:
        server.execute("CREATE EXTENSION IF NOT EXISTS citext")
        server.execute("DROP DOMAIN IF EXISTS login CASCADE; CREATE DOMAIN login AS citext")
        server.execute("DROP TABLE IF EXISTS t; CREATE TABLE t (who login, what json, state text, tag citext)")
        server.execute(
            "INSERT INTO t VALUES ('Bob', '{}', 'NY', 'NY'), ('bob', '{}', 'NY', 'ny'), ('BOB', '{}', 'NY', 'x')"
        )
    state = ListedAtoms("state", "text", (("NY",),), None)
    assert counted(f"{postgres()}#t", domain("who", state={"values": ["NY"]}), state) == {(0,): 1}
    by_ibis = ibis_backend().table("t")
    assert counted(by_ibis, domain("who", state={"values": ["NY"]}), state) == {(0,): 1}
    tag = ListedAtoms("tag", "text", (("NY",),), None)
    assert counted(f"{postgres()}#t", domain(tag={"values": ["NY"]}), tag) == {(0,): 1, (1,): 2}
    with (
        open_table(f"{postgres()}#t", domain("what", state={"values": ["NY"]})) as source,
        pytest.raises(TableError, match="preparing the count"),
    ):
        counting(source, [state], unit="what")


# ── schemas that no query fits are found before the charge, or fit ──


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


def test_days_with_an_offset_are_days_in_utc(tmp_path: Path) -> None:
    texts = ["2019-12-31T23:30:00-05:00", "2020-01-01T03:00:00+05:00", "2020-01-01", "2019-12-31 10:00"]
    days = LineAtoms("x", "date", (Cut(date(2020, 1, 1).toordinal()),), None)
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(texts) + "\n")
    moments = [datetime.fromisoformat(text) for text in texts]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    connection.execute("CREATE TABLE t AS SELECT unnest(?) AS x", [texts])
    for one in (
        tmp_path / "a.csv",
        pd.DataFrame({"x": pd.Series(moments, dtype=object)}),
        pa.table({"x": texts}),
        connection,
    ):
        assert counted(one, domain(x={"dates": ["2019-01-01", "2020-12-31"]}), days) == {(0,): 2, (1,): 2}


def test_datasets_whose_types_are_guessed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n1\n")
    with pytest.raises(TableError, match="guessed from records"):
        open_table(pa_dataset.dataset(tmp_path / "a.csv", format="csv"), domain(age={"range": [0, 120]}))
    pq.write_table(pa.table({"age": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"age": [1.5, 20.5]}), tmp_path / "b.parquet")
    dataset = pa_dataset.dataset([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")])
    assert counted(dataset, domain(age={"range": [0, 120]}), AGES) == {(0,): 2, (1,): 1}


# ── nothing is read before the charge ──


def test_nothing_is_collected_before_the_charge(tmp_path: Path) -> None:
    seen = []

    class Watched:
        def __str__(self) -> str:
            seen.append("object")
            return "x"

    def collected(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append("lazy")
        return frame

    lazy = pl.LazyFrame({"who": [1, 2], "age": [10, 20]}).map_batches(
        collected, schema={"who": pl.Int64, "age": pl.Int64}
    )
    objects = pd.DataFrame({"who": pd.Series([Watched(), Watched()], dtype=object), "age": [10, 20]})
    declared = domain("who", age={"range": [0, 120]})
    plan = batchdp.plan("SELECT COUNT(*) AS n FROM t WHERE age < 15", declared)
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=1.0)
    for table in (lazy, objects):
        with pytest.raises(BudgetError):
            batchdp.answer(plan, table, epsilon=2.0, ledger=ledger)
        assert seen == []
    for table in (lazy, objects):
        batchdp.answer(plan, table, epsilon=0.25, ledger=ledger)
    assert {"lazy", "object"} <= set(seen)


# ── found by attacks ──


def test_a_long_record_is_kept_or_left_out_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.tables.separated.BLOCK", 40)
    monkeypatch.setattr("batchdp.tables.separated.LONGEST_RECORD", 100)
    for length in (90, 100, 101, 130, 200):
        long = b"x" * (length - 4) + b",1,2\n"
        kept = 3 if length <= 100 else 0
        for before in range(60):
            found = lines(b"a" * before + b",1,2\n" + long * 3)
            assert len(found) == 1 + kept, (length, before)


def test_an_open_quotation_mark_at_the_end_takes_nothing_before_it() -> None:
    data = b'fine,20,1\n5" pipe,1,1\n' + b"a,1,1\n" * 1000
    assert len(lines(data)) == 1002
    assert len(lines(data + b'"x,1,1')) == 1002


@pytest.mark.parametrize("rows_per_unit", [1, 2])
def test_equal_lots_are_decided_by_the_cell_not_by_the_order(
    rows_per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchdp.tables.lots.DIGITS", 0)
    ages = LineAtoms("age", "number", tuple(Cut(k) for k in range(1, 9)), None)
    found = [
        counted(
            pa.table({"who": ["u"] * 4, "age": order}),
            domain("who", age={"range": [0, 9]}),
            ages,
            rows_per_unit=rows_per_unit,
        )
        for order in ([3, 7, 1, 5], [7, 5, 3, 1], [1, 3, 5, 7])
    ]
    assert found[0] == found[1] == found[2]
    assert sum(found[0].values()) == rows_per_unit


def test_objects_of_polars_are_refused() -> None:
    frame = pl.DataFrame({"who": pl.Series([object(), object()], dtype=pl.Object), "age": [1, 2]})
    with pytest.raises(TableError, match=r"holds Python objects; cast it, for instance to pl\.String"):
        open_table(frame, domain("who", age={"range": [0, 120]}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("ns"))),
        (pa.array([0], pa.timestamp("ms")), pa.array([0], pa.date32())),
        (pa.array([b"ab"], pa.binary()), pa.array(["ab"])),
    ],
)
def test_units_that_files_spell_differently_are_refused(one: Any, other: Any, tmp_path: Path) -> None:
    for name, who in (("a", one), ("b", other)):
        pq.write_table(pa.table({"who": who, "age": [1]}), tmp_path / f"{name}.parquet")
    with pytest.raises(TableError, match="write all of them with one type"):
        open_table(tmp_path, domain("who", age={"range": [0, 120]}))


def test_units_of_objects_are_one_person_only_if_they_are_equal() -> None:
    berlin = timezone(timedelta(hours=1))
    groups: list[list[Any]] = [
        [np.datetime64("2020-01-01T10:00"), datetime(2020, 1, 1, 10), np.datetime64("2020-01-01T10:00:00.000")],
        [np.datetime64("2020-01-01T11:00")],
        [datetime(2020, 1, 1, 10, tzinfo=UTC), datetime(2020, 1, 1, 11, tzinfo=berlin)],
        [date(2020, 1, 1)],
        ["2020-01-01"],
        [b"a"],
        ["b'a'"],
        [(1, 2)],
        ["(1, 2)"],
        [True],
        ["true"],
        [7, 7.0, "7", np.int8(7)],
    ]
    people = [who for group in groups for who in group]
    frame = pd.DataFrame({"who": pd.Series(people, dtype=object), "age": [1] * len(people)})
    assert counted(frame, domain("who", age={"range": [0, 120]}), AGES) == {(0,): len(groups)}


@pytest.mark.parametrize("type_", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_small_unsigned_numbers_beside_others(type_: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": pa.array([3, 20, None], type_)}), tmp_path / "a.parquet")
    for other in (pa.array([1]), pa.array(["20"]), pa.array([1.5])):
        pq.write_table(pa.table({"age": other}), tmp_path / "b.parquet")
        assert sum(counted(tmp_path, domain(age={"range": [0, 120]}), AGES).values()) == 4


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


def test_headers_are_all_that_is_read_of_a_file_without_line_feeds(tmp_path: Path) -> None:
    for records_ in (b"1\r2\r", b"\xff\r", b"x" * 1_100_000, b'"\r'):
        (tmp_path / "a.csv").write_bytes(b"age,note\r" + records_)
        with pytest.raises(TableError, match="ends with a carriage return alone"):
            open_table(tmp_path / "a.csv", domain(age={"range": [0, 120]}))


def test_an_interval_is_no_unit() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT INTERVAL '1 month' AS who, 1 AS age")
    with pytest.raises(TableError, match="privacy unit 'who' is interval"):
        open_table(connection, domain("who", age={"range": [0, 120]}))


def test_a_missing_partition_is_nobody(tmp_path: Path) -> None:
    for value in ("1", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"who={value}").mkdir()
        pq.write_table(pa.table({"age": [1]}), tmp_path / f"who={value}" / "a.parquet")
    for table in (tmp_path, pa_dataset.dataset(tmp_path, partitioning="hive")):
        assert counted(table, domain("who", age={"range": [0, 120]}), AGES) == {(0,): 1}
