"""Records as codes: whole numbers, one a column, in an array or a frame.

Before the charge only the shape and the types are looked at, which say nothing about a value. After it every value is
taken as it is: a code that is no whole number in range drops its record, without an error or a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import TableError
from batchdp.private import Records
from batchdp.workloads.structure import Products

FRAMES = ("pandas", "polars", "pyarrow")
REMEDY = "give one whole-number code a column, from 0 to the column's size less 1"


@dataclass(frozen=True, eq=False)
class Codes:
    """How records will be read once that is paid for, and what the table calls its columns."""

    read: Callable[[], Records]
    names: tuple[str, ...] | None


def is_records(table: Any) -> bool:
    """Whether this is a frame or a 2-D array: records, not counts of cells."""
    return (_library(table) in FRAMES and not _is_series(table)) or getattr(table, "ndim", 0) == 2


def codes_of(table: Any, batch: Products) -> Codes:
    """Records in a frame or an array, checked by its shape and types alone."""
    library = _library(table)
    if library == "pandas":
        return _from_columns(_pandas(table), [str(name) for name in table.columns], batch)
    if library == "polars":
        return _from_columns(_polars(table), list(table.columns), batch)
    if library == "pyarrow":
        return _from_columns(_arrow(table), list(table.schema.names), batch)
    if not isinstance(table, np.ndarray):  # to make it one may run a program, or depend on what it holds
        raise TableError(f"the table is a {type(table).__name__}; make it a NumPy array or a frame first")
    array = table if isinstance(table, np.ma.MaskedArray) else np.asarray(table)
    if array.ndim != 2 or array.shape[1] != len(batch.sizes):  # how many records there are is nobody's business
        raise TableError(f"the table has shape (…, {array.shape[-1]}) for {len(batch.sizes)} columns; {REMEDY}")
    _check_kind("the table", array.dtype)
    columns = [lambda i=i: _filled(array[:, i]) for i in range(array.shape[1])]
    return _from_columns(columns, None, batch)


Reader = Callable[[], NDArray[Any]]


def _from_columns(columns: Sequence[Reader], names: list[str] | None, batch: Products) -> Codes:
    if len(columns) != len(batch.sizes):
        raise TableError(f"the table has {len(columns)} columns, the batch {len(batch.sizes)}; {REMEDY}")

    def read() -> Records:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # they would be about values
            found = [_codes(column(), n) for column, n in zip(columns, batch.sizes, strict=True)]
        codes = np.column_stack(found)
        return Records(codes[np.all(codes >= 0, axis=1)])

    distinct = names if names is not None and len(set(names)) == len(names) else None
    return Codes(read, None if distinct is None else tuple(distinct))


def _codes(values: NDArray[Any], size: int) -> NDArray[np.int64]:
    """The codes, −1 for what is none."""
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
        fine = np.isfinite(values) & (values >= 0) & (values < size) & (np.floor(values) == values)
    else:
        fine = (values >= 0) & (values < size)
    return np.where(fine, np.where(fine, values, 0).astype(np.int64), -1)


def _filled(column: NDArray[Any]) -> NDArray[Any]:
    """A masked code is none."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    return np.where(np.ma.getmaskarray(column), np.nan, column.data.astype(np.float64))


def _check_kind(where: str, dtype: Any) -> None:
    if getattr(dtype, "kind", "") not in tuple("iuf"):
        raise TableError(f"{where} has entries of type {dtype}; {REMEDY}")


def _pandas(frame: Any) -> list[Reader]:
    readers: list[Reader] = []
    for place, dtype in enumerate(frame.dtypes):
        plain = getattr(dtype, "numpy_dtype", dtype)  # numbers that may be missing, and Arrow's
        where = f"column {frame.columns[place]!r}"
        _check_kind(where, plain)
        own = plain is dtype

        def read(place: int = place, own: bool = own) -> NDArray[Any]:
            column = frame.iloc[:, place]
            return np.asarray(column.to_numpy() if own else column.to_numpy(dtype=np.float64, na_value=np.nan))

        readers.append(read)
    return readers


def _polars(frame: Any) -> list[Reader]:
    import polars as pl

    if not isinstance(frame, pl.DataFrame):
        raise TableError(f"the table is a polars {type(frame).__name__}; collect it into a DataFrame first")
    readers: list[Reader] = []
    for name, dtype in frame.schema.items():
        if not (dtype.is_integer() or dtype.is_float()):
            raise TableError(f"column {name!r} has entries of type {dtype}; {REMEDY}")

        def read(name: str = name) -> NDArray[Any]:
            return np.asarray(frame[name].cast(pl.Float64, strict=False).to_numpy())

        readers.append(read)
    return readers


def _arrow(frame: Any) -> list[Reader]:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    if not isinstance(frame, pa.Table | pa.RecordBatch):
        raise TableError(f"the table is a PyArrow {type(frame).__name__}; read it into a Table first")
    readers: list[Reader] = []
    for place, field in enumerate(frame.schema):
        if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
            raise TableError(f"column {field.name!r} has entries of type {field.type}; {REMEDY}")

        def read(place: int = place) -> NDArray[Any]:
            column = pc.cast(frame.column(place), pa.float64(), safe=False)
            return np.asarray(column.to_numpy(zero_copy_only=False))

        readers.append(read)
    return readers


def _library(table: Any) -> str:
    """Of the frame that it is, or that it is made from: a class of one's own is still a frame."""
    found = (base.__module__.partition(".")[0] for base in type(table).__mro__)
    return next((library for library in found if library in FRAMES), "")


def _is_series(table: Any) -> bool:
    return type(table).__name__ in ("Series", "Index", "Array", "ChunkedArray") or getattr(table, "ndim", 2) == 1


def records_of_counts(read: Callable[[], NDArray[np.int64]], batch: Products) -> Callable[[], Records]:
    """Records from counts of all cells, the last column fastest."""

    def found() -> Records:
        counts = read()
        there = np.flatnonzero(counts)
        codes = np.column_stack(np.unravel_index(there, batch.sizes)).astype(np.int64)
        return Records(codes, counts[there])

    return found
