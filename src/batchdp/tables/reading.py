"""A column in an engine, read as declared: of one type whatever the values are, NULL where a value cannot be read.

Nothing here may raise because of a value: casts are TRY_CAST, and DuckDB's TRY stands around the few that have none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import ibis  # type: ignore[import-untyped]

from batchdp.tables.kinds import Kind

TYPES: dict[Kind, str] = {
    "text": "string",
    "integer": "float64",
    "number": "float64",
    "boolean": "boolean",
    "date": "date",
}
PARSING = ("duckdb", "pyspark")
"""Dialects with TRY_CAST, whose columns may have any simple type."""
LONGEST_DAY = 10
"""Characters of a date without a time."""


@ibis.udf.scalar.builtin(name="floor")  # type: ignore[untyped-decorator]
def floor(x: float) -> float:
    """The engine's own: ibis would cast the result to an integer, which overflows."""
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="try")  # type: ignore[untyped-decorator]
def _try(day: date) -> date:
    """DuckDB's: NULL where the expression fails."""
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="try")  # type: ignore[untyped-decorator]
def _try_text(text: str) -> str:
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="encode")  # type: ignore[untyped-decorator]
def _encode(text: str) -> bytes:
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="convert_to")  # type: ignore[untyped-decorator]
def _convert_to(text: str, encoding: str) -> bytes:
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="getdatabaseencoding")  # type: ignore[untyped-decorator]
def _encoding() -> str:
    raise NotImplementedError


BYTES: dict[str, Callable[[Any], Any]] = {
    "duckdb": _encode,
    "pyspark": lambda text: text.cast("binary"),
    # Without conversion, which a stored text could make fail.
    "postgres": lambda text: _convert_to(text, _encoding()),
}
"""A text as its bytes, which no collation takes for others; by the engine's dialect."""


def read(column: Any, kind: Kind, dialect: str) -> Any:
    """The column as its atoms see it: a text, a number of any type, a truth or a day."""
    dtype = column.type()
    if dtype.is_null():
        return column.cast(TYPES[kind])
    number = dtype.is_integer() or dtype.is_decimal() or dtype.is_floating()
    match kind:
        case "text":
            return spelled(column, dialect)
        case "integer" | "number":
            return column if number else column.try_cast("float64") if dtype.is_string() else _nothing(kind)
        case "boolean":
            if number:
                column = column.cast("float64") if dtype.is_decimal() else column  # which may have no room for a 1
                zero = ibis.ifelse(column == 0, ibis.literal(False), ibis.null("boolean"))
                return ibis.ifelse(column == 1, ibis.literal(True), zero)
            return column if dtype.is_boolean() else column.try_cast("boolean") if dtype.is_string() else _nothing(kind)
        case "date":
            if dtype.is_timestamp():
                return _try(column.date()) if dialect == "duckdb" else column.date()
            return column if dtype.is_date() else _day(column, dialect) if dtype.is_string() else _nothing(kind)


def _nothing(kind: Kind) -> Any:
    return ibis.null(TYPES[kind])


def _day(text: Any, dialect: str) -> Any:
    """The day of a date, or of a moment: in UTC where that has an offset, in the session's time zone on Spark."""
    moment = text.try_cast("timestamp" if dialect == "pyspark" else "timestamp('UTC')").date()
    with_time = _try(moment) if dialect == "duckdb" else moment
    return ibis.ifelse(text.length() <= LONGEST_DAY, text.try_cast("date"), with_time)


def spelled(column: Any, dialect: str) -> Any:
    """The value as a text, alike in every engine; a float that is a whole number is spelled as one."""
    dtype = column.type()
    if dtype.is_string():
        return column
    text = column.cast("string")
    if dialect == "duckdb" and not (dtype.is_numeric() or dtype.is_boolean()):
        text = ibis.coalesce(_try_text(text), "")  # moments in seconds reach further than their spelling
    return ibis.coalesce(whole_numbers(column).cast("string"), text) if dtype.is_floating() else text


def missing(column: Any) -> Any:
    """NULL or not a number."""
    return column.isnull() | column.isnan() if column.type().is_floating() else column.isnull()


def is_whole(column: Any) -> Any:
    """Whether a float or decimal has no fraction, without a cast that could overflow."""
    return floor(column) == column if column.type().is_floating() else column % 1 == 0


def whole_numbers(column: Any) -> Any:
    """A float column's whole numbers below 2^53, as such; NULL for others."""
    inside = (column >= -(2.0**53)) & (column <= 2.0**53)
    # Cast last: an engine may cast before it looks at a condition.
    return ibis.ifelse(inside & is_whole(column), column, ibis.null(column.type())).cast("int64")


def identified(unit: Any, dialect: str, collates: bool) -> Any:
    """What tells privacy units apart: the value itself, and of a text that may have a collation its bytes."""
    return BYTES[dialect](unit) if collates and unit.type().is_string() else unit
