"""CSV on the Web: the metadata vocabulary of https://www.w3.org/TR/tabular-metadata/."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictStr

from batchdp.domain.codebooks.parts import Name, Part, Value, at, described, number
from batchdp.domain.described import ColumnType, Described

WHOLE: dict[str, tuple[int | None, int | None]] = {
    "integer": (None, None),
    "int": (None, None),
    "long": (None, None),
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
    "gYear": (None, None),
}
"""Types of whole numbers, with the ends that they have by themselves and a person might mean."""
KINDS: dict[str, ColumnType] = {
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
USUAL_DAYS = re.compile(r"yyyy-MM-dd([T ]HH:mm(:ss)?(\.S+)?(X|XX|XXX)?)?")


def _listed(value: Any) -> Any:
    """One text stands for a list of one; a text a language, for all of them."""
    if isinstance(value, dict):
        return [text for texts in value.values() for text in _listed(texts)]
    return value if isinstance(value, list) else [value]


def _typed(value: Any) -> Any:
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

    datatype: Annotated[Datatype, BeforeValidator(_typed)] | None = None
    null: Annotated[list[Value], BeforeValidator(_listed)] | None = None
    separator: StrictStr | None = None
    required: bool = False


class Column(Inherited):
    """A column. Its titles are what stands in the header."""

    name: Name | None = None
    titles: Annotated[list[Name], BeforeValidator(_listed)] = Field(default=[])
    virtual: bool = False
    enum: list[Value] = Field(default=[])


class TableSchema(Inherited):
    """The columns of a table."""

    columns: list[Column] = Field(min_length=1)


def columns(content: dict[str, Any], table: dict[str, Any]) -> list[Described]:
    """The columns that a schema describes; what neither they nor it say, the table does."""
    schema, above = TableSchema.model_validate(content), Inherited.model_validate(table)
    outer = (schema, above)
    return [at(f"columns.{i}", _column, c, outer) for i, c in enumerate(schema.columns) if not c.virtual]


def _column(column: Column, outer: tuple[Inherited, ...]) -> Described:
    levels = (column, *outer)
    name, *also = [*column.titles, column.name]
    if name is None:
        raise ValueError("neither name nor titles; a column needs one of them")
    datatype = next((level.datatype for level in levels if level.datatype is not None), Datatype(base="any"))
    null = next((level.null for level in levels if level.null is not None), [])
    if any(level.separator is not None for level in levels):
        return described(name, "other")
    kind = KINDS.get(datatype.base, "text")
    written, listed, foreign = datatype.format, column.enum, None
    if (
        isinstance(written, str)
        and kind in ("text", "unknown", "boolean")
        and (found := ALTERNATIVES.fullmatch(written))
    ):
        kind, listed = "text", listed or found[1].split("|")
    elif isinstance(written, str) and kind == "date" and not USUAL_DAYS.fullmatch(written):
        foreign = written
    elif isinstance(written, dict) and (written.get("decimalChar", ".") != "." or written.get("groupChar")):
        foreign = f"1{written.get('groupChar', '')}234{written.get('decimalChar', '.')}5"
    low, high = _ends(datatype, kind)
    missing = () if any(level.required for level in levels) else [str(one) for one in null]
    entry = described(name, kind, listed=listed, low=low, high=high, missing=missing, foreign=foreign)
    return replace(entry, also=tuple(other for other in also if other is not None))


def _ends(datatype: Datatype, kind: ColumnType) -> tuple[Any, Any]:
    """The ends that are given, or those of the type; of whole numbers, an end that is left out is the next one."""
    low = datatype.minimum if datatype.least is None else datatype.least
    high = datatype.maximum if datatype.most is None else datatype.most
    if datatype.above is not None:
        low = number(datatype.above) + 1 if kind == "whole" else datatype.above
    if datatype.below is not None:
        high = number(datatype.below) - 1 if kind == "whole" else datatype.below
    lowest, highest = WHOLE.get(datatype.base, (None, None))
    return lowest if low is None else low, highest if high is None else high
