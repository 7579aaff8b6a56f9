"""What is opened and what is refused, without a look at the records; nothing is changed or left behind."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp import BatchDPError
from batchdp.domain import Domain, as_domain
from batchdp.engines import count, open_table
from batchdp.engines.source import shield, shield_all
from batchdp.errors import TableError
from batchdp.queries.query import Cut
from batchdp.workloads.encode.atoms import LineAtoms, ListedAtoms, split
from engines import ENGINES, every_engine, on_spark, postgres, spark
from needs import require

RECORDS = pa.table(
    {"patient_id": pa.array([1, 2, 2]), "Age": pa.array([10, 20, 30]), "state": pa.array(["NY", "NJ", None])}
)
PIECES = [
    b'"',
    b'""',
    b",",
    b",",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b"\0",
    b"\xff",
    "é".encode(),
    b"age",
    b"1",
    b"2.5",
    b" ",
    b"\\",
    b"'",
]
AGES = LineAtoms("age", "number", (Cut(15),), None)


def domain(**columns: Any) -> Domain:
    columns = columns or {"age": {"range": [0, 120]}, "state": {"values": ["NY", "NJ"]}}
    return as_domain({"table": "patients", "privacy": {"unit": "patient_id"}, "columns": columns})


def refusal(table: Any, declared: Domain | None = None, **more: Any) -> str:
    with pytest.raises(TableError) as caught:
        open_table(table, declared or domain(), **more)
    assert isinstance(caught.value, BatchDPError)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


def total(table: Any, declared: Domain | None = None, **more: Any) -> int:
    with open_table(table, declared or domain()) as source:
        return sum(int(counts.sum()) for _, counts in count(source, [AGES], **more))


# ── schemas ──


@pytest.mark.parametrize("values", ["8675309,AGE,NY", "8675309,age,aGe", "8675309,aged,state", '"8675309";13;NY'])
def test_the_first_record_of_a_file_without_a_header_is_not_shown(values: str, tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text(f"{values}\n8675310,14,NJ\n")
    message = refusal(tmp_path / "bare.csv")
    assert "among its 3; its first line must name each column once" in message
    for field in re.split("[,;]", values.replace('"', "")):
        assert field in ("age", "state") or field not in message.replace(str(tmp_path), "")


@every_engine()
def test_a_column_that_is_not_there_is_named_with_those_that_are(engine: str, tmp_path: Path) -> None:
    table = ENGINES[engine](RECORDS, tmp_path)
    message = refusal(table, domain(aeg={"range": [0, 120]}))
    assert "no column 'aeg'" in message
    if engine in ("csv", "csv.gz", "tsv"):  # whose names may be values
        assert "among its 3" in message
        assert "Age" not in message
    else:
        assert "did you mean 'Age'?" in message
        assert "'patient_id', 'Age', 'state'" in message
    nobody = as_domain({"table": "patients", "privacy": {"unit": "nobody"}, "columns": {"age": {"range": [0, 1]}}})
    assert "no column 'nobody'" in refusal(table, nobody)
    with open_table(table, domain(age={"range": [0, 120]}, height={"range": [0, 250]}), columns=["age"]) as source:
        assert "Age" in repr(source)


def test_a_type_that_does_not_fit_is_named_with_a_remedy() -> None:
    """In PostgreSQL, where types are declared and texts cannot be tried."""
    with psycopg.connect(postgres(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS misfits")
        connection.execute("CREATE TABLE misfits (patient_id bigint, age bigint, state text)")
    misfits: list[tuple[dict[str, Any], str]] = [
        ({"state": {"range": [0, 1]}}, "numbers"),
        ({"state": {"integers": [0, 1]}}, "numbers"),
        ({"state": {"values": [1, 2]}}, "whole numbers"),
        ({"state": {"values": [True]}}, "true and false"),
        ({"state": {"dates": ["2020-01-01", "2020-01-02"]}}, "dates"),
        ({"age": {"values": ["10"]}}, "text values"),
        ({"age": {"dates": ["2020-01-01", "2020-01-02"]}}, "dates"),
    ]
    for columns, kind in misfits:
        message = refusal(f"{postgres()}#misfits", domain(**columns))
        assert f"declared to hold {kind} but" in message
        assert "TRY_CAST" in message or "text in a view" in message
        assert ("string" if "state" in columns else "int64") in message


def test_nested_types_are_refused_with_a_remedy(tmp_path: Path) -> None:
    nested = pa.table({"patient_id": [1], "age": [[1]], "state": ["NY"]})
    for table in (nested, nested.to_pandas(types_mapper=pd.ArrowDtype), ENGINES["parquet"](nested, tmp_path)):
        message = refusal(table)
        assert "'age' is declared to hold numbers but" in message
        assert "list<" in message
    with pytest.raises(TableError, match="privacy unit 'patient_id' is list<"):
        open_table(pa.table({"patient_id": [[1]], "age": [1], "state": ["NY"]}), domain())


def test_columns_that_differ_only_in_case_are_refused() -> None:
    assert "several columns called 'age'" in refusal(
        pa.table({"patient_id": [1], "Age": [1], "AGE": [2], "state": ["x"]})
    )
    same = pa.table({"patient_id": [1], "age": [1], "AGE": [2], "state": ["NY"]})
    assert total(same) == 1


def test_only_the_columns_that_were_asked_for_can_be_counted() -> None:
    with (
        open_table(RECORDS, domain(), columns=["state"]) as source,
        pytest.raises(TableError, match="'age' was not asked"),
    ):
        list(count(source, [AGES]))


# ── paths ──


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    assert "no file or folder" in refusal(tmp_path / "missing.csv")
    assert "no DuckDB file" in refusal(tmp_path / "missing.duckdb")
    assert "no DuckDB file" in refusal(f"duckdb://{tmp_path}/missing.db")
    (tmp_path / "notes.txt").write_text("age\n1\n")
    assert "should end in .csv" in refusal(tmp_path / "notes.txt")
    (tmp_path / "empty").mkdir()
    assert "holds no table" in refusal(tmp_path / "empty")
    assert "mysql:// address" in refusal("mysql://root:hunter2@localhost/db")
    assert "hunter2" not in refusal("mysql://root:hunter2@localhost/db")


def test_a_folder_holds_one_kind(tmp_path: Path) -> None:
    pq.write_table(RECORDS, tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.csv").write_text("x")
    (tmp_path / "README.txt").write_text("x")
    assert total(tmp_path) == 3
    (tmp_path / "b.csv").write_text("patient_id,age,state\n")
    assert "mixes CSV and Parquet" in refusal(tmp_path)


def test_names_of_files_are_no_patterns(tmp_path: Path) -> None:
    (tmp_path / "of [2020]").mkdir()
    for name in ("of [2020]/a.parquet", "a*.parquet", "[ab].parquet", "a?'s.parquet", "ax.parquet", "b [1].csv"):
        path = tmp_path / name
        pq.write_table(RECORDS, path) if name.endswith("parquet") else path.write_text(
            "patient_id,age,state\n1,1,x\n2,2,y\n3,3,z\n"
        )
        assert total(path) == 3


def test_parquet_files_of_one_folder_are_reconciled_by_their_schemas(tmp_path: Path) -> None:
    pq.write_table(RECORDS, tmp_path / "a.parquet")
    pq.write_table(
        RECORDS.select(["state", "Age", "patient_id"]).set_column(1, "Age", pa.array([1.5, 2.5, 99.5])),
        tmp_path / "b.parquet",
    )
    assert total(tmp_path) == 6
    pq.write_table(RECORDS.set_column(1, "Age", pa.array(["1", "x", "2"])), tmp_path / "c.parquet")
    assert total(tmp_path) == 9
    pq.write_table(RECORDS.drop_columns(["Age"]), tmp_path / "d.parquet")
    assert "d.parquet has no column 'age'" in refusal(tmp_path)


def test_files_that_are_not_what_they_are_called(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.duckdb"):
        (tmp_path / name).write_bytes(b"canary 31337 " * 1000)
        message = refusal(tmp_path / name)
        assert "failed in the engine with" in message
        assert "canary" not in message
    (tmp_path / "a.csv.gz").write_bytes(b"patient_id,age,state\n")
    assert "not a gzip file" in refusal(tmp_path / "a.csv.gz")
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refusal(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes(b"")
    assert "no header" in refusal(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_bytes(b"x" * 1_100_000)
    assert "longer than" in refusal(tmp_path / "c.csv")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(RECORDS, tmp_path / "a.parquet")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    assert "permission denied" in refusal(tmp_path / "a.parquet")


def test_things_that_are_no_tables() -> None:
    for thing in (7, None, [1, 2], {"age": [1]}, np.zeros(3), pa.array([1]), pd.Series([1]), RECORDS.to_reader()):
        assert f"{type(thing).__name__}; give a path" in refusal(thing)


# ── CSV ──


def csv_counts(path: Path, content: bytes, columns: dict[str, Any], atoms: LineAtoms) -> dict[int, int]:
    path.write_bytes(content)
    declared = as_domain({"table": "patients", "columns": columns})
    with open_table(path, declared) as source:
        return {
            int(codes[i, 0]): int(counts[i]) for codes, counts in count(source, [atoms]) for i in range(len(counts))
        }


def test_csv_of_every_style(tmp_path: Path) -> None:
    columns = {"age": {"range": [0, 120]}}
    for content in (
        b"name,age\nx,10\ny,20\n",
        b"name,age\r\nx,10\r\ny,20\r\n",
        b"\xef\xbb\xbfage;name\n10;x\n20;y",
        b"name|age|more\nx|10|\ny| 20 |\n",
        b'"na,me",AGE\n"x, ""y""",10\n"two\nlines","20"\n',
        b'name\tage\nx\t1e1\n"y"\t+20.0\n',
    ):
        assert csv_counts(tmp_path / "a.csv", content, columns, AGES) == {0: 1, 1: 1}, content
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.csv").write_bytes(b"name,age\nx,10\n")
    with gzip.open(tmp_path / "folder" / "b.csv.gz", "wb") as file:
        file.write(b"name,age\nx,10\n")
    declared = as_domain({"table": "patients", "columns": columns})
    assert total(tmp_path / "folder", declared) == 2
    (tmp_path / "folder" / "c.csv").write_bytes(b"age,name\n10,x\n")
    assert "a different header" in refusal(tmp_path / "folder", declared)


