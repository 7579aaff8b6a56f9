"""Formats of codebooks: Frictionless Table Schema and CSV on the Web, with every part of them checked. A complaint is
one short line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr

from batchdp.domain.columns import LARGEST, MOST_VALUES, check_text
from batchdp.domain.draft import ColumnType, Described
from batchdp.text import shorten

DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?=$|[T ])")
DECIMAL = re.compile(r"[-+]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][-+]?\d{1,3})?")

Scalar = bool | int | float | str


def _check_scalar(value: Any) -> Any:
    """A text, number, truth or null; of a value with a label, the value."""
    if isinstance(value, dict) and "value" in value:
        value = value["value"]
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"{'an object' if isinstance(value, dict) else 'a list'} where a text or number is expected")
    return value


Value = Annotated[Any, BeforeValidator(_check_scalar)]
Name = Annotated[StrictStr, BeforeValidator(lambda name: check_text(name) if isinstance(name, str) else name)]


class Part(BaseModel):
    """An object of a codebook; keys that say nothing about values are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def read_at(place: str, read: Callable[..., Described], *given: Any) -> Described:
    """What a column's part says, or a complaint that names the place."""
    try:
        return read(*given)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def describe_column(
    name: str,
    kind: ColumnType,
    *,
    listed: Iterable[Scalar | None] = (),
    low: Scalar | None = None,
    high: Scalar | None = None,
    missing: Iterable[str] = (),
    foreign: str | None = None,
) -> Described:
    """A column from what a codebook says of it, in the terms of its kind.

    Args:
        name: as the table has it.
        kind: by the codebook's type.
        listed: the enumeration, if there is one.
        low, high: the ends, if they are given.
        missing: texts that stand for a missing value.
        foreign: how days or numbers are spelled, if not as here; ends in that spelling cannot be read.
    """
    absent = tuple(dict.fromkeys(text for text in missing if text.strip()))
    notes: tuple[str, ...] = ()
    if foreign is not None:
        plain = "2020-01-31" if kind == "date" else "1234.5"
        notes = (f"EDIT: the data spells it like {shorten(foreign)}; give it like {plain} in a view.",)
    if kind == "date" and foreign is not None:
        listed, low, high = (), *(end if _is_day(end) else None for end in (low, high))
    values = list(dict.fromkeys(v for v in listed if v is not None and str(v).strip() and str(v) not in absent))
    if len(values) > MOST_VALUES:
        raise ValueError(f"{len(values)} enumerated values, more than {MOST_VALUES}; give a minimum and a maximum")
    kind = _guess_kind(values) if kind == "unknown" and values else kind
    column = Described(name, kind, missing=absent, notes=notes, documented=True)
    if kind == "text":
        return replace(column, values=tuple(check_text(_check_enumerated(value)) for value in values))
    if kind not in ("whole", "number", "date"):
        return column
    read: Callable[[Any], Any] = parse_day if kind == "date" else parse_number
    steps = [read(value) for value in values]
    if steps and kind != "date" and all(isinstance(step, int) for step in steps):
        return replace(column, kind="whole", values=tuple(dict.fromkeys(steps)))
    ends = [min(steps), max(steps)] if steps else [None if end is None else read(end) for end in (low, high)]
    first, last = ends
    if kind == "whole":  # those within
        first, last = None if first is None else math.ceil(first), None if last is None else math.floor(last)
    if first is not None and last is not None and first > last:
        raise ValueError(f"the minimum {first} is above the maximum {last}")
    within = next((text for text in absent if _lies_in(text, first, last, read)), None)
    if within is not None:
        notes += (f"EDIT: {shorten(within)} stands for missing, but lies between the ends.",)
    return replace(column, low=first, high=last, notes=notes)


def parse_number(value: Scalar) -> int | float:
    """A number, or a text that spells one."""
    if isinstance(value, str) and DECIMAL.fullmatch(value.strip()):
        value = int(value) if re.fullmatch(r"[-+]?\d{1,30}", value.strip()) else float(value)
    if isinstance(value, (bool, str)):
        raise ValueError(f"{shorten(repr(value))} is not a number")
    if not abs(value) <= LARGEST:  # NaN, too
        raise ValueError("a number beyond ±2^53")
    return int(value) if value == int(value) else value


def parse_day(value: Scalar) -> date:
    """A day, or the day of a moment."""
    if not _is_day(value):
        raise ValueError(f'{shorten(repr(value))} is not a day like "2020-01-31"')
    return date.fromisoformat(str(value)[:10])


def _is_day(value: Scalar | None) -> bool:
    with suppress(ValueError):
        return isinstance(value, str) and DAY.match(value) is not None and bool(date.fromisoformat(value[:10]))
    return False


def _lies_in(text: str, low: Any, high: Any, read: Callable[[Any], Any]) -> bool:
    with suppress(ValueError):
        return low is not None and high is not None and bool(low <= read(text) <= high)
    return False


