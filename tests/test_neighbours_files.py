"""Files larger than every buffer: one record more moves the counts by one, wherever it is put."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from batchdp.domain import as_domain
from batchdp.engines import count, open_table
from batchdp.queries.query import Cut
from batchdp.workloads.encode.atoms import LineAtoms, ListedAtoms

MEGABYTE = 1_000_000
AGES = LineAtoms("age", "number", (Cut(18), Cut(65)), None)
DOMAIN = as_domain({"table": "visits", "columns": {"age": {"integers": [0, 120]}}})
HEADER = ("note", "id", "age")
NOTE = "note\ny,1,34\ny,1,34\n"
"""Lines that look like records, inside of one."""


def counted(table: Any) -> list[int]:
    """Below 18, below 65, and above; anything that is no age."""
    found = [0] * AGES.size
    with open_table(table, DOMAIN) as source:
        for codes, numbers in count(source, [AGES]):
            for row, number in zip(codes.tolist(), numbers.tolist(), strict=True):
                found[row[0]] += number
    return found


Rows = list[tuple[str, int, int]]


def lines(rows: Rows, line_end: str = "\n") -> bytes:
    """By Python's csv module."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line_end).writerows(rows)
    return text.getvalue().encode()


def written(content: bytes, path: Path, line_end: str = "\n") -> Path:
    """The lines under a header."""
    content = ",".join(HEADER).encode() + line_end.encode() + content
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def test_a_note_of_several_lines_at_a_buffers_end(tmp_path: Path) -> None:
    """An engine that reads parts of the file at once has to guess where a line starts, 8 000 000 bytes into it."""
    path = tmp_path / "visits.csv"
    before, behind = (lines([("fine", 1, 34)]) * rows for rows in (799_998, 1_200_002))
    assert counted(written(before + behind, path)) == [0, 2_000_000, 0, 0]
    assert counted(written(before + lines([(NOTE, 1, 34)]) + behind, path)) == [0, 2_000_001, 0, 0]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_notes_everywhere(ending: str, line_end: str, tmp_path: Path) -> None:
    """12 MB of notes with lines that look like records: each record counts once, the first as the last."""
    rows = [(f"{NOTE * (i % 7)}{i}", i, i % 100) for i in range(150_000)]
    expected = [
        sum(age < 18 for *_, age in rows),
        sum(18 <= age < 65 for *_, age in rows),
        sum(age >= 65 for *_, age in rows),
        0,
    ]
    path = tmp_path / f"visits{ending}"

    def found(rows: Rows) -> list[int]:
        return counted(written(lines(rows, line_end), path, line_end))

    assert found(rows) == expected
    assert found(rows[1:]) == [expected[0] - 1, *expected[1:]]
    assert found([*rows, ("last", 0, 70)]) == [*expected[:2], expected[2] + 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("size", [8 * MEGABYTE, 8 * 2**20, 16 * MEGABYTE, 32 * MEGABYTE, 32 * 2**20])
def test_a_note_across_every_buffers_end(size: int, ending: str, line_end: str, tmp_path: Path) -> None:
    """A note of several lines that starts before, at and behind the byte where a buffer may end."""
    line, other = lines([("fine", 1, 34)], line_end), lines([("fine", 1, 70)], line_end)
    rows = size // len(line)
    for shift in (20, 4, 1, 0):
        content = line * (rows - shift) + lines([(NOTE * 3, 1, 1)], line_end) + other * 500_000
        found = counted(written(content, tmp_path / f"visits{ending}", line_end))
        assert found == [1, rows - shift, 500_000, 0]


@pytest.mark.slow
def test_one_note_larger_than_every_buffer(tmp_path: Path) -> None:
    """It may be too long to be counted itself; the others are counted as they were."""
    half = lines([("fine", 1, 34)]) * 500_000
    for size in (2**20, 2**22, 2**25 + 2**23):
        content = half + lines([("x\n" * (size // 2), 1, 70)]) + half
        found = counted(written(content, tmp_path / "visits.csv"))
        assert found in ([0, 1_000_000, 0, 0], [0, 1_000_000, 1, 0]), size


def test_parquet_of_many_row_groups(tmp_path: Path) -> None:
    """A value that no type of ours holds, in one group of records, leaves the others alone."""
    path = tmp_path / "visits.parquet"
    ages = [float(i % 100) for i in range(300_000)]
    pq.write_table(pa.table({"age": ages}), path, row_group_size=20_000)
    expected = counted(path)
    for value in (float("nan"), float("inf"), 1e300):
        pq.write_table(pa.table({"age": [*ages[:150_000], value, *ages[150_000:]]}), path, row_group_size=20_000)
        found = counted(path)
        assert sum(abs(a - b) for a, b in zip(found, expected, strict=True)) == 1, value


def test_ids_stay_apart_whatever_another_files_types(tmp_path: Path) -> None:
    """One id missing, and pandas writes floats: the ids of other files must not become floats, which skip numbers."""
    domain = as_domain({"table": "visits", "privacy": {"unit": "who"}, "columns": {"age": {"integers": [0, 120]}}})
    ids = list(range(2**53, 2**53 + 100))
    pq.write_table(pa.table({"age": [30] * 100, "who": ids}), tmp_path / "0.parquet")
    for others in (pa.array([1, 2]), pa.array([1.0, None]), pa.array([1, 2], pa.uint64()), pa.array(["1", "a"])):
        pq.write_table(pa.table({"age": [30, 30], "who": others}), tmp_path / "1.parquet")
        with open_table(tmp_path, domain) as source:
            found = sum(int(numbers.sum()) for _, numbers in count(source, [AGES], unit="who"))
        assert found == 102 - others.null_count, others.type


def test_numbers_stay_apart_whatever_another_files_types(tmp_path: Path) -> None:
    """A declared 2^53 is not 2^53 + 1, though they are one float."""
    domain = as_domain({"table": "visits", "columns": {"code": {"values": [1, 2**53]}}})
    codes = ListedAtoms("code", "integer", ((1,), (2**53,)), None)
    pq.write_table(pa.table({"code": pa.array([2**53 + 1] * 5)}), tmp_path / "0.parquet")
    for others in (pa.array([1]), pa.array([1.0, None]), pa.array(["1", "n/k"])):
        pq.write_table(pa.table({"code": others}), tmp_path / "1.parquet")
        found = [0] * codes.size
        with open_table(tmp_path, domain) as source:
            for rows, numbers in count(source, [codes]):
                for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
                    found[row[0]] += number
        assert found[:2] == [1, 0], others.type
