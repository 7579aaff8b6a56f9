"""Codes: columns of any type as whole numbers from 0 to a column's size less 1, and −1 for what is none.

Libraries guess a column's type from all of its values: one record can make floats, texts, bytes, truths or Python
objects of the whole numbers in all others, and a column of nothing but NULLs one of any type. So no type is refused,
and a value is the same code in whatever type it comes: a text is the number that it spells, true is 1 and false is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from batchdp.engines import cleaning
from batchdp.engines.frames import as_text, convert_pandas

NUMBERS = "biufc"
"""NumPy's kinds of numbers."""
TRUTHS = {"true": 1.0, "t": 1.0, "yes": 1.0, "false": 0.0, "f": 0.0, "no": 0.0}
"""What readers of CSV files take for truths, in upper or lower case."""

Codes = NDArray[np.int64]


def codes_in_array(column: NDArray[Any], size: int) -> Codes:
    """Of a NumPy array in one dimension; a masked code is none."""
    found = _codes(np.asarray(column), size)
    return np.where(np.ma.getmaskarray(column), -1, found) if isinstance(column, np.ma.MaskedArray) else found


def codes_in_pandas(column: Any, size: int) -> Codes:
    """Of a pandas Series."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in NUMBERS:
        return _codes(column.to_numpy(), size)
    return codes_in_arrow(convert_pandas(column, _spell_object), size)


def codes_in_polars(column: Any, size: int) -> Codes:
    """Of a Polars Series."""
    import polars as pl

    if column.dtype == pl.Object:
        return _codes_in_objects(column.to_list(), size)
    if column.dtype.is_integer():  # of 128 bits, which Arrow does not have; floats only skip what is no code
        column = column.cast(pl.Float64)
    return codes_in_arrow(column.to_arrow(), size)


def codes_in_arrow(column: Any, size: int) -> Codes:
    """Of an Arrow array."""
    array = cleaning.unwrap(column)
    if pa.types.is_run_end_encoded(array.type):
        return codes_in_arrow(pc.run_end_decode(array), size)
    dtype = array.type
    if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype):
        array = array.cast(pa.int8()) if pa.types.is_boolean(dtype) else array
        return np.where(array.is_valid(), _codes(np.asarray(pc.fill_null(array, 0)), size), -1)
    if pa.types.is_floating(dtype):
        return _codes(array.to_numpy(zero_copy_only=False), size)
    if pa.types.is_decimal(dtype):
        array = cleaning.spell_array(array)
    elif cleaning.is_bytes(dtype) or cleaning.is_text(dtype):
        array = cleaning.as_texts(array)
    else:  # nothing, or moments, lists and whatever else is no number
        return np.full(len(array), -1)
    different = array.dictionary_encode()
    numbers = np.array([np.nan, *map(_parse_number, different.dictionary.to_pylist())])
    return _codes(numbers[np.asarray(pc.fill_null(different.indices.cast(pa.int64()), -1)) + 1], size)


def _codes(values: NDArray[Any], size: int) -> Codes:
    match values.dtype.kind:
        case "b":
            values = values.astype(np.int8)
        case "m":  # which NumPy makes of whole numbers beside one
            values = values.astype(np.int64)
        case "c":
            values = np.where(values.imag == 0, values.real, np.nan).astype(np.float64)
        case "f":
            values = values.astype(np.float64)
        case "M":
            return np.full(len(values), -1)
        case kind if kind not in NUMBERS:
            return _codes_in_objects(map(_count_time, values.tolist()), size)
    fine = (values >= 0) & (values < min(size, cleaning.LARGEST))
    if values.dtype.kind == "f":
        fine &= np.floor(values) == values
    return np.where(fine, np.where(fine, values, 0).astype(np.int64), -1)


def _count_time(value: Any) -> Any:
    """An object of a NumPy array; a difference of times as the whole number that it is among others."""
    return int(value.astype(np.int64)) if type(value) is np.timedelta64 else value


def _codes_in_objects(values: Iterable[Any], size: int) -> Codes:
    return codes_in_arrow(pa.array(map(_spell_object, values), cleaning.TEXT), size)


def _spell_object(value: Any) -> str | None:
    """An object as a text, which is read like any other: bytes and complex numbers too, unlike in declared columns."""
    with suppress(Exception):  # whatever an object does when it is looked at
        if isinstance(value, bytes):
            return cleaning.decode(value)
        if isinstance(value, (complex, np.complexfloating)):
            return repr(complex(value))
    return as_text(value)


def spelled_number(value: Any) -> int | float:
    """The number that a text, bytes or a complex number stands for, exact if it is a whole one; NaN if none."""
    text = _spell_object(value)
    number = _parse_number(text)
    if abs(number) >= cleaning.LARGEST and math.isfinite(number):
        with suppress(ValueError):
            return int(text or "")
    return number


def _parse_number(text: str | None) -> float:
    """What a text spells: in any way that a reader of CSV files, NumPy or Python takes for a number or a truth."""
    text = (text or "").rstrip("\0").strip().lower()  # NumPy's texts have lost the zeros at their end
    if text in TRUTHS:
        return TRUTHS[text]
    with suppress(ValueError, OverflowError):
        if text[:2] in ("0x", "0b"):
            return float(int(text, 0))
        number = complex(text)
        return number.real if number.imag == 0 else np.nan
    return np.nan
