"""Frames in memory: pandas with its many types, Polars and PyArrow."""

from __future__ import annotations

import io
import math
import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pa_dataset  # type: ignore[import-untyped]

from boundary.adapters import Adapter
from boundary.files import CSV, CSV_UNITS, arrow_table, csv_bytes
from boundary.neighbours import Row, Storages
from boundary.storages import (
    ALL_TEXTS,
    ARROW,
    ARROW_DAY,
    ARROW_DECIMAL,
    ARROW_FLOAT,
    ARROW_LARGE,
    ARROW_MOMENT,
    ARROW_TEXT,
    ARROW_TRUTH,
    ARROW_UNITS,
    ARROW_WHOLE,
    BIG_IDS,
    BROKEN_TEXTS,
    EPOCH,
    FLOATS,
    IDS,
    MOMENTS,
    NUL_TEXTS,
    SKIP,
    TEXTS,
    WHOLE,
    Storage,
    as_float,
    as_text,
    as_truth,
    dictionary,
    number_person,
    whole,
)


class Bomb:
    """An object that answers nothing."""

    def __repr__(self) -> str:
        return "Bomb()"

    def _raise(self, *arguments: object) -> Any:
        raise RuntimeError("this object does not want to be converted")

    __str__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = __lt__ = __format__ = _raise
    __eq__ = __ne__ = _raise
    __array__ = __bytes__ = __getitem__ = _raise
    __hash__ = object.__hash__


class Text(str):
    """A text that does not want to be encoded."""

    def encode(self, *arguments: Any, **named: Any) -> bytes:
        raise ValueError("this text does not want to be encoded")


BOMB = Bomb()
EAST = timezone(timedelta(hours=5, minutes=30))
OBJECTS: tuple[Any, ...] = (
    *(BOMB, Text("NY"), 1 + 2j, np.complex128(3 + 4j), b"NY", bytearray(b"x"), (1, 2), [1], {"a": 1}, {1}, ...),
    *(
        np.array([1.0]),
        np.array([1, 2]),
        np.array(5),
        np.float32(1.5),
        np.int8(3),
        np.bool_(True),
        np.datetime64("NaT"),
    ),
    *(np.datetime64("2020-05-05"), np.timedelta64(3, "D"), np.datetime64(2**62, "s"), np.str_("NY"), np.bytes_(b"NY")),
    *(
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("1e400"),
        Decimal("1.5"),
        10**400,
        -(10**30),
        10**5000,
    ),
    *(
        pd.NaT,
        pd.NA,
        pd.Timestamp("2020-03-01T23:00", tz="America/New_York"),
        pd.Timedelta(3, "h"),
        pd.Period("2020-01"),
    ),
    *(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=EAST), datetime(2020, 1, 1, 3, tzinfo=EAST)),
    *(datetime.max, date.max, date.min, UUID(int=7), object, len, pd.Interval(0, 1), float, True, False, 0, 1, 0.5),
    *("2020-01-01T00:00:00+05:00", "2020-01-01T00:00:00", "now", "today", "1e400", "1_000", "٣"),
)
"""What can be in a column of Python objects."""


def spelled(value: Any) -> Any:
    """How an id among Python objects is told apart: by its text, numbers by their value; nobody if it has none."""
    try:
        if value is None or value is pd.NA or value is pd.NaT or value != value:
            return None
        if isinstance(value, (bool, np.bool_)):
            return str(value).lower()
        if isinstance(value, (int, np.integer)):
            return f"{int(value):x}" if abs(int(value)) > 10**300 else str(int(value))
        if isinstance(value, (float, np.floating)):
            real = float(value)
            return str(int(real)) if abs(real) < 2.0**63 and real == int(real) else repr(real)
        if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 300:
            return format(value.to_integral_value() if value == value.to_integral_value() else value, "f")
        return value.isoformat() if isinstance(value, (date, datetime)) else str(value)
    except Exception:  # whatever the object makes of it
        return None


def same(value: Any) -> Any:
    return value


def _objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        column[i] = value
    return pd.Series(column, dtype=object)


def _object_storage(*more: Any) -> Storage:
    return Storage("object", same, (*OBJECTS, *ALL_TEXTS, *FLOATS, *more), _objects, spelled)


