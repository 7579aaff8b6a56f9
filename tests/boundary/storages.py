"""How a column can be stored, and what an engine may have a special case for: the values of every type that bite."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

SKIP = object()
"""What a value becomes that a type cannot hold."""
EPOCH = date(1970, 1, 1).toordinal()

TEXTS = (
    *(
        "",
        " ",
        "ny",
        "NY\t",
        "NULL",
        "nan",
        "-0",
        "1e3",
        "0x10",
        "n/k",
        "true",
        "2020-01-01",
        "infinity",
        "Zu\u0308rich",
    ),
    *(
        'say "hi"',
        '"',
        "a,b",
        "a;b",
        "two\nlines",
        "a\rb",
        "three\r\nlines\r\n",
        "\\N",
        "back\\slash",
        "'; DROP TABLE visits; --",
    ),
    *("𝒳", "İ", "ﬁ", "x" * 5000, "\ufeff", "%s {x} $1"),
)
NUL_TEXTS = ("\x00", "NY\x00", "a\x00b")
BROKEN_TEXTS = ("\udcff\udcfe", "NY\udcc3", "\ud800", "a\udfffb")
"""Bytes that are not UTF-8, as surrogates stand for them."""
FLOATS = (
    *(math.nan, math.inf, -math.inf, 1e300, -1e300, -0.0, 5e-324, 0.5, 1e15 + 0.5),
    *(2.0**31, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**63, -(2.0**63), 2.0**64, 2.0**127),
)
WHOLE = (0, -1, 127, -128, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)
MOMENTS = (0, -1, 1, 2**63 - 1, -(2**63) + 1, -(2**63), 2**62, -(2**62), 253402300800, -62135596801)
"""Counts of seconds or less since 1970: among them what DuckDB takes for infinity, and the ends of the calendar."""
DAYS = (0, 2**31 - 1, -(2**31), -(2**31) + 1, 2**31 - 2, 2932897, -719163, 10**8)
DECIMALS = ("0", "-0.01", "0.5", "99999999.99", "-99999999.99", "120.00", "9" * 38, "-" + "9" * 38, "0." + "9" * 37)


@dataclass(frozen=True)
class Storage:
    """A type of column in an engine."""

    name: str
    fit: Callable[[Any], Any]
    """An ordinary value (text, number, truth or day) as this type holds it, or SKIP."""
    hostile: tuple[Any, ...]
    build: Callable[[list[Any]], Any] = list
    """The column, from its values."""
    person: Callable[[Any], Any] = lambda value: value
    """What two ids of one person have in common; None for nobody."""


# ── fitting ──


def as_text(value: Any) -> Any:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def as_truth(value: Any) -> Any:
    return value if isinstance(value, bool) else SKIP


def as_float(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else SKIP


def as_day(value: Any) -> Any:
    return value if isinstance(value, date) else SKIP


def whole(low: int, high: int) -> Callable[[Any], Any]:
    """Whole numbers between two ends."""

    def fit(value: Any) -> Any:
        number = as_float(value)
        return int(value) if number is not SKIP and number == int(number) and low <= number <= high else SKIP

    return fit


def decimals(precision: int, scale: int) -> Callable[[Any], Any]:
    """Decimal numbers of so many digits."""

    def fit(value: Any) -> Any:
        if as_float(value) is SKIP:
            return SKIP
        exact = Decimal(str(value))
        return exact if _held(exact, precision, scale) else SKIP

    return fit


def _held(exact: Decimal, precision: int, scale: int) -> bool:
    digits = exact.as_tuple()
    assert isinstance(digits.exponent, int)
    return -digits.exponent <= scale and len(digits.digits) + digits.exponent <= precision - scale


def number_person(value: Any) -> Any:
    """Equal numbers are one person; not a number is nobody."""
    return None if value is None or value != value else value


# ── Arrow ──


def encoded(text: str) -> bytes:
    """The bytes that a text with surrogates stands for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def arrow_text(texts: Sequence[str | None], large: bool = False) -> Any:
    """An Arrow array of texts that need not be UTF-8."""
    plain, text = (pa.large_binary(), pa.large_string()) if large else (pa.binary(), pa.string())
    return pa.array([None if value is None else encoded(value) for value in texts], plain).view(text)


