"""Conditions in SQL as conditions on single columns, joined by AND, OR and NOT."""

from __future__ import annotations

from sqlglot import exp

from batchdp.domain import Column, Dates, Listed
from batchdp.domain.columns import day_cut
from batchdp.errors import QueryError
from batchdp.queries import All, Any, Condition, Cut, Missing, Negation, OneOf, Truth, Within
from batchdp.sql.literals import declared_value, is_literal, place
from batchdp.sql.places import Node
from batchdp.sql.scope import Scope, unwrapped

MOST_BRANCHES = 200
"""Of the CASEs in an item."""
_MIRRORED = {exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
"""The comparison that says the same with its sides exchanged."""


def condition(scope: Scope, node: Node) -> Condition:
    """What a record must fulfil. NULL makes comparisons unknown, which the values themselves take care of."""
    node = unwrapped(node)
    match node:
        case exp.And():
            return All(tuple(condition(scope, part) for part in _operands(node, exp.And)))
        case exp.Or():
            return Any(tuple(condition(scope, part) for part in _operands(node, exp.Or)))
        case exp.Not():
            return Negation(condition(scope, node.this))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _comparison(scope, node)
        case exp.Between():
            return _between(scope, node)
        case exp.In():
            name, column = _column(scope, node.this, node)
            if not node.expressions:
                raise scope.refusal(node, "IN without constants", "list the values: column IN ('a', 'b')")
            for each in node.expressions:
                if not is_literal(each):
                    raise _no_constant(scope, each)
            return one_of(scope, name, column, node.expressions)
        case exp.Is():
            if not isinstance(node.expression, exp.Null):
                raise scope.refusal(node, "IS is only for NULL", "write IS NULL, IS NOT NULL, or column = TRUE")
            return Missing(_column(scope, node.this, node)[0])
        case exp.Boolean():
            return Truth.TRUE if node.this else Truth.FALSE
        case exp.Column():
            name, column = scope.column(node)
            if not (isinstance(column, Listed) and True in column.values and column.kind == "boolean"):
                raise scope.refusal(node, "a column by itself is no condition", f"compare {name} with a constant")
            return OneOf(name, frozenset([True]))
    raise _no_condition(scope, node)


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


def _comparison(scope: Scope, node: Node) -> Condition:
    left, right, kind = unwrapped(node.this), node.expression, type(node)
    if is_literal(left) and not is_literal(right):
        left, right, kind = unwrapped(right), left, _MIRRORED[kind]
    name, column = _column(scope, left, node)
    if isinstance(unwrapped(right), exp.Column):
        scope.column(unwrapped(right))
        remedy = "compare each with a constant, or declare a column that holds the comparison"
        raise scope.refusal(node, "a comparison of two columns is not supported", remedy)
    if not is_literal(right):
        raise _no_constant(scope, right)
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
    name, column = _column(scope, node.this, node)
    ends = node.args["low"], node.args["high"]
    for end in ends:
        if not is_literal(end):
            raise _no_constant(scope, end)
    if isinstance(column, Listed):
        raise _no_order(scope, node, name, column)
    low, high = (place(scope, name, column, end) for end in ends)
    if low > high:
        raise scope.refusal(node, "BETWEEN with the higher end first, which is never true", "give the lower end first")
    return _within(name, Cut(low), Cut(high, after=True), isinstance(column, Dates))


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
    if isinstance(inner, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)):
        raise scope.refusal(inner, "arithmetic in a condition is not supported", "compare the column itself")
    raise scope.refusal(inner, "not a column", "compare a column with a constant")


def _no_constant(scope: Scope, node: Node) -> QueryError:
    if isinstance(unwrapped(node), (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return scope.refusal(node, "arithmetic in a condition is not supported", "write the number itself")
    return scope.refusal(node, "not a constant", "compare a column with a constant")


def _no_order(scope: Scope, node: Node, name: str, column: Listed) -> QueryError:
    remedy = f"list the values, {name} IN (…)"
    if column.kind == "integer":
        remedy += f", or declare {name} as integers or range"
    elif column.kind == "text":
        remedy += f", or declare {name} as range, integers or dates if it is a number or a day"
    return scope.refusal(node, f"an order comparison of {name}, whose values have no declared order", remedy)


def _no_condition(scope: Scope, node: Node) -> QueryError:
    if isinstance(node, (exp.Count, exp.Sum, exp.Filter)):
        return scope.refusal(node, "an aggregate in a condition", "conditions are about single records")
    if isinstance(node, exp.Null):
        return scope.refusal(node, "NULL as a condition, which is never true", "write column IS NULL")
    return scope.refusal(node, "not a condition", "compare a column with a constant, like age >= 18")
