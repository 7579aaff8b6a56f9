"""Comparisons and arithmetic between columns: sums of multiples of several columns, compared with a number.

`a + b <= 10`, `a <= b`, `ABS(a - b) < 3`, `b - a BETWEEN 1 AND 7`, `AVG(b - a)`, for whole numbers, numbers with a step
and days, up to a million combinations of declared values; and `a = b` for columns that list their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, lcm, prod

from sqlglot import exp

from batchdp.domain import Column, Dates, Integers, Listed, Numbers
from batchdp.queries.query import All, Any, Compared, Computed, Condition, Negation, Term
from batchdp.sql.constants import exact_number
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import Scope, unwrapped

MOST_COMBINATIONS = 1_000_000
"""Of declared values that are told apart."""
MOST_NODES = 200
"""Of an expression."""
LARGEST = 2**53
"""Of sums in whole numbers: floats hold them exactly."""
_TURNED = {exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}


@dataclass(frozen=True)
class Linear:
    """A number, and multiples of columns."""

    factors: dict[str, Fraction]
    constant: Fraction = Fraction(0)

    def plus(self, other: Linear, times: Fraction = Fraction(1)) -> Linear:
        """The sum of this and a multiple of another."""
        both = dict(self.factors)
        for name, factor in other.factors.items():
            both[name] = both.get(name, Fraction(0)) + times * factor
        return Linear(both, self.constant + times * other.constant)

    def times(self, factor: Fraction) -> Linear:
        """A multiple."""
        return Linear({name: factor * own for name, own in self.factors.items()}, factor * self.constant)


def columns_in(node: Node) -> set[str]:
    """The names of all columns in an expression, as they are written."""
    return {one.name.lower() for one in node.find_all(exp.Column)}


def is_related(*sides: Node) -> bool:
    """Whether an expression is about several columns."""
    return len(set().union(*map(columns_in, sides))) > 1


def comparison(scope: Scope, node: Node) -> Condition:
    """A comparison of several columns."""
    left, right, kind = unwrapped(node.this), unwrapped(node.expression), type(node)
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        sides = [scope.column(left), scope.column(right)]
        if any(isinstance(column, Listed) and column.kind != "integer" for _, column in sides):
            return _same_value(scope, node, sides)
    if isinstance(right, exp.Abs) and not isinstance(left, exp.Abs):
        left, right, kind = right, left, _TURNED[kind]
    if isinstance(left, exp.Abs):
        if columns_in(right):
            remedy = "compare ABS(…) with a number"
            raise scope.refusal(node, "ABS compared with a column is not supported", remedy)
        return _absolute(scope, node, _linear(scope, left.this), kind, _linear(scope, right).constant)
    return _compared(scope, node, _linear(scope, left).plus(_linear(scope, right), Fraction(-1)), kind)


def between(scope: Scope, node: Node) -> Condition:
    """BETWEEN for an expression of several columns."""
    whole, low, high = unwrapped(node.this), node.args["low"], node.args["high"]
    if node.args.get("symmetric"):
        raise scope.refusal(node, "BETWEEN SYMMETRIC of several columns", "write two comparisons with OR")
    if isinstance(whole, exp.Abs):
        if columns_in(low) or columns_in(high):
            raise scope.refusal(node, "ABS compared with a column is not supported", "compare ABS(…) with numbers")
        inner, ends = _linear(scope, whole.this), [_linear(scope, end).constant for end in (low, high)]
        parts = [_absolute(scope, node, inner, kind, end) for kind, end in zip((exp.GTE, exp.LTE), ends, strict=True)]
    else:
        middle = _linear(scope, whole)
        parts = [
            _compared(scope, node, middle.plus(_linear(scope, end), Fraction(-1)), kind)
            for kind, end in ((exp.GTE, low), (exp.LTE, high))
        ]
    return All(tuple(parts))


def computed(scope: Scope, node: Node) -> tuple[Computed, Fraction, Fraction]:
    """What a record adds to a SUM over several columns, but for a constant; this; and the middle without it."""
    found = _linear(scope, node)
    terms, scale, (low, high) = _whole(scope, node, found)
    return Computed(terms, scale), found.constant, (low + high) / 2


def _compared(scope: Scope, node: Node, found: Linear, kind: type) -> Condition:
    """A sum compared with 0."""
    terms, scale, _ = _whole(scope, node, found)
    bound = -found.constant * scale
    below, above = floor(bound), ceil(bound)
    match kind:
        case exp.LTE:
            return Compared(terms, None, below)
        case exp.LT:
            return Compared(terms, None, above - 1)
        case exp.GTE:
            return Compared(terms, above, None)
        case exp.GT:
            return Compared(terms, below + 1, None)
    same = Compared(terms, above, below)  # which no sum is where the number is no whole one
    return same if kind is exp.EQ else Negation(same)


def _absolute(scope: Scope, node: Node, found: Linear, kind: type, number: Fraction) -> Condition:
    """The magnitude of a sum compared with a number."""
    terms, scale, _ = _whole(scope, node, found)
    centre = -found.constant * scale

    def within(size: Fraction, *, open_ended: bool) -> Condition:
        low, high = centre - size, centre + size
        if open_ended:
            return Compared(terms, floor(low) + 1, ceil(high) - 1)
        return Compared(terms, ceil(low), floor(high))

    size = number * scale
    nowhere = Compared(terms, 1, 0)
    match kind:
        case exp.LTE:
            return within(size, open_ended=False) if size >= 0 else nowhere
        case exp.LT:
            return within(size, open_ended=True) if size > 0 else nowhere
        case exp.GTE:
            return Negation(within(size, open_ended=True) if size > 0 else nowhere)
        case exp.GT:
            return Negation(within(size, open_ended=False) if size >= 0 else nowhere)
    ends = {centre - size, centre + size} if size >= 0 else set()
    same = Any(tuple(Compared(terms, ceil(end), floor(end)) for end in sorted(ends))) if ends else nowhere
    return same if kind is exp.EQ else Negation(same)


def _same_value(scope: Scope, node: Node, sides: list[tuple[str, Column]]) -> Condition:
    """Whether two columns that list their values have the same one."""
    (one, first), (other, second) = sides
    if type(node) not in (exp.EQ, exp.NEQ):
        problem = f"an order comparison of {one} and {other}, whose values have no declared order"
        raise scope.refusal(node, problem, f"write {one} = {other} or {one} <> {other}")
    if not (isinstance(first, Listed) and isinstance(second, Listed) and first.kind == second.kind):
        remedy = "compare columns of the same kind, or declare them alike"
        raise scope.refusal(node, f"a comparison of {one} and {other}, which are of different kinds", remedy)
    values = tuple(dict.fromkeys((*first.values, *second.values)))
    _check_size(scope, node, {one: len(first.values), other: len(second.values)})
    same = Compared((Term(one, Fraction(1), values), Term(other, Fraction(-1), values)), 0, 0)
    return same if type(node) is exp.EQ else Negation(same)


def _linear(scope: Scope, node: Node) -> Linear:
    """An expression as a sum of multiples of columns and a number."""
    if sum(1 for _ in node.walk()) > MOST_NODES:
        raise scope.refusal(node, "arithmetic between columns that is too long", "write it with fewer terms")
    node = unwrapped(node)
    match node:
        case exp.Column():
            return Linear({scope.column(node)[0]: Fraction(1)})
        case exp.Literal() if not node.is_string:
            return Linear({}, exact_number(scope, node))
        case exp.Neg():
            return _linear(scope, node.this).times(Fraction(-1))
        case exp.Add():
            return _linear(scope, node.this).plus(_linear(scope, node.expression))
        case exp.Sub():
            return _linear(scope, node.this).plus(_linear(scope, node.expression), Fraction(-1))
        case exp.Mul() | exp.Div():
            one, other = _linear(scope, node.this), _linear(scope, node.expression)
            if isinstance(node, exp.Mul) and not one.factors:
                one, other = other, one
            if other.factors:
                remedy = "add and subtract columns, or multiples of them by a number"
                raise scope.refusal(node, "a product or quotient of columns is not supported", remedy)
            if isinstance(node, exp.Div) and other.constant == 0:
                raise scope.refusal(node, "a division by zero", "divide by another number")
            return one.times(other.constant if isinstance(node, exp.Mul) else 1 / other.constant)
    remedy = "add and subtract columns of numbers or days, or write ABS(…) around all of it"
    raise scope.refusal(node, "not supported in arithmetic between columns", remedy)


def _whole(scope: Scope, node: Node, found: Linear) -> tuple[tuple[Term, ...], int, tuple[Fraction, Fraction]]:
    """The terms times the least number that makes all sums whole, that number, and the ends of the sum itself."""
    factors = {name: factor for name, factor in found.factors.items() if factor}
    if len(factors) < 2:
        remedy = "compare the column itself with a number"
        raise scope.refusal(node, "a comparison in which columns cancel out", remedy)
    lines = {name: _line(scope, node, name, factor) for name, factor in factors.items()}
    days = sum(factors[name] for name, column in scope.domain.columns.items() if name in factors and _is_day(column))
    if days != 0:
        remedy = "subtract one day from another, like ended - began <= 7"
        raise scope.refusal(node, "days that are not subtracted from one another", remedy)
    _check_size(scope, node, {name: steps for name, (_, _, steps) in lines.items()})
    scale = lcm(*(one.denominator for low, step, _ in lines.values() for one in (low, step)))
    ends = [(low, low + step * (steps - 1)) for low, step, steps in lines.values()]
    low, high = sum(min(own) for own in ends), sum(max(own) for own in ends)
    if max(sum(max(abs(a), abs(b)) for a, b in ends), abs(found.constant)) * scale >= LARGEST:
        remedy = "use coarser steps, or factors with fewer digits"
        raise scope.refusal(node, "arithmetic between columns in too many digits", remedy)
    terms = tuple(Term(name, factor * scale) for name, factor in sorted(factors.items()))
    return terms, scale, (Fraction(low), Fraction(high))


def _is_day(column: Column) -> bool:
    return isinstance(column, Dates)


def _line(scope: Scope, node: Node, name: str, factor: Fraction) -> tuple[Fraction, Fraction, int]:
    """The first number of a column's term, the step to the next, and how many there are."""
    column = scope.domain.columns[name]
    if isinstance(column, Listed) and column.kind == "integer":
        numbers = [int(value) for value in column.values]
        return factor * min(numbers), factor, max(numbers) - min(numbers) + 1
    if isinstance(column, Dates):
        low, high = column.ends()
        return factor * int(low), factor, int(high - low) + 1
    if isinstance(column, Integers | Numbers) and column.grid is not None:
        return factor * column.grid.low, factor * column.grid.step, column.grid.steps + 1
    if isinstance(column, Numbers):
        remedy = f"add a step to {name}, like step = 0.01, or declare it as integers = [lowest, highest]"
        raise scope.refusal(node, f"arithmetic with {name}, which has no step", remedy)
    remedy = f"declare {name} as integers, as a range with a step, or as dates"
    raise scope.refusal(node, f"arithmetic with {name}, which is neither a number nor a day", remedy)


def _check_size(scope: Scope, node: Node, steps: dict[str, int]) -> None:
    many = prod(steps.values())
    if many > MOST_COMBINATIONS:
        said = " × ".join(f"{count:,} of {name}" for name, count in steps.items())
        problem = f"columns with {many:,} combinations of declared values ({said}), more than {MOST_COMBINATIONS:,}"
        raise scope.refusal(node, problem, "declare fewer values, or a column that holds the comparison")
