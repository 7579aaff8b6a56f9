"""Conditions in SQL as conditions on single columns, joined by AND, OR and NOT."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction

from sqlglot import exp

from batchdp.domain import Column, Dates, Integers, Listed, Numbers
from batchdp.domain.columns import day_cut, label
from batchdp.queries.query import All, Any, Condition, Cut, Missing, Negation, OneOf, Place, Truth, Value, Within
from batchdp.sql import relations
from batchdp.sql.constants import exact_number
from batchdp.sql.functions import check_columns, columns_in, comparison, function, is_function, refused_at
from batchdp.sql.pieces import Function
from batchdp.sql.refusals import Node
from batchdp.sql.regions import condition_of, labels_of, where
from batchdp.sql.script import RefusalError
from batchdp.sql.syntax import ARITHMETIC, Scope, listed, unwrapped

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
            first = str(column.values[0]).replace("'", "''")
            raise scope.refusal(node, f"not a text, which {name} holds", f"write {name} = '{first}'")
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


def _declared(column: Listed, near: str) -> str:
    return f"declared are {listed([label(value) for value in column.values], near)}"


MOST_BRANCHES = 200
"""Of the CASEs in an item."""
_MIRRORED = {exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
"""The comparison that says the same with its sides exchanged."""


def condition(scope: Scope, node: Node) -> Condition:
    """What a record must fulfil. NULL makes comparisons unknown, which the values themselves take care of."""
    node = unwrapped(node)
    match node:
        case exp.And():
            return All(_conditions(scope, _operands(node, exp.And)))
        case exp.Or():
            return Any(_conditions(scope, _operands(node, exp.Or)))
        case exp.Not():
            return Negation(condition(scope, node.this))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _comparison(scope, node)
        case exp.Like() | exp.ILike() | exp.Escape():
            return _by_values(scope, node)
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            return _null_safe(scope, node)
        case exp.Between():
            return _between(scope, node)
        case exp.In() if any(_is_computed(each) for each in (node.this, *node.expressions)):
            check_columns(scope, node)
            return Any(tuple(_holding(scope, node, node.this, each, "=") for each in node.expressions))
        case exp.In():
            name, column = _column(scope, node.this, node)
            if not node.expressions:
                raise scope.refusal(node, "IN without constants", "list the values: column IN ('a', 'b')")
            _check_constants(scope, *node.expressions)
            return one_of(scope, name, column, node.expressions)
        case exp.Is():
            if not isinstance(node.expression, exp.Null):
                raise scope.refusal(node, "IS is only for NULL", "write IS NULL, IS NOT NULL, or column = TRUE")
            if _is_computed(node.this):
                return _is_null(scope, node.this)
            return Missing(_column(scope, node.this, node)[0])
        case exp.Boolean():
            return Truth.TRUE if node.this else Truth.FALSE
        case exp.Column():
            name, column = scope.column(node)
            if not (isinstance(column, Listed) and True in column.values and column.kind == "boolean"):
                raise scope.refusal(node, "a column by itself is not a condition", f"compare {name} with a constant")
            return OneOf(name, frozenset([True]))
    raise _no_condition(scope, node)


def _conditions(scope: Scope, nodes: list[Node]) -> tuple[Condition, ...]:
    """One for every node; what is wrong with each is said."""
    found = []
    for node in nodes:
        with scope.taking():
            found.append(condition(scope, node))
    return tuple(found)


def check_branches(scope: Scope, node: Node) -> None:
    """Refuse a SUM or a CASE of very many branches: each lies inside the one before it."""
    found = sum(1 for _ in node.find_all(exp.If))
    if found > MOST_BRANCHES:
        raise scope.refusal(node, f"CASE with {found} branches", f"at most {MOST_BRANCHES} are allowed")


def branches(scope: Scope, case: Node) -> list[tuple[Condition, Node]]:
    """The conditions of a CASE in their order, each with its result; the first that is true decides."""
    subject = None if case.this is None else unwrapped(case.this)
    if subject is not None and not isinstance(subject, exp.Column):
        raise scope.refusal(subject, "CASE of anything but a column", "write CASE WHEN condition THEN …")
    found = []
    for branch in case.args["ifs"]:
        if subject is None:
            holds = condition(scope, branch.this)
        else:
            holds = one_of(scope, *scope.column(subject), [branch.this])
        found.append((holds, branch.args["true"]))
    return found


def one_of(scope: Scope, name: str, column: Column, constants: list[Node]) -> Condition:
    """The column equals one of these constants."""
    if isinstance(column, Listed):
        return OneOf(name, frozenset(declared_value(scope, name, column, each) for each in constants))
    places = [place(scope, name, column, each) for each in constants]
    days = isinstance(column, Dates)
    each_one = tuple(_within(name, Cut(at), Cut(at, after=True), days) for at in dict.fromkeys(places))
    return each_one[0] if len(each_one) == 1 else Any(each_one)


def _is_computed(node: Node) -> bool:
    """Whether a side of a comparison is neither a column nor a constant as it stands."""
    return is_function(node) and not is_literal(node)


def _by_values(scope: Scope, node: Node) -> Condition:
    """A condition on a function of one column, by the declared values for which it holds."""
    if not any(node.find_all(exp.Column)):
        raise scope.refusal(node, "a comparison without a column", "compare a column with a constant")
    own = function(scope, node)
    if True not in (*own.results, own.missing):
        raise _never_true(scope, node, own, node.this, node.args.get("expression"))
    with refused_at(scope, node):
        return condition_of(own)


def _holding(scope: Scope, node: Node, one: Node, other: Node, sign: str) -> Condition:
    """The same for one comparison of several that a node stands for."""
    own = comparison(scope, node, one, other, sign)
    if True not in (*own.results, own.missing):
        raise _never_true(scope, node, own, one, other)
    with refused_at(scope, node):
        return condition_of(own)


def _never_true(scope: Scope, node: Node, own: Function, *sides: Node) -> RefusalError:
    """So that a misspelt constant cannot count nothing by mistake; says what the computed side can be."""
    remedy = "compare it with a value that it can have"
    computed = next((side for side in sides if side is not None and any(side.find_all(exp.Column))), None)
    if computed is not None and (known := labels_of(function(scope, computed))):
        remedy = f"it is one of {listed(known)}"
    return scope.refusal(node, f"a condition that no declared value of {own.column} fulfils", remedy)


def _is_null(scope: Scope, node: Node) -> Condition:
    """Whether a function is NULL: where its column is, and for declared values that it has nothing for."""
    own = function(scope, node)
    regions = [region for region, result in own.pieces if result is None] if own.column else []
    with refused_at(scope, node):
        found: list[Condition] = [All((Negation(Missing(own.column)), where(own, regions)))] if regions else []
    found += [Missing(own.column)] if own.missing is None and own.column else []
    return Truth.FALSE if not found else found[0] if len(found) == 1 else Any(tuple(found))


def _null_safe(scope: Scope, node: Node) -> Condition:
    """IS NOT DISTINCT FROM: equal, or both NULL; never unknown. IS DISTINCT FROM is the opposite."""
    left, right = unwrapped(node.this), unwrapped(node.expression)
    left, right = (right, left) if is_literal(left) else (left, right)
    if _is_computed(left) or _is_computed(right):
        check_columns(scope, node)
        null = Missing(columns_in(scope, node)[0])
        same = _holding(scope, node, left, right, "=")
    else:
        name, column = _column(scope, left, node)
        null = Missing(name)
        _check_constants(scope, right)
        same = null if isinstance(right, exp.Null) else one_of(scope, name, column, [right])
    same = same if same is null else All((Negation(null), same))
    return same if isinstance(node, exp.NullSafeEQ) else Negation(same)


def _comparison(scope: Scope, node: Node) -> Condition:
    if relations.is_related(node.this, node.expression):
        return relations.comparison(scope, node)
    left, right, kind = unwrapped(node.this), node.expression, type(node)
    if _is_computed(left) or _is_computed(right):
        return _by_values(scope, node)
    if is_literal(left) and not is_literal(right):
        left, right, kind = unwrapped(right), left, _MIRRORED[kind]
    name, column = _column(scope, left, node)
    _check_constants(scope, right)
    if kind is exp.EQ:
        return one_of(scope, name, column, [right])
    if kind is exp.NEQ:
        return Negation(one_of(scope, name, column, [right]))
    if isinstance(column, Listed):
        raise _no_order(scope, node, name, column)
    at, days = place(scope, name, column, right), isinstance(column, Dates)
    if kind in (exp.LT, exp.LTE):
        return _within(name, None, Cut(at, after=kind is exp.LTE), days)
    return _within(name, Cut(at, after=kind is exp.GT), None, days)


def _between(scope: Scope, node: Node) -> Condition:
    sides = node.this, node.args["low"], node.args["high"]
    if relations.is_related(*sides):
        return relations.between(scope, node)
    if any(map(_is_computed, sides)):
        return _between_values(scope, node, *sides)
    name, column = _column(scope, node.this, node)
    ends = node.args["low"], node.args["high"]
    _check_constants(scope, *ends)
    if isinstance(column, Listed):
        raise _no_order(scope, node, name, column)
    low, high = (place(scope, name, column, end) for end in ends)
    if node.args.get("symmetric"):
        low, high = min(low, high), max(low, high)
    if low > high:
        raise scope.refusal(node, "BETWEEN with the higher end first, which is never true", "give the lower end first")
    return _within(name, Cut(low), Cut(high, after=True), isinstance(column, Dates))


def _between_values(scope: Scope, node: Node, this: Node, low: Node, high: Node) -> Condition:
    check_columns(scope, node)

    def one(low: Node, high: Node) -> Condition:
        return All((_holding(scope, node, this, low, ">="), _holding(scope, node, this, high, "<=")))

    return Any((one(low, high), one(high, low))) if node.args.get("symmetric") else one(low, high)


def _within(name: str, low: Cut | None, high: Cut | None, days: bool) -> Within:
    return Within(name, day_cut(low), day_cut(high)) if days else Within(name, low, high)


def _operands(node: Node, kind: type[exp.And] | type[exp.Or]) -> list[Node]:
    """What a chain of ANDs or ORs joins, in order. Not recursive: a chain may be thousands long."""
    operands, pending = [], [node]
    while pending:
        node = unwrapped(pending.pop())
        if isinstance(node, kind):
            pending += [node.expression, node.this]
        else:
            operands.append(node)
    return operands


def _column(scope: Scope, node: Node, whole: Node) -> tuple[str, Column]:
    inner = unwrapped(node)
    if isinstance(inner, exp.Column):
        return scope.column(inner)
    if is_literal(inner):
        raise scope.refusal(whole, "a comparison without a column", "compare a column with a constant")
    if isinstance(inner, (*ARITHMETIC, exp.Neg)):
        raise scope.refusal(inner, "arithmetic in a condition is not supported", "compare the column itself")
    if isinstance(inner, (exp.AggFunc, exp.Filter)):
        raise _no_condition(scope, inner)
    raise scope.refusal(inner, "not a column", "compare a column with a constant")


def _check_constants(scope: Scope, *nodes: Node) -> None:
    for node in nodes:
        if isinstance(unwrapped(node), ARITHMETIC):
            raise scope.refusal(node, "arithmetic in a condition is not supported", "write the number itself")
        if not is_literal(node):
            raise scope.refusal(node, "not a constant", "compare a column with a constant")


def _no_order(scope: Scope, node: Node, name: str, column: Listed) -> RefusalError:
    remedy = f"list the values, {name} IN (…)"
    if column.kind == "integer":
        remedy += f", or declare {name} as integers or range"
    elif column.kind == "text":
        remedy += f", or declare {name} as range, integers or dates if it is a number or a day"
    return scope.refusal(node, f"an order comparison of {name}, whose values have no declared order", remedy)


def _no_condition(scope: Scope, node: Node) -> RefusalError:
    if isinstance(node, (exp.AggFunc, exp.Filter)):
        remedy = "conditions are about single records; of answers, write HAVING COUNT(*) >= 100"
        return scope.refusal(node, "an aggregate in a condition", remedy)
    if isinstance(node, exp.Null):
        return scope.refusal(node, "NULL as a condition, which is never true", "write column IS NULL")
    return scope.refusal(node, "not a condition", "compare a column with a constant, like age >= 18")