def _arrow_whole(type_: Any) -> Storage:
    low, high = (-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
    if str(type_).startswith("u"):
        low, high = 0, 2**type_.bit_width - 1
    hostile = (low, high, *(value for value in WHOLE if low <= value <= high))
    return Storage(str(type_), whole(low, high), hostile, lambda values: pa.array(values, type_))


def _arrow_float(type_: Any) -> Storage:
    hostile = FLOATS if type_ != pa.float16() else (math.nan, math.inf, -0.0, 60000.0)
    return Storage(
        str(type_), as_float, hostile, lambda values: pa.array(values, type_, from_pandas=False), number_person
    )


def _arrow_moment(type_: Any, steps: int) -> Storage:
    def fit(value: Any) -> Any:
        # Nanoseconds end in 2262.
        count: Any = (value.toordinal() - EPOCH) * 86400 * steps if isinstance(value, date) else SKIP
        return count if count is SKIP or abs(count) < 2**63 else SKIP

    hostile = (*MOMENTS, *(moment * steps for moment in MOMENTS if abs(moment * steps) < 2**63))
    return Storage(str(type_), fit, hostile, lambda values: pa.array(values, pa.int64()).view(type_))


def _arrow_day(type_: Any, plain: Any, steps: int) -> Storage:
    def fit(value: Any) -> Any:
        return (value.toordinal() - EPOCH) * steps if isinstance(value, date) else SKIP

    hostile = tuple(day * steps for day in DAYS)
    return Storage(str(type_), fit, hostile, lambda values: pa.array(values, plain).view(type_))


def _arrow_decimal(precision: int, scale: int) -> Storage:
    type_ = pa.decimal128(precision, scale)
    hostile = tuple(Decimal(text) for text in DECIMALS if _held(Decimal(text), precision, scale))
    return Storage(str(type_), decimals(precision, scale), hostile, lambda values: pa.array(values, type_))


ALL_TEXTS = TEXTS + NUL_TEXTS + BROKEN_TEXTS
ARROW_TEXT = Storage("string", as_text, ALL_TEXTS, arrow_text)
ARROW_LARGE = Storage("large_string", as_text, ALL_TEXTS, lambda values: arrow_text(values, large=True))
ARROW_TRUTH = Storage("bool", as_truth, (), lambda values: pa.array(values, pa.bool_()))
ARROW_WHOLE = tuple(map(_arrow_whole, (pa.int64(), pa.int32(), pa.int8(), pa.uint64(), pa.uint8())))
ARROW_FLOAT = tuple(map(_arrow_float, (pa.float64(), pa.float32())))
ARROW_DECIMAL = (_arrow_decimal(10, 2), _arrow_decimal(38, 0), _arrow_decimal(38, 37), _arrow_decimal(18, 6))
ARROW_MOMENT = (
    *(
        _arrow_moment(pa.timestamp(unit), steps)
        for unit, steps in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
    ),
    *(_arrow_moment(pa.timestamp(unit, "UTC"), steps) for unit, steps in (("ms", 10**3), ("us", 10**6))),
)
ARROW_DAY = (_arrow_day(pa.date32(), pa.int32(), 1), _arrow_day(pa.date64(), pa.int64(), 86_400_000))


def dictionary(storage: Storage) -> Storage:
    """The same values, each by its place in a dictionary."""
    build = storage.build
    return Storage(
        f"dictionary of {storage.name}",
        storage.fit,
        storage.hostile,
        lambda values: build(values).dictionary_encode(),
        storage.person,
    )


NUMBERS = ARROW_WHOLE + ARROW_FLOAT + ARROW_DECIMAL
ARROW: dict[str, tuple[Storage, ...]] = {
    "text": (ARROW_TEXT, ARROW_TEXT, ARROW_LARGE),
    "integer": NUMBERS,
    "number": NUMBERS,
    "boolean": (ARROW_TRUTH,),
    "date": ARROW_MOMENT + ARROW_DAY,
}
"""By the kind that a column is declared to hold."""

IDS = ("a", "b", "A", "a ", "é", "e\u0301", "1", "01", "1.0", "x" * 300, "", "NULL", "\ufeffa", "a,b", "a\nb")
BIG_IDS = (1, 2, 3, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63), 0)
ARROW_UNITS: tuple[Storage, ...] = (
    Storage("string", as_text, IDS + NUL_TEXTS + BROKEN_TEXTS, arrow_text),
    Storage("int64", whole(-(2**63), 2**63 - 1), BIG_IDS, lambda values: pa.array(values, pa.int64())),
    Storage("double", as_float, (*FLOATS, 1.0, 2.0), lambda values: pa.array(values, pa.float64()), number_person),
    Storage(
        "uint64", whole(0, 2**64 - 1), (0, 1, 2**53, 2**53 + 1, 2**64 - 1), lambda values: pa.array(values, pa.uint64())
    ),
    Storage(
        "decimal128(38, 0)",
        decimals(38, 0),
        tuple(map(Decimal, ("1", "9" * 38, "-" + "9" * 38, str(2**63), str(2**63 + 1)))),
        lambda values: pa.array(values, pa.decimal128(38, 0)),
    ),
    Storage(
        "timestamp[us]",
        lambda value: SKIP,
        MOMENTS,
        lambda values: pa.array(values, pa.int64()).view(pa.timestamp("us")),
    ),
    Storage("date32", lambda value: SKIP, DAYS, lambda values: pa.array(values, pa.int32()).view(pa.date32())),
    Storage("bool", lambda value: SKIP, (True, False), lambda values: pa.array(values, pa.bool_())),
    Storage(
        "binary",
        lambda value: SKIP,
        (b"", b"a", b"\xff", b"\x00", b"\x00\x01"),
        lambda values: pa.array(values, pa.binary()),
    ),
)


# ── SQL ──


def sql_text(value: Any) -> str:
    """A value as the text that a database casts to the column's type."""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return str(value)


def sql(
    type_: str, fit: Callable[[Any], Any], hostile: Sequence[Any], person: Callable[[Any], Any] | None = None
) -> Storage:
    """A type of a database; its values are written as texts and cast."""

    def fitted(value: Any) -> Any:
        found = fit(value)
        return found if found is SKIP else sql_text(found)

    return Storage(type_, fitted, tuple(map(sql_text, hostile)), list, person or (lambda value: value))


def sql_number(value: Any) -> Any:
    """Equal numbers are one person."""
    if value is None or str(value).lower() == "nan":
        return None
    return Decimal(str(value)) if "inf" not in str(value).lower() else str(value).lower().removesuffix("inity")