def _guess_kind(values: Iterable[Scalar]) -> ColumnType:
    types = {type(value) for value in values}
    return "boolean" if types == {bool} else "number" if types <= {int, float} else "text"


def _check_enumerated(value: Scalar) -> str:
    if isinstance(value, (bool, float)):
        raise ValueError(f"{value!r} is not a text; write enumerated texts in quotation marks")
    return str(value)


# ── CSV on the Web: https://www.w3.org/TR/tabular-metadata/ ──

WHOLE: dict[str, tuple[int | None, int | None]] = {
    **dict.fromkeys(("integer", "int", "long", "gYear"), (None, None)),
    "short": (-(2**15), 2**15 - 1),
    "byte": (-128, 127),
    "nonNegativeInteger": (0, None),
    "positiveInteger": (1, None),
    "unsignedLong": (0, None),
    "unsignedInt": (0, 2**32 - 1),
    "unsignedShort": (0, 2**16 - 1),
    "unsignedByte": (0, 255),
    "nonPositiveInteger": (None, 0),
    "negativeInteger": (None, -1),
}
"""Types of whole numbers, with the ends that they have by themselves and a person might mean."""
CSVW_KINDS: dict[str, ColumnType] = {
    **dict.fromkeys(("anyAtomicType", "any"), "unknown"),
    **dict.fromkeys(("decimal", "double", "float", "number"), "number"),
    **dict.fromkeys(WHOLE, "whole"),
    **dict.fromkeys(("date", "dateTime", "datetime", "dateTimeStamp"), "date"),
    "boolean": "boolean",
    **dict.fromkeys(("base64Binary", "binary", "hexBinary", "xml", "html", "json"), "other"),
}
"""All other types are texts."""
ALTERNATIVES = re.compile(r"\^?\(?(?:\?:)?([\w %/,:;&'\"-]+(?:\|[\w %/,:;&'\"-]+)+)\)?\$?")
"""A pattern that only lists texts."""
CSVW_DAYS = re.compile(r"yyyy-MM-dd([T ]HH:mm(:ss)?(\.S+)?(X|XX|XXX)?)?")


def _as_list(value: Any) -> Any:
    """One text stands for a list of one; a text a language, for all of them."""
    if isinstance(value, dict):
        return [text for texts in value.values() for text in _as_list(texts)]
    return value if isinstance(value, list) else [value]


def _as_type(value: Any) -> Any:
    return {"base": value} if isinstance(value, str) else value


class Datatype(Part):
    """A type, perhaps with ends."""

    base: StrictStr = "string"
    format: Any = None
    minimum: Value = None
    maximum: Value = None
    least: Value = Field(default=None, alias="minInclusive")
    most: Value = Field(default=None, alias="maxInclusive")
    above: Value = Field(default=None, alias="minExclusive")
    below: Value = Field(default=None, alias="maxExclusive")


class Inherited(Part):
    """What a column takes from its table where it does not say itself."""

    datatype: Annotated[Datatype, BeforeValidator(_as_type)] | None = None
    null: Annotated[list[Value], BeforeValidator(_as_list)] | None = None
    separator: StrictStr | None = None
    required: bool = False


class CsvwColumn(Inherited):
    """A column. Its titles are what stands in the header."""

    name: Name | None = None
    titles: Annotated[list[Name], BeforeValidator(_as_list)] = Field(default=[])
    virtual: bool = False
    enum: list[Value] = Field(default=[])


class CsvwSchema(Inherited):
    """The columns of a table."""

    columns: list[CsvwColumn] = Field(min_length=1)


def csvw_columns(content: dict[str, Any], table: dict[str, Any]) -> list[Described]:
    """The columns that a schema describes; what neither they nor it say, the table does."""
    schema, above = CsvwSchema.model_validate(content), Inherited.model_validate(table)
    outer = (schema, above)
    return [read_at(f"columns.{i}", _csvw_column, c, outer) for i, c in enumerate(schema.columns) if not c.virtual]


def _csvw_column(column: CsvwColumn, outer: tuple[Inherited, ...]) -> Described:
    levels = (column, *outer)
    name, *also = [*column.titles, column.name]
    if name is None:
        raise ValueError("neither name nor titles; a column needs one of them")
    datatype = next((level.datatype for level in levels if level.datatype is not None), Datatype(base="any"))
    null = next((level.null for level in levels if level.null is not None), [])
    if any(level.separator is not None for level in levels):
        return describe_column(name, "other")
    kind = CSVW_KINDS.get(datatype.base, "text")
    written, listed, foreign = datatype.format, column.enum, None
    pattern = isinstance(written, str) and kind in ("text", "unknown", "boolean")
    if pattern and (found := ALTERNATIVES.fullmatch(written)):
        kind, listed = "text", listed or found[1].split("|")
    elif isinstance(written, str) and kind == "date" and not CSVW_DAYS.fullmatch(written):
        foreign = written
    elif isinstance(written, dict) and (written.get("decimalChar", ".") != "." or written.get("groupChar")):
        foreign = f"1{written.get('groupChar', '')}234{written.get('decimalChar', '.')}5"
    low, high = _ends(datatype, kind)
    missing = () if any(level.required for level in levels) else [str(one) for one in null]
    entry = describe_column(name, kind, listed=listed, low=low, high=high, missing=missing, foreign=foreign)
    return replace(entry, also=tuple(other for other in also if other is not None))