def test_csv_lines_that_are_broken_are_no_error(tmp_path: Path) -> None:
    content = b"name,age\nx,10\nshort\nlong,20,30,40\nbad name\xff,20\nbad,2\xff\nempty,\nword,ten\n"
    content += b"nan,nan\ninf,inf\nhuge,1e999\nlong text," + b"9" * 5_000_000 + b"\nlast,20\n"
    found = csv_counts(tmp_path / "a.csv", content, {"age": {"range": [0, 120]}}, AGES)
    assert found == {0: 1, 1: 6, 2: 4}  # without the short line


def test_csv_dates(tmp_path: Path) -> None:
    content = b"visited\n2020-01-01\n2019-12-31\n2020-01-01 00:00:00\n2019-12-31T23:59:59Z\n31.12.2019\n\n"
    atoms = LineAtoms("visited", "date", (Cut(737425),), None)
    assert csv_counts(tmp_path / "a.csv", content, {"visited": {"dates": ["2019-01-01", "2020-12-31"]}}, atoms)[0] == 2
    assert csv_counts(tmp_path / "a.csv", content, {"visited": {"dates": ["2019-01-01", "2020-12-31"]}}, atoms)[1] == 2


@settings(max_examples=int(os.environ.get("BATCHDP_EXAMPLES", "25")), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join) | st.binary(max_size=300), st.booleans())
def test_no_line_of_a_csv_file_is_an_error(content: bytes, unix: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(b"patient_id,age,state" + (b"\n" if unix else b"\r\n") + content)
        assert 0 <= total(path, unit="patient_id") <= len(content)


@settings(max_examples=int(os.environ.get("BATCHDP_EXAMPLES", "30")), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join) | st.binary(max_size=100))
def test_any_header_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(TableError):
        path = Path(folder) / "a.csv"
        path.write_bytes(content)
        total(path)


