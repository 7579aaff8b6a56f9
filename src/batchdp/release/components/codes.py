"""Records as codes: whole numbers, one a column, in an array or a frame.

Before the charge only the number of columns is looked at, and their names. After it every value is taken as it is,
whatever its type: what is no whole number in range drops its record, without an error or a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import TableError
from batchdp.private import Records
from batchdp.workloads.structure import KroneckerWorkload

FRAMES = ("pandas", "polars", "pyarrow")
REMEDY = "give one whole-number code a column, from 0 to the column's size less 1"


@dataclass(frozen=True, eq=False)
class Codes:
    """How records will be read once that is paid for, and what the table calls its columns."""

    read: Callable[[], Records]
    names: tuple[str, ...] | None


def is_records(table: Any) -> bool:
    """Whether this is a frame, a 2-D array or one of NumPy's records: not counts of cells."""
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        return table.ndim == 1 and all(table.dtype[name].shape == () for name in table.dtype.names)
    return (library(table) in FRAMES and not _is_series(table)) or getattr(table, "ndim", 0) == 2


def codes_of(table: Any, batch: KroneckerWorkload) -> Codes:
    """Records in a frame or an array, refused by its number of columns alone: types may be guessed from values."""
    from batchdp.tables.codes import codes_in_array, codes_in_arrow, codes_in_pandas, codes_in_polars

    kind = library(table)
    if kind == "pandas":
        names = [str(name) for name in table.columns]
        return _from_columns(lambda i, size: codes_in_pandas(table.iloc[:, i], size), names, batch)
    if kind == "polars":
        _check_class(table, ("DataFrame",), "collect it into a DataFrame first")
        return _from_columns(lambda i, size: codes_in_polars(table.to_series(i), size), list(table.columns), batch)
    if kind == "pyarrow":
        _check_class(table, ("Table", "RecordBatch"), "read it into a Table first")
        return _from_columns(lambda i, size: codes_in_arrow(table.column(i), size), list(table.schema.names), batch)
    if not isinstance(table, np.ndarray):  # to make it one may run a program, or depend on what it holds
        raise TableError(f"the table is a {type(table).__name__}; make it a NumPy array or a frame first")
    if table.dtype.names is not None:
        fields = table.dtype.names
        given = None if fields == tuple(f"f{i}" for i in range(len(fields))) else list(fields)  # NumPy's own names
        return _from_columns(lambda i, size: codes_in_array(table[fields[i]], size), given, batch, len(fields))
    array = table if isinstance(table, np.ma.MaskedArray) else np.asarray(table)
    return _from_columns(lambda i, size: codes_in_array(array[:, i], size), None, batch, array.shape[1])


def _from_columns(
    column: Callable[[int, int], NDArray[np.int64]],
    names: list[str] | None,
    batch: KroneckerWorkload,
    width: int | None = None,
) -> Codes:
    """Records from what gives the codes of a column, by its place and size."""
    width = len(names or ()) if width is None else width
    if width != len(batch.sizes):  # how many records there are is nobody's business
        raise TableError(f"the table has {width} columns, the batch {len(batch.sizes)}; {REMEDY}")

    def read() -> Records:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # they would be about values
            codes = np.column_stack([column(i, size) for i, size in enumerate(batch.sizes)])
        return Records(codes[np.all(codes >= 0, axis=1)])

    distinct = names if names is not None and len(set(names)) == len(names) else None
    return Codes(read, None if distinct is None else tuple(distinct))


def _check_class(table: Any, taken: tuple[str, ...], remedy: str) -> None:
    if not {base.__name__ for base in type(table).__mro__} & {*taken}:
        raise TableError(f"the table is a {library(table)} {type(table).__name__}; {remedy}")


def library(table: Any) -> str:
    """Of the frame that it is, or that it is made from: a class of one's own is still a frame."""
    found = (base.__module__.partition(".")[0] for base in type(table).__mro__)
    return next((name for name in found if name in FRAMES), "")


def _is_series(table: Any) -> bool:
    classes = {base.__name__ for base in type(table).__mro__}
    return bool(classes & {"Series", "Index", "Array", "ChunkedArray"}) or getattr(table, "ndim", 2) == 1


def records_of_counts(read: Callable[[], NDArray[np.int64]], batch: KroneckerWorkload) -> Callable[[], Records]:
    """Records from counts of all cells, the last column fastest."""

    def found() -> Records:
        counts = read()
        there = np.flatnonzero(counts)
        codes = np.column_stack(np.unravel_index(there, batch.sizes)).astype(np.int64)
        return Records(codes, counts[there])

    return found