def _ends(datatype: Datatype, kind: ColumnType) -> tuple[Any, Any]:
    """The ends that are given, or those of the type; of whole numbers, an end that is left out is the next one."""
    low = datatype.minimum if datatype.least is None else datatype.least
    high = datatype.maximum if datatype.most is None else datatype.most
    low, high = _beyond(datatype.above, low, 1, kind), _beyond(datatype.below, high, -1, kind)
    lowest, highest = WHOLE.get(datatype.base, (None, None))
    return lowest if low is None else low, highest if high is None else high


def _beyond(excluded: Any, end: Any, step: int, kind: ColumnType) -> Any:
    """The end that is given, or what lies next to one that is excluded."""
    if excluded is None:
        return end
    return parse_number(excluded) + step if kind == "whole" else excluded


# ── Frictionless Table Schema, versions 1 and 2: https://specs.frictionlessdata.io/table-schema/ ──

FRICTIONLESS_KINDS: dict[str, ColumnType] = {
    "string": "text",
    "number": "number",
    **dict.fromkeys(("integer", "year"), "whole"),
    "boolean": "boolean",
    **dict.fromkeys(("date", "datetime"), "date"),
    **dict.fromkeys(("time", "yearmonth", "duration"), "text"),
    "any": "unknown",
    **dict.fromkeys(("object", "array", "list", "geopoint", "geojson"), "other"),
}
USUAL_TRUTHS = frozenset(("true", "True", "TRUE", "1", "false", "False", "FALSE", "0"))
FRICTIONLESS_DAYS = ("default", "any", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ")


class Constraints(Part):
    """What the values must fulfil; patterns and lengths say too little to list values."""

    enum: list[Value] = Field(default=[])
    minimum: Value = None
    maximum: Value = None
    above: Value = Field(default=None, alias="exclusiveMinimum")
    below: Value = Field(default=None, alias="exclusiveMaximum")
    required: bool = False


class FrictionlessColumn(Part):
    """A field of a Frictionless schema."""

    name: Name
    type: StrictStr = "any"
    format: StrictStr = "default"
    constraints: Constraints = Constraints()
    categories: list[Value] = Field(default=[])
    missing: list[Value] | None = Field(default=None, alias="missingValues")
    true: list[StrictStr] = Field(default=[], alias="trueValues")
    false: list[StrictStr] = Field(default=[], alias="falseValues")
    decimal: StrictStr = Field(default=".", alias="decimalChar")
    group: StrictStr = Field(default="", alias="groupChar")


class FrictionlessSchema(Part):
    """The fields of a table."""

    columns: list[FrictionlessColumn] = Field(alias="fields", min_length=1)
    missing: list[Value] = Field(default=[], alias="missingValues")


def frictionless_columns(content: dict[str, Any]) -> list[Described]:
    """The columns that a Table Schema describes."""
    schema = FrictionlessSchema.model_validate(content)
    return [read_at(f"fields.{i}", _frictionless_column, c, schema.missing) for i, c in enumerate(schema.columns)]


def _frictionless_column(field: FrictionlessColumn, missing: list[Any]) -> Described:
    kind = FRICTIONLESS_KINDS.get(field.type.lower())
    if kind is None:
        raise ValueError(f"the type {shorten(repr(field.type))} is not one of {', '.join(FRICTIONLESS_KINDS)}")
    truths = [*field.true, *field.false]
    if kind == "boolean" and set(truths) - USUAL_TRUTHS:
        return describe_column(field.name, "text", listed=truths)
    limits, foreign = field.constraints, None
    if kind == "date" and field.format not in FRICTIONLESS_DAYS:
        foreign = field.format
    if kind in ("number", "whole") and (field.decimal != "." or field.group):
        foreign = f"1{field.group}234{field.decimal}5"
    low, high = _beyond(limits.above, limits.minimum, 1, kind), _beyond(limits.below, limits.maximum, -1, kind)
    listed, null = limits.enum or field.categories, missing if field.missing is None else field.missing
    absent = () if limits.required else map(str, null)
    return describe_column(field.name, kind, listed=listed, low=low, high=high, missing=absent, foreign=foreign)
