"""Arrow columns of any type as one of the few that are counted. What a value becomes depends on it alone.

    whole numbers   int64, uint64          text       large_string
    numbers         float32, float64,      true and false, decimals   as they are
                    decimal128             days       date32

No value raises an error, none is lost for the sake of another, and two texts that differ still do.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

TEXT = pa.large_string()
MARK = "\x00"
"""Stands before texts that are spelled out because they are no UTF-8. No declared value holds it."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The ends of the years 1 and 9999, in days since 1970: what lies beyond counts as these."""
LARGEST = 2**53
"""No declared number is greater, and floats skip whole numbers beyond."""
PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def declared_type(dtype: Any) -> Any:
    """What a declared column of this type is counted as; None where it cannot be."""
    dtype = _unwrap_type(dtype)
    if pa.types.is_signed_integer(dtype):
        return pa.int64()
    if pa.types.is_unsigned_integer(dtype):
        return pa.uint64()
    if pa.types.is_float16(dtype) or pa.types.is_float32(dtype):
        return pa.float32()
    if pa.types.is_float64(dtype) or pa.types.is_decimal256(dtype):
        return pa.float64()
    if pa.types.is_decimal(dtype):
        return pa.decimal128(dtype.precision, dtype.scale) if dtype.scale >= 0 else pa.float64()
    if pa.types.is_boolean(dtype):
        return pa.bool_()
    if is_text(dtype) or is_bytes(dtype):  # which a reader makes of all texts where one is no UTF-8
        return TEXT
    if pa.types.is_null(dtype) or pa.types.is_time(dtype):  # nothing is declared as a time of day
        return pa.null()
    return pa.date32() if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype) else None


def unit_type(dtype: Any) -> Any:
    """What a privacy unit of this type is told apart by; None where it cannot be."""
    dtype = _unwrap_type(dtype)
    if pa.types.is_null(dtype):
        return dtype
    if pa.types.is_integer(dtype):
        return pa.uint64() if pa.types.is_uint64(dtype) else pa.int64()
    if pa.types.is_temporal(dtype):
        return None if pa.types.is_interval(dtype) else pa.int64()
    return TEXT if declared_type(dtype) is not None else None


def unit_rule(dtype: Any) -> str | None:
    """What tells units of this type apart where that is not their spelling: moments are numbers to a frame.

    None of the type of missing values, which are nobody whatever rule there is.
    """
    dtype = _unwrap_type(dtype)
    if pa.types.is_null(dtype):
        return None
    return str(dtype) if pa.types.is_temporal(dtype) or is_bytes(dtype) else ""


def can_be_one(types: Iterable[Any]) -> bool:
    """Whether units of these types are told apart alike: moments and bytes only if all parts have one type."""
    different = {_unwrap_type(one) for one in types}
    different = {TEXT if is_text(one) else one for one in different if not pa.types.is_null(one)}
    special = [one for one in different if pa.types.is_temporal(one) or is_bytes(one)]
    return not special or len(different) == 1


def common_type(types: Iterable[Any], *, unit: bool = False) -> Any:
    """One type for all parts of a column; None where values would then be read otherwise than by themselves.

    Where a value is missing, libraries write whole numbers as floats, and texts or truths as whatever holds all: these
    are brought together as floats or texts, without a value becoming another one. Units of different types are texts.
    """
    different = {one for one in types if not pa.types.is_null(one)}
    if len(different) <= 1:
        return different.pop() if different else TEXT
    if unit:
        return TEXT
    if any(pa.types.is_float32(one) or pa.types.is_decimal(one) for one in different):
        return None
    numbers = all(pa.types.is_integer(one) or pa.types.is_float64(one) for one in different)
    return pa.float64() if numbers else TEXT


def as_declared(array: Any, target: Any) -> Any:
    """A declared column's values, of the type that `declared_type` and `common_type` gave."""
    array = unwrap(array)
    dtype = array.type
    if pa.types.is_null(dtype) or pa.types.is_time(dtype):
        return pa.nulls(len(array), target)
    if is_text(dtype) or is_bytes(dtype):
        return as_texts(array)
    if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
        return _cast(_as_days(array), target)
    if pa.types.is_integer(dtype) and not pa.types.is_integer(target):
        array = _clear_of_rounding(array)
    return spell_array(array) if target == TEXT else _cast(array, target)


def as_unit(array: Any, target: Any) -> Any:
    """A privacy unit's values, of the type that `unit_type` and `common_type` gave."""
    array = unwrap(array)
    dtype = array.type
    if pa.types.is_null(dtype):
        return pa.nulls(len(array), target)
    if is_text(dtype):
        return as_texts(array)
    if pa.types.is_temporal(dtype):
        array = array.view(pa.int32() if dtype.bit_width == 32 else pa.int64())
    elif is_bytes(dtype):
        return pa.array([None if value is None else value.hex() for value in array.to_pylist()], TEXT)
    # Floats and integers of one person are spelled alike, since a missing id makes floats of all.
    return _cast(array, target) if pa.types.is_integer(target) else spell_array(array)