def _series(name: str, fit: Any, hostile: Any, dtype: Any = None, person: Any = same) -> Storage:
    def build(values: list[Any]) -> Any:
        with np.errstate(over="ignore"):  # float16 and float32 make infinity of what is too large
            return pd.Series(values, dtype=dtype or name)

    return Storage(name, fit, tuple(hostile), build, person)


def _moments(name: str, steps: int, zone: str | None = None) -> Storage:
    def fit(value: Any) -> Any:
        count: Any = (value.toordinal() - EPOCH) * 86400 * steps if isinstance(value, date) else SKIP
        return count if count is SKIP or abs(count) < 2**63 else SKIP

    def build(values: list[Any]) -> Any:
        counts = np.array([-(2**63) if value is None else value for value in values], np.int64)
        series = pd.Series(counts.view(f"datetime64[{name}]"))
        return series if zone is None else series.dt.tz_localize(zone)

    hostile = MOMENTS if zone is None else (0, 1, 10**9)
    return Storage(f"datetime64[{name}] {zone or ''}", fit, hostile, build)


def _category(storage: Storage) -> Storage:
    def build(values: list[Any]) -> Any:
        found = [value for value in values if value is not None and value == value]
        return pd.Series(pd.Categorical(values, categories=sorted({*storage.hostile, *found} - {None}, key=repr)))

    return Storage(f"category of {storage.name}", storage.fit, storage.hostile, build, storage.person)


def _arrow_backed(storage: Storage) -> Storage:
    build = storage.build
    return Storage(
        f"{storage.name}[pyarrow]",
        storage.fit,
        storage.hostile,
        lambda values: pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([build(values)]))),
        storage.person,
    )


INTEGERS = _series("Int64", whole(-(2**63), 2**63 - 1), [n for n in WHOLE if n < 2**63])
PLAIN_FLOATS = _series("float64", as_float, FLOATS, person=number_person)
STRINGS = _series("str", as_text, TEXTS + NUL_TEXTS)
PYTHON_STRINGS = _series("string[python]", as_text, TEXTS + NUL_TEXTS + BROKEN_TEXTS, pd.StringDtype("python"))
SOME_WHOLE = Storage("whole numbers", whole(-(2**63), 2**63 - 1), (0, -1, 5, 2**53 + 1, 2**63 - 1))
SOME_TEXTS = Storage("texts", as_text, TEXTS + NUL_TEXTS)

PANDAS: dict[str, dict[str, tuple[Storage, ...]]] = {
    "pandas of objects": dict.fromkeys(("text", "integer", "number", "boolean", "date"), (_object_storage(),)),
    "pandas of numpy": {
        "text": (STRINGS, PYTHON_STRINGS),
        "integer": (PLAIN_FLOATS, _series("float32", as_float, FLOATS, person=number_person)),
        "number": (PLAIN_FLOATS, _series("float16", as_float, (math.nan, math.inf, -0.0), person=number_person)),
        "boolean": (_object_storage(), _series("boolean", as_truth, ())),
        "date": (*map(_moments, ("s", "ms", "us", "ns"), (1, 10**3, 10**6, 10**9)), _moments("us", 10**6, "UTC")),
    },
    "pandas of text": dict.fromkeys(("text", "integer", "number", "boolean", "date"), (STRINGS, PYTHON_STRINGS)),
    "pandas of nullable": {
        "text": (_series("string", as_text, TEXTS + NUL_TEXTS),),
        "integer": (
            INTEGERS,
            _series("UInt8", whole(0, 255), (0, 255)),
            _series("Float64", as_float, FLOATS, person=number_person),
        ),
        "number": (INTEGERS, _series("Float64", as_float, FLOATS, person=number_person)),
        "boolean": (_series("boolean", as_truth, ()),),
        "date": (_object_storage(),),
    },
    "pandas of categories": {
        "text": (_category(SOME_TEXTS),),
        "integer": (_category(SOME_WHOLE),),
        "number": (_category(SOME_WHOLE), _category(SOME_TEXTS)),
        "boolean": (_category(Storage("truths", as_truth, (True,))),),
        "date": (_category(SOME_TEXTS),),
    },
    "pandas of arrow": {kind: tuple(map(_arrow_backed, storages)) for kind, storages in ARROW.items()},
}
PANDAS_UNITS: dict[str, tuple[Storage, ...]] = {
    "pandas of objects": (
        Storage(
            "object",
            same,
            (*IDS, *BIG_IDS, 2.5, math.nan, pd.NA, True, b"x", (1, 2), 10**30, 10**5000, 1e300),
            _objects,
            spelled,
        ),
        Storage("object", same, (*IDS, *BROKEN_TEXTS), _objects, spelled),
    ),
    "pandas of numpy": (PLAIN_FLOATS, _series("str", as_text, IDS + NUL_TEXTS), _moments("s", 1)),
    "pandas of text": (
        _series("str", as_text, IDS + NUL_TEXTS),
        _series("string[python]", as_text, IDS + BROKEN_TEXTS, pd.StringDtype("python")),
    ),
    "pandas of nullable": (_series("Int64", same, BIG_IDS), _series("Float64", as_float, FLOATS, person=number_person)),
    "pandas of categories": (_category(Storage("ids", as_text, IDS)), _category(Storage("numbers", same, BIG_IDS))),
    "pandas of arrow": tuple(map(_arrow_backed, ARROW_UNITS)),
}


