"""Codes in frames and arrays, in every type, and with types that a library guesses from all records at once.

A record's code must not depend on what its neighbour has made of the column's type, so the distance of neighbours is
always asked for.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]

from boundary.adapters import Adapter
from boundary.domains import Case
from boundary.files import CSV, csv_bytes
from boundary.frames import BOMB, FRAMES, OBJECTS, same
from boundary.neighbours import Row, Storages
from boundary.storages import BROKEN_TEXTS, FLOATS, SKIP, WHOLE, Storage, as_float, as_text, encoded, whole

SPELLED = (
    *("0", "1", "2", "00", "01", "+1", "-0", " 1", "1 ", "\t2", "1.0", "1.", "2e0", "20e-1", ".0", "1E+0", "1.5"),
    *("0x1", "0X2", "0b1", "true", "True", "FALSE", "yes", "t", "f", "no", "n/k", "NA", "", "12:30", "2020-01-01"),
    *("99999999999999999999", "-1", "1e400", "1e-400", "0e400", "1_0", "1,0", "(1+0j)", "1j", "1\x00", "nan", "inf"),
)
"""Texts that some reader takes for a number, a truth or a moment."""
VALUES = (
    *(0, 1, 2, 0.0, 1.0, True, False, 0.5, -1, None, np.nan, np.inf, *SPELLED, 1 + 0j, 3j),
    *(2**53, 2**63, 2**64 - 1, 2**70, -(2**70), Decimal("1.00"), Decimal("0.5")),
)
"""One Python object each, for lists of which a library makes columns."""
BESIDE_POLARS = (
    *(np.int8(1), np.float32(2), np.bool_(1), np.timedelta64(1, "D"), date(2020, 1, 1), datetime(2020, 1, 1)),
    *(10**400, pd.NA, Decimal("NaN"), b"1", b"\xff"),
)
"""What Polars does not take, makes whole numbers of, or loses other values for."""


BESIDE_NUMPY = (*BESIDE_POLARS, np.timedelta64(1, "s"), pd.Timedelta(1, "ns"), BOMB)
"""What NumPy does not take either, or has one unit of for all."""


def _coded(storage: Storage) -> Storage:
    """The same type with texts of numbers among its values, where it holds texts."""
    more: tuple[Any, ...] = ()
    with suppress(Exception):
        if storage.fit("x") == "x" or storage.name == "field":
            more = SPELLED
    more = (*more, *VALUES, *BESIDE_POLARS) if storage.name == "object" else more
    return Storage(storage.name, storage.fit, (*storage.hostile, *more), storage.build, storage.person)


def _truth(value: Any) -> Any:
    return bool(value) if value in (0, 1) else SKIP


class InFrame(Adapter):
    """A frame with codes, of any type that the frame has."""

    codes = True

    def __init__(self, frame: Adapter) -> None:
        super().__init__(f"codes in {frame.name}")
        self.frame = frame

    def storages(self, rng: Random, case: Case) -> Storages:
        kinds = ["integer", "integer", "number", "text", "text", "boolean", "date"]
        return {name: _coded(rng.choice(self.frame.kinds[rng.choice(kinds)])) for name in case.names}

    def manner(self, rng: Random) -> Any:
        return self.frame.manner(rng)

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        return self.frame.table(rows, storages, folder, manner)


READERS: dict[str, Callable[[bytes], Any]] = {
    "pandas": lambda content: pd.read_csv(io.BytesIO(content), skip_blank_lines=False),
    "pandas in Python": lambda content: pd.read_csv(io.BytesIO(content), engine="python"),
    "pandas nullable": lambda content: pd.read_csv(io.BytesIO(content), dtype_backend="numpy_nullable"),
    "pandas of Arrow": lambda content: pd.read_csv(io.BytesIO(content), dtype_backend="pyarrow"),
    "pandas by Arrow": lambda content: pd.read_csv(io.BytesIO(content), engine="pyarrow"),
    "polars": lambda content: pl.read_csv(content, infer_schema_length=None),
    "polars with dates": lambda content: pl.read_csv(content, infer_schema_length=None, try_parse_dates=True),
    "pyarrow": lambda content: pa_csv.read_csv(
        io.BytesIO(content), parse_options=pa_csv.ParseOptions(newlines_in_values=True)
    ),
}
FIELDS = tuple(value for value in (*CSV["integer"][0].hostile, *SPELLED) if not {"\x00", "٣"} & set(value))
"""Without digits of other scripts, which Polars guesses and cannot read, and what Python's csv module cannot."""


class Read(Adapter):
    """What a reader of CSV files makes of one; every column's type is guessed from all records."""

    codes = True

    def storages(self, rng: Random, case: Case) -> Storages:
        return {name: self._field(rng) for name in case.names}

    def _field(self, rng: Random) -> Storage:
        # Few spellings at a time, so that a column is not always one of texts.
        first = rng.choice([same, as_float, _truth])

        def fit(value: Any) -> Any:
            return found if (found := first(value)) is SKIP else as_text(found)

        return Storage("field", fit, tuple(rng.sample(FIELDS, rng.choice([1, 2, 4, len(FIELDS)]))))

    def manner(self, rng: Random) -> Any:
        return rng.choice(list(READERS))

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = csv_bytes(rows, storages)
            try:
                return READERS[manner](content)
            except Exception:  # a whole number that is too large for Arrow; then somebody reads texts
                return pd.read_csv(io.BytesIO(content), dtype=str)


