"""The boundary to codes: no type is refused, and no record decides how, or whether, another is counted."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.errors import BatchDPError, BudgetError
from batchdp.release.counts import codes_of
from batchdp.workloads.kronecker import KroneckerWorkload
from boundary.frames import BOMB
from boundary_cases import quiet

__all__ = ["quiet"]

BATCH = batchdp.workloads.marginals((5,), [1]).structure
WIDE = batchdp.workloads.marginals((5, 5, 5), [1]).structure


def found(table: Any, batch: KroneckerWorkload = BATCH) -> list[int]:
    return codes_of(table, batch).read().codes[:, 0].tolist()  # type: ignore[no-any-return]


READERS: dict[str, Callable[[bytes], Any]] = {
    "pandas": lambda content: pd.read_csv(io.BytesIO(content)),
    "pandas of Arrow": lambda content: pd.read_csv(io.BytesIO(content), dtype_backend="pyarrow"),
    "polars": lambda content: pl.read_csv(content, infer_schema_length=None, try_parse_dates=True),
    "pyarrow": lambda content: pa_csv.read_csv(io.BytesIO(content)),
}
ONE_MORE = {
    "a text": b"n/k",
    "a float": b"0.5",
    "a large whole number": b"9223372036854775808",
    "a larger one": b"99999999999999999999",
    "nothing": b'""',
    "a truth": b"true",
    "a day": b"2020-01-01",
    "a time": b"12:30",
    "a code": b"4",
}


CODES: tuple[tuple[bytes, list[int]], ...] = (
    (b"0\n1\n03\n2.0\n", [0, 1, 3, 2]),
    (b"", []),
    (b'""\n""\n', []),
    (b"0x1\n", [1]),
    (b"True\n", [1]),
)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("more", ONE_MORE)
def test_one_record_changes_the_type_of_a_column_and_no_other_record(reader: str, more: str) -> None:
    """Of ordinary codes, and of none: a column of one record has whatever type that has."""
    for own, codes in CODES:
        content = b"code\n" + own
        assert found(READERS[reader](content)) == codes
        try:
            table = READERS[reader](content + ONE_MORE[more] + b"\n")
        except OverflowError:  # pandas itself, on Arrow
            continue
        assert found(table) in (codes, [*codes, 1], [*codes, 4])


def test_a_release_is_refused_or_made_whatever_one_record_holds(tmp_path: Path) -> None:
    planned = batchdp.optimize(WIDE, privacy="zcdp")
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", rho=10)
    for more in ("", "99999999999999999999,1,1\n", "n/k,1,1\n", "1,,\n"):
        frame = pd.read_csv(io.StringIO("a,b,c\n0,1,2\n" + more))
        assert len(batchdp.answer(planned, frame, rho=0.1, ledger=ledger).array(0)) == 5


ARROW_TYPES = (
    *(
        pa.null(),
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.bool_(),
        pa.decimal128(5, 2),
        pa.decimal256(50, 2),
    ),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("ns", "UTC"), pa.duration("s")),
    *(
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.month_day_nano_interval(),
    ),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.int64()), pa.bool8(), pa.uuid()),
    pa.run_end_encoded(pa.int32(), pa.int64()),
)


@pytest.mark.parametrize("dtype", ARROW_TYPES, ids=str)
@pytest.mark.parametrize("records", [0, 2])
def test_nothing_but_missing_codes_of_any_type(dtype: Any, records: int) -> None:
    if pa.types.is_run_end_encoded(dtype):
        array = pc.run_end_encode(pa.nulls(records, pa.int64()))
    else:
        array = pa.nulls(records, dtype)
    table = pa.table({"code": array})
    assert found(table) == []
    assert found(pa.RecordBatch.from_arrays([array], names=["code"])) == []
    assert found(pd.DataFrame({"code": pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])))})) == []


SAME = [
    *(3, 3.0, "3", " 03", "+3", "3.", "3.0", "3e0", "300e-2", "0x3", "0b11", b"3", 3 + 0j, "(3+0j)"),
    *(Decimal("3.00"), np.int8(3), np.uint64(3), np.float16(3), np.str_("3"), np.bytes_(b"3"), "3\x00"),
]
NONE = [
    *(
        None,
        np.nan,
        np.inf,
        pd.NA,
        pd.NaT,
        0.5,
        -1,
        5,
        "5",
        "x",
        "",
        "-3",
        "3j",
        3j,
        "3,0",
        "--3",
        "0x",
        b"\xff",
        "\ud800",
    ),
    *(2**53 + 3, 2**64 + 3, 10**400, 10**5000, Decimal("sNaN"), Decimal("1e400"), Decimal("3.5"), date(2020, 1, 1)),
    *(time(3), [3], (3,), {3: 3}, {3}, BOMB, object(), np.array([3]), np.datetime64(3, "Y"), pd.Timestamp(3), len),
]


def _objects(values: list[Any]) -> Any:
    array = np.empty((len(values), 1), dtype=object)
    for i, value in enumerate(values):
        array[i, 0] = value
    return array


OBJECTS: dict[str, Callable[[list[Any]], Any]] = {
    "numpy": _objects,
    "masked": lambda values: np.ma.array(_objects(values), mask=False),
    "pandas": lambda values: pd.DataFrame(_objects(values)),
    "polars": lambda values: pl.DataFrame({"a": pl.Series(values, dtype=pl.Object)}),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_read_one_by_one(kind: str) -> None:
    assert found(OBJECTS[kind](SAME)) == [3] * len(SAME)
    assert found(OBJECTS[kind](NONE)) == []
    mixed = [value for pair in zip(SAME, NONE, strict=False) for value in pair]
    assert found(OBJECTS[kind](mixed)) == [3] * len(SAME)


def test_categories_count_as_what_they_stand_for() -> None:
    texts = pd.Series(["3", "x", None, "1"], dtype="category")
    numbers = pd.Series([3, 9, 1], dtype="category")
    assert found(texts.to_frame()) == [3, 1]
    assert found(numbers.to_frame()) == [3, 1]
    assert found(pl.DataFrame({"a": pl.Series(["3", "x", "1"], dtype=pl.Enum(["x", "1", "3"]))})) == [3, 1]
    assert found(pl.DataFrame({"a": pl.Series([3, 2**100, None], dtype=pl.Int128)})) == [3]


def test_numpys_records_have_columns_and_names() -> None:
    records = np.array([(1, "x", 2.0), (3, "1", np.nan), (3, "4", 2)], dtype=[("a", int), ("b", "U3"), ("c", float)])
    codes = codes_of(records, WIDE)
    assert codes.names == ("a", "b", "c")
    assert codes.read().codes.tolist() == [[3, 4, 2]]
    guessed = np.genfromtxt(["1,x,2", "3,4,2"], delimiter=",", dtype=None)
    assert codes_of(guessed, WIDE).names is None  # as of numbers, of which it makes two dimensions
    assert codes_of(guessed, WIDE).read().codes.tolist() == [[3, 4, 2]]


def test_codes_are_not_looked_at_before_the_charge(tmp_path: Path) -> None:
    seen = []

    class Spy:
        def __int__(self) -> int:
            seen.append("looked")
            return 3

        __str__ = __float__ = __bool__ = __eq__ = __index__ = __int__  # type: ignore[assignment]
        __hash__ = object.__hash__

    class Whole(int):
        def __int__(self) -> int:
            seen.append("looked")
            return 3

    planned = batchdp.optimize(BATCH, privacy="zcdp")
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", rho=1)
    for kind in OBJECTS:
        table = OBJECTS[kind]([Spy(), Whole(3)])
        seen.clear()
        with pytest.raises(BudgetError):
            batchdp.answer(planned, table, rho=2, ledger=ledger)
        assert not seen
        batchdp.answer(planned, table, rho=0.1, ledger=ledger)
        assert seen


FORMS: list[Callable[[Any], Any]] = [
    np.asarray,
    pd.DataFrame,
    lambda rows: rows[:, :, None],
    lambda rows: rows.view([("a", int), ("b", int)])[:, 0],
    lambda rows: rows.view([("a", int, 2)])[:, 0],
]


@pytest.mark.parametrize("form", FORMS)
def test_no_refusal_tells_how_many_records_there_are(form: Any, tmp_path: Path) -> None:
    planned = batchdp.optimize(batchdp.MatrixWorkload(np.eye(3)))
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=1)
    told = set()
    for records in (2, 3, 1000):
        with pytest.raises(BatchDPError) as refusal:
            batchdp.answer(planned, form(np.zeros((records, 2), int)), epsilon=0.1, ledger=ledger)
        told.add(str(refusal.value))
    assert len(told) == 1
