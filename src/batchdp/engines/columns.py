"""The declared columns in a table: does the schema have them with types that fit, and a column read as declared.

A column is of one type whatever its values are, NULL where a value cannot be read. Nothing here may raise because
of a value: casts are TRY_CAST, and DuckDB's TRY stands around the few that have none.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from datetime import date
from typing import Any, Literal, NoReturn

import ibis  # type: ignore[import-untyped]

from batchdp.domain import Domain, Listed
from batchdp.domain.columns import Column, Dates, fold
from batchdp.errors import TableError

# ── names and types ──

Kind = Literal["text", "integer", "boolean", "number", "date"]

Wanted = dict[str | None, str]
"""Declared columns, and under None the privacy unit, with a name for each: a unit may be a column as well."""
DECLARED: dict[Kind, str] = {
    "text": "text values",
    "integer": "whole numbers",
    "boolean": "true and false",
    "number": "numbers",
    "date": "dates",
}
REMEDY: dict[Kind, str] = {
    "text": "list its values as they are, or make it a text in a view",
    "integer": "list its values as text, or give its whole numbers in a view, with TRY_CAST(… AS BIGINT)",
    "boolean": "list its values as they are, or give its truths in a view, with TRY_CAST(… AS BOOLEAN)",
    "number": "declare it with values = [...], or give its numbers in a view, with TRY_CAST(… AS DOUBLE)",
    "date": "declare it with values = [...], or give its days in a view, with TRY_CAST(… AS DATE)",
}
"""TRY, because a cast that fails on one value would let one record decide whether anything is counted."""
MOST_NAMES_SHOWN = 20


def kind_of(column: Column) -> Kind:
    """What a declared column holds."""
    if isinstance(column, Listed):
        return column.kind
    return "date" if isinstance(column, Dates) else "number"


def fits(dtype: Any, kind: Kind, parses: bool) -> bool:
    """Whether a column of this ibis type can be read as declared.

    Where the engine `parses`, texts, numbers, truths and days are read as whatever is declared: their types may have
    been guessed from the values, so a refusal would tell about these.
    """
    number = dtype.is_integer() or dtype.is_decimal() or dtype.is_floating()
    if dtype.is_null():
        return True
    if parses:
        return bool(number or dtype.is_string() or dtype.is_boolean() or dtype.is_date() or dtype.is_timestamp())
    held = {"text": dtype.is_string(), "boolean": dtype.is_boolean(), "date": dtype.is_date() or dtype.is_timestamp()}
    return bool(held.get(kind, number))


def wanted_columns(domain: Domain, columns: Collection[str] | None) -> Wanted:
    """The declared columns to be read (all, unless said otherwise), and under None the privacy unit's."""
    names: Wanted = {name: name for name in (domain.columns if columns is None else columns)}
    return names if domain.privacy.unit is None else {**names, None: domain.privacy.unit}


def find_name(name: str, available: Iterable[str], description: str, *, secret: bool = False) -> str:
    """A column as the table spells it: exactly so, or in upper or lower case.

    Names are `secret` where they may be values: the first line of a CSV file without a header is a record.
    """
    names = list(available)
    if names.count(name) == 1:
        return name
    same = [other for other in names if fold(other) == fold(name)]
    if len(same) == 1:
        return same[0]
    if secret:
        raise TableError(
            f"{description} has {'several columns' if same else 'no column'} {name!r} among its {len(names):,}; its "
            "first line must name each column once, and is not shown, since without a header it would be a record"
        )
    if same:
        raise TableError(f"{description} has several columns called {name!r}: {', '.join(same)}; rename all but one")
    close = difflib.get_close_matches(fold(name), [fold(other) for other in names], n=1)
    meant = next((f" (did you mean {other!r}?)" for other in names if [fold(other)] == close), "")
    raise TableError(f"{description} has no column {name!r}{meant}; its columns are {list_names(names)}")


def list_names(names: Collection[str | int]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:MOST_NAMES_SHOWN]) or "none"
    return shown if len(names) <= MOST_NAMES_SHOWN else f"{shown} and {len(names) - MOST_NAMES_SHOWN} more"


def declared_kind(domain: Domain, name: str) -> Kind:
    """What the domain says that a column holds."""
    declared = domain.column(name)
    assert declared is not None
    return kind_of(domain.columns[declared])


def declared_columns(domain: Domain, names: Iterable[str | None]) -> dict[str, Column]:
    """What the domain says of some columns, in its own order and spelling."""
    asked = {fold(name) for name in names if name is not None}
    return {name: column for name, column in domain.columns.items() if fold(name) in asked}