class Bytes(Read):
    """The same, with bytes that are no UTF-8, of which only Arrow makes a table: of bytes."""

    def storages(self, rng: Random, case: Case) -> Storages:
        field = Storage("field", as_text, (*SPELLED, *BROKEN_TEXTS))
        return dict.fromkeys(case.names, field)

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        lines = [",".join(storages), *(",".join(f'"{row[name] or ""}"' for name in storages) for row in rows)]
        return READERS["pyarrow"]("\n".join([*lines, ""]).encode("utf-8", "surrogatepass"))


class Guessed(Adapter):
    """A table made of lists of Python objects, whose types are guessed from all of them."""

    codes = True

    def __init__(self, name: str, make: Callable[[list[list[Any]], list[str]], Any], values: tuple[Any, ...]) -> None:
        super().__init__(name)
        self.make = make
        self.storage = Storage("object", same, values)

    def storages(self, rng: Random, case: Case) -> Storages:
        # Few kinds at a time, so that the type is one of these and not always that of all objects.
        chosen = tuple(rng.sample(self.storage.hostile, rng.choice([1, 2, 2, 4, 8])))
        fits: list[Callable[[Any], Any]] = [same, str, as_float, _truth]
        return dict.fromkeys(case.names, Storage("object", rng.choice(fits), chosen))

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.make([[row[name] for name in storages] for row in rows], list(storages))


def _by_numpy(rows: list[list[Any]], names: list[str]) -> Any:
    if not rows:
        return np.empty((0, len(names)))
    try:
        return np.array(rows)
    except (OverflowError, ValueError):  # numbers too large for a timedelta
        return np.array(rows, dtype=object)


NUMPY: dict[str, Storage] = {
    "object": Storage("object", same, (*OBJECTS, *VALUES, *BESIDE_POLARS)),
    "U": Storage("U", as_text, (*SPELLED, "x" * 50, "é", "\ud800")),
    "S": Storage("S", lambda value: encoded(as_text(value)), tuple(map(encoded, (*SPELLED, "é")))),
    "T": Storage("T", as_text, (*SPELLED, "x" * 50, "é")),
    **{name: Storage(name, as_float, FLOATS) for name in ("f2", "f4", "f8", ">f8", "g", "c8", "c16")},
    **{name: Storage(name, whole(-128, 127), (-1, 127, -128)) for name in ("i1", "i2", ">i4")},
    "i8": Storage("i8", whole(-(2**63), 2**63 - 1), tuple(n for n in WHOLE if n < 2**63)),
    "u1": Storage("u1", whole(0, 255), (255,)),
    "u8": Storage("u8", whole(0, 2**64 - 1), tuple(n for n in WHOLE if n >= 0)),
    "?": Storage("?", _truth, (True, False)),
    "m8[D]": Storage("m8[D]", whole(0, 10**6), (-1,)),
    "M8[D]": Storage("M8[D]", whole(0, 10**6), (-1,)),
}


class InArray(Adapter):
    """A NumPy array of one type: in two dimensions, with a mask, or as records."""

    codes = True

    def storages(self, rng: Random, case: Case) -> Storages:
        return dict.fromkeys(case.names, NUMPY[rng.choice(list(NUMPY))])

    def manner(self, rng: Random) -> Any:
        return rng.choice(["plain", "masked", "records"])

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        names = list(storages)
        dtype = np.dtypes.StringDType() if storages[names[0]].name == "T" else np.dtype(storages[names[0]].name)
        widest = dtype if dtype.kind not in "US" else np.dtype(f"{dtype.kind}60")
        array: Any = np.zeros((len(rows), len(names)), widest)
        mask = np.zeros(array.shape, bool)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for i, row in enumerate(rows):
                for j, name in enumerate(names):
                    mask[i, j] = row[name] is None
                    if not mask[i, j] or dtype.kind == "O":
                        array[i, j] = row[name]
        if manner == "masked":
            return np.ma.array(array, mask=mask)
        if manner == "records" and dtype.kind != "T":
            records = np.zeros(len(rows), [(name, widest) for name in names])
            for j, name in enumerate(names):
                records[name] = array[:, j]
            return records
        return array


def _by_polars(rows: list[list[Any]], names: list[str]) -> Any:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    try:
        return pl.DataFrame(columns, strict=False)
    except Exception:  # NumPy's truths beside texts
        return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.Object))


FROM_LISTS: dict[str, tuple[Callable[[list[list[Any]], list[str]], Any], tuple[Any, ...]]] = {
    "codes guessed by pandas": (lambda rows, names: pd.DataFrame(rows, columns=names), (*VALUES, *BESIDE_NUMPY)),
    "codes guessed by NumPy": (_by_numpy, (*VALUES, *BESIDE_POLARS)),
    "codes guessed by Polars": (_by_polars, VALUES),
}
IN_FRAMES = tuple(
    InFrame(frame) for frame in FRAMES if frame.name not in ("pandas by read_csv", "polars lazy", "pyarrow dataset")
)
"""Types by `read_csv` are guessed below by all readers; lazy frames and datasets are refused by their class."""

CODES: tuple[Adapter, ...] = (
    *IN_FRAMES,
    InArray("codes in NumPy arrays"),
    Read("codes in what CSV readers make"),
    Bytes("codes in what Arrow makes of bytes"),
    *(Guessed(name, make, values) for name, (make, values) in FROM_LISTS.items()),
)