class Pandas(Adapter):
    """Columns of one family of types."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.kinds, self.units = PANDAS[name], PANDAS_UNITS[name]  # type: ignore[misc]

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        return pd.DataFrame({name: one.build([row[name] for row in rows]) for name, one in storages.items()})


class PandasCsv(Adapter):
    """What `read_csv` makes of a file, whose types depend on the records."""

    kinds = CSV
    units = CSV_UNITS
    measured = False

    def manner(self, rng: Random) -> Any:
        return rng.choice(
            [{}, {"dtype_backend": "pyarrow"}, {"dtype_backend": "numpy_nullable"}, {"parse_dates": True}]
        )

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pd.read_csv(io.BytesIO(csv_bytes(rows, storages)), low_memory=False, **manner)


def _valid(storage: Storage) -> Storage:
    hostile = tuple(value for value in storage.hostile if value not in BROKEN_TEXTS)
    return Storage(storage.name, storage.fit, hostile, storage.build, storage.person)


class Polars(Adapter):
    """A frame, or a query that gives it."""

    kinds: ClassVar = {
        "text": (_valid(ARROW_TEXT), _valid(ARROW_LARGE), _valid(dictionary(ARROW_TEXT))),
        "integer": ARROW_WHOLE + ARROW_FLOAT + ARROW_DECIMAL,
        "number": ARROW_WHOLE + ARROW_FLOAT + ARROW_DECIMAL,
        "boolean": (ARROW_TRUTH,),
        "date": (*ARROW_MOMENT[1:4], ARROW_DAY[0]),
    }
    units = tuple(_valid(storage) for storage in ARROW_UNITS)

    def __init__(self, name: str, lazy: bool) -> None:
        super().__init__(name)
        self.lazy = lazy

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        frame = pl.from_arrow(arrow_table(rows, storages))
        assert isinstance(frame, pl.DataFrame)
        return frame.lazy() if self.lazy else frame


class Arrow(Adapter):
    """A table, a record batch, a dataset, or a table of dictionaries."""

    kinds = ARROW
    units = ARROW_UNITS

    def __init__(self, name: str, form: str) -> None:
        super().__init__(name)
        self.form = form
        if form == "dictionary":
            self.kinds = {kind: tuple(map(dictionary, storages)) for kind, storages in ARROW.items()}  # type: ignore[misc]

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        table = arrow_table(rows, storages)
        if self.form == "batch":
            return table.to_batches()[0] if rows else pa.RecordBatch.from_pylist([], table.schema)
        return pa_dataset.dataset(table) if self.form == "dataset" else table


FRAMES: tuple[Adapter, ...] = (
    *map(Pandas, PANDAS),
    PandasCsv("pandas by read_csv"),
    Polars("polars", lazy=False),
    Polars("polars lazy", lazy=True),
    Arrow("pyarrow", "table"),
    Arrow("pyarrow record batch", "batch"),
    Arrow("pyarrow dictionary", "dictionary"),
    Arrow("pyarrow dataset", "dataset"),
)
