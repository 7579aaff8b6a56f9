"""Constants in SQL as the values that a column declares."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction

from sqlglot import exp

from batchdp.domain import Column, Dates, Integers, Listed, Numbers
from batchdp.domain.columns import label
from batchdp.queries.conditions import Place, Value
from batchdp.sql.places import Node
from batchdp.sql.scope import Scope, listed, unwrapped

LONGEST_NUMBER = 60
"""Characters."""
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def is_literal(node: Node) -> bool:
    """Whether the node is a constant: a number with or without a sign, a text, a date, TRUE, FALSE or NULL."""
    node = unwrapped(node)
    while isinstance(node, (exp.Neg, exp.Cast)):
        node = unwrapped(node.this)
    return isinstance(node, (exp.Literal, exp.Boolean, exp.Null))


def declared_value(scope: Scope, name: str, column: Listed, node: Node) -> Value:
    """The declared value that a constant stands for."""
    inner = _not_null(scope, node)
    value: Value
    if column.kind == "boolean":
        if not isinstance(inner, exp.Boolean):
            raise scope.refusal(node, f"not TRUE or FALSE, which {name} holds", f"write {name} = TRUE")
        value = bool(inner.this)
    elif column.kind == "integer":
        number = _number(scope, name, node)
        if number.denominator != 1:
            raise scope.refusal(node, f"not a whole number, which {name} holds", _declared(column, str(number)))
        value = number.numerator
    else:
        if not (isinstance(inner, exp.Literal) and inner.is_string):
            raise scope.refusal(node, f"not a text, which {name} holds", f"write {name} = '{_first(column)}'")
        value = str(inner.this)
    if value not in scope.declared.values[name]:
        raise scope.refusal(node, f"not a declared value of {name}", _declared(column, label(value)))
    return value


def place(scope: Scope, name: str, column: Numbers | Integers | Dates, node: Node) -> Place:
    """The place on a column's line that a constant stands for."""
    _not_null(scope, node)
    at: Place
    if isinstance(column, Dates):
        at = _day(scope, name, node).toordinal()
    else:
        number = _number(scope, name, node)
        if isinstance(column, Integers) and number.denominator != 1:
            below = number.numerator // number.denominator
            remedy = f"write {below} or {below + 1}"
            raise scope.refusal(node, f"not a whole number, which {name} holds", remedy)
        at = number.numerator if number.denominator == 1 else float(number)
    low, high = column.ends()
    if not low <= at <= high:
        ends = column.dates if isinstance(column, Dates) else (low, high)
        raise scope.refusal(node, f"beyond the declared range of {name}", f"it goes from {ends[0]} to {ends[1]}")
    return at


def exact_number(scope: Scope, node: Node) -> Fraction:
    """The number that a literal writes, exactly."""
    text = str(node.this)
    exponent = re.search(r"[eE]([+-]?[0-9]+)$", text)
    if len(text) > LONGEST_NUMBER or (exponent and abs(int(exponent[1])) > 300):
        raise scope.refusal(node, "a number that is too large or too long", "write numbers like 1000, 0.5 or 1e3")
    return Fraction(text)


def _number(scope: Scope, name: str, node: Node) -> Fraction:
    inner = unwrapped(node)
    if isinstance(inner, exp.Neg):
        return -_number(scope, name, inner.this)
    if isinstance(inner, exp.Cast):
        check_date_type(scope, inner)
    if not isinstance(inner, exp.Literal) or inner.is_string:
        remedy = "write it without quotes" if isinstance(inner, exp.Literal) else f"write {name} = 1"
        raise scope.refusal(node, f"not a number, which {name} holds", remedy)
    return exact_number(scope, inner)


def _day(scope: Scope, name: str, node: Node) -> date:
    inner = unwrapped(node)
    if isinstance(inner, exp.Cast):
        check_date_type(scope, inner)
        inner = unwrapped(inner.this)
    text = str(inner.this) if isinstance(inner, exp.Literal) and inner.is_string else ""
    try:
        if not _DAY.fullmatch(text):
            raise ValueError(text)
        return date.fromisoformat(text)
    except ValueError:
        raise scope.refusal(node, f"not a day, which {name} holds", "write it as DATE '2024-01-31'") from None


def check_date_type(scope: Scope, node: Node) -> None:
    """Refuse every CAST but the one to DATE."""
    kind = node.args["to"].this
    if getattr(kind, "name", kind) != "DATE":
        raise scope.refusal(node, "a CAST to anything but DATE", "write constants as they are, like 5 or 'NY'")


def _not_null(scope: Scope, node: Node) -> Node:
    inner = unwrapped(node)
    if isinstance(inner, exp.Null):
        raise scope.refusal(node.parent or node, "a comparison with NULL, which is never true", "write IS NULL")
    return inner


def _first(column: Listed) -> str:
    return str(column.values[0]).replace("'", "''")


def _declared(column: Column, near: str) -> str:
    assert isinstance(column, Listed)
    return f"declared are {listed([label(value) for value in column.values], near)}"