def refuse_type(name: str, kind: Kind | None, dtype: Any, description: str) -> NoReturn:
    """A column, or without a kind the privacy unit, that cannot be read because of its type."""
    if kind is None:
        raise TableError(
            f"the privacy unit {name!r} is {dtype} in {description}, by which nobody can be told apart; "
            "give a view in which it is a text or a whole number"
        )
    raise TableError(
        f"column {name!r} is declared to hold {DECLARED[kind]} but {description} has it as {dtype}; {REMEDY[kind]}"
    )


def check_schema(
    schema: Any, domain: Domain, columns: Collection[str] | None, description: str, *, parses: bool
) -> Wanted:
    """What is wanted, in the table's spelling; refused unless every column is there and of a fitting type."""
    found = {}
    for key, name in wanted_columns(domain, columns).items():
        found[key] = actual = find_name(name, schema.names, description)
        if key is not None and not fits(schema[actual], kind := declared_kind(domain, key), parses):
            refuse_type(actual, kind, schema[actual], description)
    return found


# ── columns, read as declared ──

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


def engine_function(name: str, arguments: Callable[..., None], types: tuple[type, ...], result: type) -> Any:
    """A function that the engine has itself, of the arguments of the one that is given."""
    return ibis.udf.scalar.builtin(arguments, name=name, signature=(types, result))


floor = engine_function("floor", lambda x: None, (float,), float)
"""The engine's own: ibis would cast the result to an integer, which overflows."""
_try_day = engine_function("try", lambda day: None, (date,), date)
"""DuckDB's: NULL where the expression fails; the next is the same for texts."""
_try_text = engine_function("try", lambda text: None, (str,), str)
_encode = engine_function("encode", lambda text: None, (str,), bytes)
_convert_to = engine_function("convert_to", lambda text, encoding: None, (str, str), bytes)
_encoding = engine_function("getdatabaseencoding", lambda: None, (), str)

BYTES: dict[str, Callable[[Any], Any]] = {
    "duckdb": _encode,
    "pyspark": lambda text: text.cast("binary"),
    # Without conversion, which a stored text could make fail.
    "postgres": lambda text: _convert_to(text, _encoding()),
}
"""A text as its bytes, which no collation takes for others; by the engine's dialect."""


def read_column(column: Any, kind: Kind, dialect: str) -> Any:
    """The column as its atoms see it: a text, a number of any type, a truth or a day."""
    dtype = column.type()
    if dtype.is_null():
        return column.cast(TYPES[kind])
    number = dtype.is_integer() or dtype.is_decimal() or dtype.is_floating()
    match kind:
        case "text":
            return spell(column, dialect)
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
                return _try_day(column.date()) if dialect == "duckdb" else column.date()
            return column if dtype.is_date() else _day(column, dialect) if dtype.is_string() else _nothing(kind)


def _nothing(kind: Kind) -> Any:
    return ibis.null(TYPES[kind])


def _day(text: Any, dialect: str) -> Any:
    """The day of a date, or of a moment: in UTC where that has an offset, in the session's time zone on Spark."""
    moment = text.try_cast("timestamp" if dialect == "pyspark" else "timestamp('UTC')").date()
    with_time = _try_day(moment) if dialect == "duckdb" else moment
    return ibis.ifelse(text.length() <= LONGEST_DAY, text.try_cast("date"), with_time)


def spell(column: Any, dialect: str) -> Any:
    """The value as a text, alike in every engine; a float that is a whole number is spelled as one."""
    dtype = column.type()
    if dtype.is_string():
        return column
    text = column.cast("string")
    if dialect == "duckdb" and not (dtype.is_numeric() or dtype.is_boolean()):
        # Moments in seconds reach further than their spelling; they are none that is missing.
        text = ibis.ifelse(column.isnull(), ibis.null("string"), ibis.coalesce(_try_text(text), ""))
    return ibis.coalesce(whole_numbers(column).cast("string"), text) if dtype.is_floating() else text


def is_missing(column: Any) -> Any:
    """NULL or not a number."""
    return column.isnull() | column.isnan() if column.type().is_floating() else column.isnull()


def known(column: Any) -> Any:
    """The column with NULL for what is not a number."""
    return ibis.ifelse(is_missing(column), ibis.null(column.type()), column) if column.type().is_floating() else column


def is_whole(column: Any) -> Any:
    """Whether a float or decimal has no fraction, without a cast that could overflow."""
    return floor(column) == column if column.type().is_floating() else column % 1 == 0


def whole_numbers(column: Any) -> Any:
    """A float column's whole numbers below 2^53, as such; NULL for others."""
    inside = (column >= -(2.0**53)) & (column <= 2.0**53)
    # Cast last: an engine may cast before it looks at a condition.
    return ibis.ifelse(inside & is_whole(column), column, ibis.null(column.type())).cast("int64")


def identify(unit: Any, dialect: str, collates: bool) -> Any:
    """What tells privacy units apart: the value itself, and of a text that may have a collation its bytes."""
    return BYTES[dialect](unit) if collates and unit.type().is_string() else unit