def _clear_of_rounding(array: Any) -> Any:
    """Whole numbers beyond what is declared, moved to where a float does not round them to a declared one."""
    top, bottom = pa.scalar(LARGEST + 2), pa.scalar(-LARGEST - 2)
    if pa.types.is_unsigned_integer(array.type):
        array = pc.min_element_wise(array.cast(pa.uint64()), pa.scalar(LARGEST + 2, pa.uint64()), skip_nulls=False)
    whole = array.cast(pa.int64())
    whole = pc.if_else(pc.greater(whole, pa.scalar(LARGEST)), top, whole)
    return pc.if_else(pc.less(whole, pa.scalar(-LARGEST)), bottom, whole)


def as_texts(array: Any) -> Any:
    """Texts as they are. Bytes that are none are spelled out: they stay different, and equal nothing declared."""
    array = array.cast(pa.large_binary()) if is_bytes(array.type) else array.view(_binary_type(array.type))
    try:
        found = array.cast(TEXT)  # which checks the bytes
    except pa.ArrowInvalid:
        found = None
    if found is not None and not pc.any(pc.starts_with(found, MARK), min_count=0).as_py():
        return found
    return pa.array([None if value is None else decode(value) for value in array.to_pylist()], TEXT)


def decode(value: bytes) -> str:
    """One text for each sequence of bytes: itself, unless it is no UTF-8 or could be taken for such a one."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{MARK}bytes {value.hex()}"
    return f"{MARK}text {text}" if text.startswith(MARK) else text


def spell_array(array: Any) -> Any:
    """Numbers, truths and days as texts; a whole number is spelled as one, whatever its type."""
    dtype = array.type
    if pa.types.is_decimal(dtype):
        return pa.array([None if value is None else spell_decimal(value) for value in array.to_pylist()], TEXT)
    if not pa.types.is_floating(dtype):
        return array.cast(TEXT)
    numbers = np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
    whole = (np.abs(numbers) < 2.0**63) & (np.floor(numbers) == numbers)
    known = pa.array(~np.isnan(numbers))
    wholes = pa.array(np.where(whole, numbers, 0.0).astype(np.int64)).cast(TEXT)
    text = pc.if_else(pa.array(whole), wholes, array.cast(TEXT))
    large = np.flatnonzero(np.isfinite(numbers) & ~whole & (np.abs(numbers) >= 2.0**63))  # which are whole too
    if large.size:
        texts = text.to_pylist()
        for i in large.tolist():
            texts[i] = str(int(numbers[i]))
        text = pa.array(texts, TEXT)
    return pc.if_else(known, text, pa.scalar(None, TEXT))


def spell_decimal(value: Decimal) -> str:
    """A decimal as any other type would spell the same number: no exponent, no zeros at its end, no sign of 0."""
    if value == 0:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _as_days(array: Any) -> Any:
    """The day of every moment, in UTC where it has a time zone; days beyond every cut are one day there."""
    dtype = array.type
    if pa.types.is_date32(dtype):
        counts, per_day = array.view(pa.int32()), 1
    else:
        counts, per_day = array.view(pa.int64()), PER_DAY["ms" if pa.types.is_date64(dtype) else dtype.unit]
    known = np.asarray(counts.is_valid())
    days = np.asarray(pc.fill_null(counts, 0)).astype(np.int64) // per_day
    return pa.array(np.clip(days, FIRST_DAY, LAST_DAY).astype(np.int32), mask=~known).view(pa.date32())


def unwrap(array: Any) -> Any:
    """One array, without a dictionary or an extension around its values."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):  # where it was too large for one, or has no chunk
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if not pa.types.is_dictionary(array.type):
        return array
    values = unwrap(array.dictionary)
    values = as_texts(values) if is_text(values.type) else values  # of 64 bits: repeated, short ones may need them
    return values.take(array.indices.cast(pa.int64(), safe=False))


def _unwrap_type(dtype: Any) -> Any:
    while pa.types.is_dictionary(dtype) or isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype.storage_type
    return dtype


def _cast(array: Any, target: Any) -> Any:
    return array if array.type == target else array.cast(target, safe=False)


def is_bytes(dtype: Any) -> bool:
    """Whether an Arrow type is one of bytes."""
    views = pa.types.is_binary_view(dtype) or pa.types.is_fixed_size_binary(dtype)
    return bool(views or pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype))


def is_text(dtype: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype))


def _binary_type(dtype: Any) -> Any:
    if pa.types.is_string_view(dtype):
        return pa.binary_view()
    return pa.large_binary() if pa.types.is_large_string(dtype) else pa.binary()