# ── secrets ──


def test_engine_errors_show_their_type_only() -> None:
    connection = duckdb.connect()
    connection.execute(
        "CREATE VIEW patients AS SELECT CAST('canary 31337' AS INTEGER) AS age, 1 AS patient_id, 'NY' AS state"
    )
    with open_table(connection, domain()) as source, pytest.raises(TableError, match="ConversionException") as caught:
        list(count(source, [AGES]))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "31337" not in "".join(traceback.format_exception(caught.value))


def test_interruptions_pass() -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shield(interrupt, "task")
    with pytest.raises(KeyboardInterrupt):
        list(shield_all((interrupt() for _ in range(2)), "task"))


INTERRUPTED = """
import duckdb
from test_tables_opening import AGES, count, domain, open_table

connection = duckdb.connect()
everyone = "FROM range(1_000_000) a, range(1_000_000) b"
connection.execute(f"CREATE VIEW patients AS SELECT b.range AS age, a.range AS patient_id, 'NY' AS state {everyone}")
with open_table(connection, domain()) as source:
    print("ready", flush=True)
    try:
        list(count(source, [AGES]))
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_stops_duckdb() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(1)
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=60)[0] == "stopped\n"
        finally:
            child.kill()


def test_passwords_stay_secret() -> None:
    for address in ("postgresql://me:hunter2@127.0.0.1:1/db", "postgres://me:hun#ter2@127.0.0.1:1/db#table"):
        message = refusal(address)
        assert "OperationalError" in message
        assert "ter2" not in message
    with pytest.raises(TableError) as caught:
        open_table("postgresql://me:hunter2@127.0.0.1:1/db", domain())
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)).replace('"postgresql://me:hunter2', "")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'batchdp[postgres]'" in refusal("postgresql://localhost/db")


def test_a_missing_engine_is_skipped_unless_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHDP_REQUIRE", "")
    with pytest.raises(pytest.skip.Exception, match="needs spark: no Java"):
        require("spark", "no Java")
    monkeypatch.setenv("BATCHDP_REQUIRE", "postgres, spark")
    with pytest.raises(pytest.fail.Exception, match="no Java"):
        require("spark", "no Java")


# ── nothing is changed ──


def test_our_own_database_reads_nothing_else_and_cannot_be_unlocked(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a\n1\n")
    path = ENGINES["csv"](RECORDS, tmp_path)
    for table in (path, RECORDS, ENGINES["duckdb file"](RECORDS, tmp_path)):
        source = open_table(table, domain())
        connection = source.engine._connection  # type: ignore[attr-defined]
        for statement in (
            f"SELECT * FROM '{tmp_path}/other.csv'",
            f"COPY (SELECT 1) TO '{tmp_path}/leak.csv'",
            "SET enable_external_access = true",
            f"SET temp_directory = '{tmp_path}'",
            "INSTALL httpfs",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)
        source.close()
        with pytest.raises(duckdb.ConnectionException):
            connection.execute("SELECT 1")


def test_a_database_file_is_opened_for_reading_only(tmp_path: Path) -> None:
    path = ENGINES["duckdb file"](RECORDS, tmp_path)
    before = path.read_bytes()
    with open_table(f"duckdb://{path}#main.Patients", domain()) as source:
        connection = source.engine._connection  # type: ignore[attr-defined]
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            connection.execute("DELETE FROM patients")
        assert sum(int(counts.sum()) for _, counts in count(source, [AGES])) == 3
    assert path.read_bytes() == before
    assert "has no table 'people'; it has 'patients'" in refusal(f"duckdb://{path}#people")
    assert "has no table 'other.patients'" in refusal(f"duckdb://{path}#other.patients")


def test_a_connection_stays_open_and_as_it_was(tmp_path: Path) -> None:
    connection = ENGINES["duckdb connection"](RECORDS, tmp_path)
    connection.execute("ALTER TABLE patients ADD COLUMN seen TIMESTAMPTZ DEFAULT '2020-01-01 00:00:00+00'")
    connection.execute("SET TimeZone = 'America/New_York'")
    views = "(SELECT count(*) FROM duckdb_views() WHERE NOT internal)"
    state = f"SELECT current_setting('TimeZone'), {views}, (SELECT count(*) FROM patients)"
    before = connection.execute(state).fetchall()
    seen = domain(age={"range": [0, 120]}, seen={"dates": ["2020-01-01", "2020-01-02"]})
    with open_table(connection, seen) as source:
        days = LineAtoms("seen", "date", (Cut(737425),), None)
        assert [codes.tolist() for codes, _ in count(source, [days])] == [
            [[1]]
        ]  # that day in UTC, the one before there
    assert connection.execute(state).fetchall() == before
    assert total(connection.table("patients"), unit="patient_id") == 2
    assert connection.execute(state).fetchall() == before
    refusal(connection, domain(missing={"range": [0, 1]}))
    assert connection.execute(state).fetchall() == before


def test_tables_are_found_in_a_connection_by_the_domains_name() -> None:
    connection = duckdb.connect()
    assert "has no table 'patients'" in refusal(connection)
    connection.execute("CREATE SCHEMA a; CREATE SCHEMA b")
    connection.execute("CREATE TABLE a.Patients AS SELECT 1 AS patient_id, 2 AS age, 'NY' AS state")
    assert total(connection) == 1
    connection.execute("CREATE TABLE b.patients AS SELECT * FROM a.patients UNION ALL SELECT * FROM a.patients")
    assert "several tables 'patients': a.Patients, b.patients" in refusal(connection)
    connection.register("patients", RECORDS)
    assert total(connection) == 3
    patients = RECORDS  # a variable of this name is no table
    connection.unregister("patients")
    assert "several tables" in refusal(connection)
    assert len(patients) == 3


@pytest.mark.xdist_group("postgres")
def test_a_postgres_session_cannot_write(tmp_path: Path) -> None:
    address = ENGINES["postgres"](RECORDS, tmp_path)
    place = address.partition("#")[2]
    with open_table(address, domain()) as source:
        connection = source.engine._connection  # type: ignore[attr-defined]
        for statement in (f"DELETE FROM {place}", "CREATE TABLE leak (x int)", "CREATE TEMP TABLE leak (x int)"):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.execute(statement)
        assert sum(int(counts.sum()) for _, counts in count(source, [AGES])) == 3
    assert connection.closed
    schema = place.partition(".")[0]
    assert f"has no table '{schema}.people'" in refusal(f"{postgres()}#{schema}.people")
    nobodys = as_domain({"table": "nobodys", "columns": {"age": {"range": [0, 120]}}})
    assert "has no table 'nobodys'" in refusal(postgres(), nobodys)
    assert total(f"{postgres()}&options=-csearch_path%3D{schema}") == 3


@on_spark
def test_spark_is_left_as_it_was() -> None:
    session = spark()
    frame = session.createDataFrame(RECORDS)
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert total(frame) == 3
    refusal(frame, domain(missing={"range": [0, 1]}))
    assert session.catalog.listTables() == []
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    session.conf.set("spark.sql.session.timeZone", "UTC")


# ── what a record becomes depends on it alone ──


def one_of_each(values: list[Any]) -> list[int]:
    """The counts of north and south, one record per person, from a pandas column of objects as the unit."""
    table = pd.DataFrame({"who": pd.Series([value for value in values for _ in range(2)], dtype=object)})
    table["side"] = ["north", "south"] * len(values)
    sides = {"side": {"values": ["north", "south"]}}
    one = as_domain({"table": "t", "privacy": {"unit": "who"}, "columns": sides})
    atoms = ListedAtoms("side", "text", (("north",), ("south",)), None)
    totals = [0, 0]
    with open_table(table, one) as source:
        for codes, counts in count(source, [atoms], unit="who", rows_per_unit=1):
            for code, number in zip(codes[:, 0].tolist(), counts.tolist(), strict=True):
                totals[code] += number
    return totals


@pytest.mark.parametrize("kind", [str, int, float, lambda i: (i, "x"), lambda i: [i]])
def test_taking_one_person_away_moves_no_other_persons_record(kind: Any) -> None:
    people = [kind(i) for i in range(300)]
    everybody = one_of_each(people)
    assert sum(everybody) == 300
    for without in (people[1:], people[:150] + people[151:]):
        assert sum(abs(a - b) for a, b in zip(everybody, one_of_each(without), strict=True)) == 1


@pytest.mark.parametrize(
    ("column", "poison"),
    [
        ({"values": ["a", "b"]}, "\ud800"),
        ({"values": ["a", "b"]}, [1]),
        ({"range": [0, 10]}, 10**400),
        ({"range": [0, 10]}, Decimal("sNaN")),
        ({"range": [0, 10]}, Decimal("1e500")),
        ({"dates": ["2020-01-01", "2024-01-01"]}, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
        ({"dates": ["2020-01-01", "2024-01-01"]}, "not a day"),
        ({"values": [True, False]}, "x"),
    ],
)
def test_no_object_in_a_frame_is_an_error(column: dict[str, Any], poison: Any) -> None:
    one = as_domain({"table": "t", "columns": {"c": column}})
    atoms = split((), one.model_copy(update={"columns": {"c": one.columns["c"].model_copy(update={"other": "drop"})}}))
    with open_table(pd.DataFrame({"c": pd.Series([poison, None], dtype=object)}), one) as source:
        assert list(count(source, atoms)) == []  # neither is a declared value


def test_columns_that_differ_in_case_only_are_told_apart(tmp_path: Path) -> None:
    twins = pa.table({"id": [1, 2], "ID": ["p", "p"], "c": [True, True]})
    pq.write_table(twins, tmp_path / "twins.parquet")
    one = as_domain({"table": "t", "privacy": {"unit": "ID"}, "columns": {"c": {"values": [True, False]}}})
    for table in (tmp_path / "twins.parquet", twins):
        with open_table(table, one) as source:
            (found,) = count(source, split((), one), unit="ID")
            assert found[1].tolist() == [1]
    other = as_domain({"table": "t", "privacy": {"unit": "Id"}, "columns": {"c": {"values": [True, False]}}})
    assert "several columns called 'Id'" in refusal(tmp_path / "twins.parquet", other)
