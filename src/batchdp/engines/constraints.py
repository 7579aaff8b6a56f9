"""What a database's schema says about values: the labels of ENUM types, and CHECK constraints.

A constraint is read as far as it holds one column against constants; whatever else it says is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from batchdp.domain.codebook_formats import describe_column, parse_day, parse_number
from batchdp.domain.columns import fold
from batchdp.domain.draft import Described
from batchdp.engines.source import Said


class Bound(NamedTuple):
    """One column, held against constants."""

    column: str
    how: Literal["among", "low", "high"]
    constants: tuple[str, ...]
    strict: bool = False
    """Whether the end itself is excluded."""


def describe_said(columns: Sequence[Described], said: Said, dialect: str) -> list[Described]:
    """The columns, with what the schema says about their values."""
    bounds = [bound for of, check in said.checks for bound in read_check(check, dialect, of)]
    return [
        _describe(one, said, [bound for bound in bounds if fold(bound.column) == fold(one.name)]) for one in columns
    ]


def _describe(column: Described, said: Said, bounds: Sequence[Bound]) -> Described:
    labels = said.labels.get(column.name)
    lists = ([] if labels is None else [labels]) + [bound.constants for bound in bounds if bound.how == "among"]
    listed = [value for value in lists[0] if all(value in one for one in lists)] if lists else []
    with suppress(ValueError):  # what cannot be declared is left to whoever edits the draft
        lows, highs = (
            [_end(bound, column.kind) for bound in bounds if bound.how == how and column.kind != "text"]
            for how in ("low", "high")
        )
        low, high = max(lows, default=None), min(highs, default=None)
        found = describe_column(column.name, column.kind, listed=listed, low=low, high=high)
        if found.values or found.low is not None or found.high is not None:
            origin = "its CHECK" if labels is None else "its ENUM type"
            return replace(found, step=column.step, documented=False, origin=origin)
    return column


def _end(bound: Bound, kind: str) -> Any:
    """The end that a column can have, in an order; of whole numbers, the one next to an end that is excluded."""
    (constant,) = bound.constants
    if kind == "date":
        return parse_day(constant).isoformat()
    number = parse_number(constant)
    if kind != "whole" or not bound.strict:
        return number
    return math.floor(number) + 1 if bound.how == "low" else math.ceil(number) - 1


def read_check(check: str, dialect: str, of: str | None = None) -> list[Bound]:
    """The bounds that are sure to hold where a CHECK constraint does and the column is not NULL.

    Args:
        check: its condition.
        dialect: of what database.
        of: the column whose type's constraint this is, which says VALUE for it.
    """
    try:
        return [
            bound._replace(column=of) if of is not None and bound.column == "VALUE" else bound
            for bound in _bounds(sqlglot.parse_one(check, dialect=dialect))
        ]
    except (SqlglotError, RecursionError):
        return []


FLIPPED = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT, exp.EQ: exp.EQ}


def _bounds(node: Any) -> Iterator[Bound]:
    node = node.unnest()
    kind = type(node)
    if kind is exp.And:
        yield from _bounds(node.left)
        yield from _bounds(node.right)
    elif kind is exp.Or:
        yield from _either(list(node.flatten()))
    elif kind is exp.Between:
        yield from _compared(exp.GTE, node.this, node.args["low"])
        yield from _compared(exp.LTE, node.this, node.args["high"])
    elif kind is exp.In and node.expressions:
        yield from _among(node.this, node.expressions)
    elif kind is exp.EQ and isinstance(node.expression, exp.Any):
        array = _uncast(node.expression.this)
        yield from _among(node.this, array.expressions if isinstance(array, exp.Array) else [])
    elif kind in FLIPPED:
        yield from _compared(kind, node.left, node.right)
        yield from _compared(FLIPPED[kind], node.right, node.left)


def _either(parts: Sequence[Any]) -> Iterator[Bound]:
    """One of several: lists of one column are one list, and that it may be NULL says nothing."""
    nulls = [part for part in map(exp.Expression.unnest, parts) if _is_null(part)]
    rest = [list(_bounds(part)) for part in parts if not _is_null(part.unnest())]
    columns = {_column(part.this) for part in nulls}
    if len(rest) == 1:
        yield from (bound for bound in rest[0] if columns == {bound.column})
    elif rest and all([bound.how for bound in one] == ["among"] for one in rest):
        columns |= {one[0].column for one in rest}
        if len(columns) == 1:
            yield rest[0][0]._replace(constants=tuple(value for one in rest for value in one[0].constants))


def _is_null(node: Any) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _among(column: Any, listed: Sequence[Any]) -> Iterator[Bound]:
    name, constants = _column(column), tuple(constant for one in listed if (constant := _constant(one)) is not None)
    if name is not None and constants and len(constants) == len(listed):  # with a NULL in it, it holds for anything
        yield Bound(name, "among", constants)


def _compared(kind: Any, left: Any, right: Any) -> Iterator[Bound]:
    name, constant = _column(left), _constant(right)
    if name is None or constant is None:
        return
    if kind is exp.EQ:
        yield Bound(name, "among", (constant,))
    else:
        yield Bound(name, "low" if kind in (exp.GTE, exp.GT) else "high", (constant,), kind in (exp.GT, exp.LT))


def _column(node: Any) -> str | None:
    """The column that stands here, perhaps as a text: other casts may round it."""
    node = node.unnest()
    while isinstance(node, exp.Cast) and node.to.this in exp.DataType.TEXT_TYPES:
        node = node.this.unnest()
    return str(node.name) if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) else None


def _constant(node: Any) -> str | None:
    """The text or number that stands here, as a text."""
    node = _uncast(node)
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return None if inner is None else f"-{inner}"
    return str(node.this) if isinstance(node, exp.Literal) else None


def _uncast(node: Any) -> Any:
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return node
