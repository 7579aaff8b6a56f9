"""Frictionless Table Schema, versions 1 and 2: https://specs.frictionlessdata.io/table-schema/."""

from __future__ import annotations

from typing import Any

from pydantic import Field, StrictStr

from batchdp.domain.codebooks.parts import Name, Part, Value, at, described, number, shown
from batchdp.domain.described import ColumnType, Described

KINDS: dict[str, ColumnType] = {
    "string": "text",
    "number": "number",
    "integer": "whole",
    "year": "whole",
    "boolean": "boolean",
    "date": "date",
    "datetime": "date",
    "time": "text",
    "yearmonth": "text",
    "duration": "text",
    "any": "unknown",
    **dict.fromkeys(("object", "array", "list", "geopoint", "geojson"), "other"),
}
USUAL_TRUTHS = frozenset(("true", "True", "TRUE", "1", "false", "False", "FALSE", "0"))
USUAL_DAYS = ("default", "any", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ")


class Constraints(Part):
    """What the values must fulfil; patterns and lengths say too little to list values."""

    enum: list[Value] = Field(default=[])
    minimum: Value = None
    maximum: Value = None
    above: Value = Field(default=None, alias="exclusiveMinimum")
    below: Value = Field(default=None, alias="exclusiveMaximum")
    required: bool = False


class Column(Part):
    """A field."""

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


class TableSchema(Part):
    """The fields of a table."""

    columns: list[Column] = Field(alias="fields", min_length=1)
    missing: list[Value] = Field(default=[], alias="missingValues")


def columns(content: dict[str, Any]) -> list[Described]:
    """The columns that a Table Schema describes."""
    schema = TableSchema.model_validate(content)
    return [at(f"fields.{i}", _column, field, schema.missing) for i, field in enumerate(schema.columns)]


def _column(field: Column, missing: list[Any]) -> Described:
    kind = KINDS.get(field.type.lower())
    if kind is None:
        raise ValueError(f"the type {shown(repr(field.type))} is not one of {', '.join(KINDS)}")
    truths = [*field.true, *field.false]
    if kind == "boolean" and set(truths) - USUAL_TRUTHS:
        return described(field.name, "text", listed=truths)
    limits, foreign = field.constraints, None
    if kind == "date" and field.format not in USUAL_DAYS:
        foreign = field.format
    if kind in ("number", "whole") and (field.decimal != "." or field.group):
        foreign = f"1{field.group}234{field.decimal}5"
    low, high = limits.minimum, limits.maximum
    if limits.above is not None:
        low = number(limits.above) + 1 if kind == "whole" else limits.above
    if limits.below is not None:
        high = number(limits.below) - 1 if kind == "whole" else limits.below
    return described(
        field.name,
        kind,
        listed=limits.enum or field.categories,
        low=low,
        high=high,
        missing=() if limits.required else [str(one) for one in (missing if field.missing is None else field.missing)],
        foreign=foreign,
    )
