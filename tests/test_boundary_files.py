"""The boundary to files: no line or file decides how, or whether, a record of another is counted."""

from __future__ import annotations

import csv
import gzip
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pa_dataset  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from batchdp.engines import open_table
from batchdp.engines.files import Layout, read_records
from batchdp.errors import TableError
from batchdp.queries.query import Cut
from batchdp.workloads.encode.atoms import LineAtoms, ListedAtoms
from boundary_cases import AGES, MANY, counted, domain, quiet

__all__ = ["quiet"]


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
    for columns in read_records(io.BytesIO(data), Layout(",", width, returns), range(width)):
        found += zip(*[column.to_pylist() for column in columns], strict=True)
    return found


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64, 1000, 2**22])
def test_what_a_csv_writer_wrote_is_read_back(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import random

    monkeypatch.setattr("batchdp.engines.files.BLOCK", block)
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
    monkeypatch.setattr("batchdp.engines.files.BLOCK", 16)
    monkeypatch.setattr("batchdp.engines.files.LONGEST_RECORD", 100)
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


def test_a_long_record_is_kept_or_left_out_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.engines.files.BLOCK", 40)
    monkeypatch.setattr("batchdp.engines.files.LONGEST_RECORD", 100)
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


@pytest.mark.parametrize("type_", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_small_unsigned_numbers_beside_others(type_: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": pa.array([3, 20, None], type_)}), tmp_path / "a.parquet")
    for other in (pa.array([1]), pa.array(["20"]), pa.array([1.5])):
        pq.write_table(pa.table({"age": other}), tmp_path / "b.parquet")
        assert sum(counted(tmp_path, domain(age={"range": [0, 120]}), AGES).values()) == 4


def test_headers_are_all_that_is_read_of_a_file_without_line_feeds(tmp_path: Path) -> None:
    for records_ in (b"1\r2\r", b"\xff\r", b"x" * 1_100_000, b'"\r'):
        (tmp_path / "a.csv").write_bytes(b"age,note\r" + records_)
        with pytest.raises(TableError, match="ends with a carriage return alone"):
            open_table(tmp_path / "a.csv", domain(age={"range": [0, 120]}))


def test_a_missing_partition_is_nobody(tmp_path: Path) -> None:
    for value in ("1", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"who={value}").mkdir()
        pq.write_table(pa.table({"age": [1]}), tmp_path / f"who={value}" / "a.parquet")
    for table in (tmp_path, pa_dataset.dataset(tmp_path, partitioning="hive")):
        assert counted(table, domain("who", age={"range": [0, 120]}), AGES) == {(0,): 1}
