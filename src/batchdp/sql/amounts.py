"""Aggregates in SQL as the amount that every record adds, and sums of multiples of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from batchdp.domain import Integers, Numbers
from batchdp.domain.columns import Grid
from batchdp.queries.query import Amount, Choice, Constant, Missing, Negation, Scaled, ValueOf
from batchdp.sql.conditions import branches, check_branches, condition, exact_number
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import Scope, unwrapped

LONGEST_FRACTION = 4096
"""Bits."""

_NOTHING = Constant(0.0)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_OPERATION = {exp.Mul: "product", exp.Div: "ratio"}
_REAL = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
"""Types that every answer has: a CAST to them changes nothing."""


@dataclass
class Collected:
    """A sum of multiples: of aggregates, of ratios, and of 1."""

    terms: list[tuple[Node, Fraction]] = field(default_factory=list)
    ratios: list[tuple[Node, Fraction]] = field(default_factory=list)
    rest: Fraction = Fraction(0)


def collected(scope: Scope, node: Node) -> Collected:
    """An item as a sum of multiples. From the top down, so that a chain of thousands needs no recursion."""
    found = Collected()
    pending: list[tuple[Node, Fraction]] = [(node, Fraction(1))]
    while pending:
        part, factor = pending.pop()
        part = unwrapped(part)
        match part:
            case exp.Neg():
                pending.append((part.this, -factor))
            case exp.Add():
                pending += [(part.expression, factor), (part.this, factor)]
            case exp.Sub():
                pending += [(part.expression, -factor), (part.this, factor)]
            case exp.Div() if not is_constant(part.expression):
                found.ratios.append((part, factor))
            case exp.Mul() | exp.Div():
                inner, multiple = _scaled(scope, part)
                pending.append((inner, checked(scope, part, factor * multiple)))
            case exp.Literal() | exp.Null():
                found.rest = checked(scope, part, found.rest + factor * constant_of(scope, part))
            case exp.Avg():
                found.ratios.append((part, factor))
            case exp.Filter() if isinstance(part.this, exp.Avg):
                found.ratios.append((part, factor))
            case exp.Cast() if part.to.this in _REAL:
                pending.append((part.this, factor))
            case _:
                found.terms.append((part, factor))
    return found


def aggregate(scope: Scope, node: Node, factor: Fraction) -> Amount:
    """What a record adds to a multiple of an aggregate. Factors go down to the numbers, to be rounded only once."""
    if isinstance(node, exp.Filter):
        if not isinstance(node.this, (exp.Count, exp.Sum)):
            raise scope.refusal(node, "FILTER of anything but COUNT or SUM", "write COUNT(*) FILTER (WHERE …)")
        return Choice(condition(scope, node.expression.this), aggregate(scope, node.this, factor), _NOTHING)
    if isinstance(node, exp.Count):
        return _count(scope, node, factor)
    if isinstance(node, exp.Sum):
        check_branches(scope, node)
        return summed(scope, node.this, factor)
    if isinstance(node, exp.Column):
        name, _ = scope.column(node)
        raise scope.refusal(node, "a column that is neither counted nor grouped by", f"add GROUP BY {name}")
    if isinstance(node, exp.Star):
        raise scope.refusal(node, "rows cannot be shown, only counted", "write COUNT(*)")
    if isinstance(node, exp.Case):
        remedy = "write SUM(CASE WHEN … THEN … ELSE … END), or name it with AS and GROUP BY that name"
        raise scope.refusal(node, "CASE outside SUM", remedy)
    if isinstance(node, exp.Cast):
        raise scope.refusal(node, "a CAST of an answer", "leave it out and convert the answer")
    raise scope.refusal(node, "neither a count nor a sum", "write COUNT(*), COUNT(*) FILTER (WHERE …) or SUM(…)")


def _count(scope: Scope, node: Node, factor: Fraction) -> Amount:
    inner = unwrapped(node.this)
    one = Constant(number_of(scope, node, factor))
    if isinstance(inner, (exp.Star, exp.Literal)):
        return one
    if isinstance(inner, exp.Column):
        return Choice(Negation(Missing(scope.column(inner)[0])), one, _NOTHING)
    raise scope.refusal(node, "COUNT of anything but * or a column", "write COUNT(*) FILTER (WHERE …)")


def summed(scope: Scope, node: Node, factor: Fraction) -> Amount:
    """What a record adds to a multiple of a SUM; nothing where SQL has NULL."""
    inner, multiple = stripped(scope, node)
    factor = checked(scope, node, factor * multiple)
    if isinstance(inner, exp.Case):
        return _case(scope, inner, factor)
    if isinstance(inner, exp.Column):
        name, _ = summable(scope, inner, "a sum")
        return ValueOf(name) if factor == 1 else Scaled(number_of(scope, inner, factor), ValueOf(name))
    if isinstance(inner, exp.Null):
        return _NOTHING
    if is_constant(inner):
        return Constant(number_of(scope, inner, factor * constant_of(scope, inner)))
    if isinstance(inner, (exp.Add, exp.Sub)):
        raise scope.refusal(inner, "a sum of several things inside SUM is not supported", "write SUM(…) + SUM(…)")
    raise scope.refusal(inner, "not a number for every record", "write SUM(CASE WHEN … THEN number ELSE number END)")


def present(scope: Scope, node: Node) -> Amount:
    """1 for every record for which `summed` has a number, nothing where SQL has NULL."""
    inner, _ = stripped(scope, node)
    if isinstance(inner, exp.Column):
        return ValueOf(summable(scope, inner, "a sum")[0], counted=True)
    if not isinstance(inner, exp.Case):
        return _NOTHING if isinstance(inner, exp.Null) else Constant(1.0)
    default = inner.args.get("default")
    amount = _NOTHING if default is None else present(scope, default)
    for holds, result in reversed(branches(scope, inner)):
        amount = Choice(holds, present(scope, result), amount)
    return amount


def stripped(scope: Scope, node: Node) -> tuple[Node, Fraction]:
    """What is summed without its constant factors, and these."""
    inner, factor = unwrapped(node), Fraction(1)
    while isinstance(inner, (exp.Neg, exp.Mul, exp.Div)) and not is_constant(inner):
        inner, multiple = (inner.this, Fraction(-1)) if isinstance(inner, exp.Neg) else _scaled(scope, inner)
        inner, factor = unwrapped(inner), checked(scope, inner, factor * multiple)
    return inner, factor


def summable(scope: Scope, node: Node, what: str) -> tuple[str, Grid]:
    """A column's name, and the numbers that it can have; refused where it has none that can be added."""
    name, column = scope.column(node)
    if isinstance(column, (Integers, Numbers)) and column.grid is not None:
        return name, column.grid
    remedy = f"declare {name} as integers = [lowest, highest], or write SUM(CASE WHEN … THEN number END)"
    if isinstance(column, Numbers):
        remedy = f"add a step to {name}, like step = 0.01, or declare it as integers = [lowest, highest]"
    raise scope.refusal(node, f"{what} of {name}, which is not declared as integers or with a step", remedy)


def _case(scope: Scope, node: Node, factor: Fraction) -> Amount:
    default = node.args.get("default")
    amount = _NOTHING if default is None else summed(scope, default, factor)
    for holds, result in reversed(branches(scope, node)):
        amount = Choice(holds, summed(scope, result, factor), amount)
    return amount


def is_constant(node: Node) -> bool:
    """Whether a node is made of numbers alone."""
    pending = [node]
    while pending:
        part = unwrapped(pending.pop())
        if isinstance(part, _ARITHMETIC):
            pending += [part.this, part.expression]
        elif isinstance(part, exp.Neg):
            pending.append(part.this)
        elif not isinstance(part, exp.Literal):
            return False
    return True


def _scaled(scope: Scope, node: Node) -> tuple[Node, Fraction]:
    """A product or quotient as the part that is not constant, and its multiple."""
    if is_constant(node.expression):
        number = constant_of(scope, node.expression)
        if isinstance(node, exp.Div):
            if number == 0:
                raise scope.refusal(node, "a division by zero", "divide by another number")
            number = 1 / number
        return node.this, number
    if isinstance(node, exp.Mul) and is_constant(node.this):
        return node.expression, constant_of(scope, node.this)
    remedy = "ask for both and combine the answers: that costs no privacy"
    raise scope.refusal(node, f"a {_OPERATION[type(node)]} of two things that depend on the data is not linear", remedy)


def constant_of(scope: Scope, node: Node) -> Fraction:
    """The exact value of arithmetic on numbers; recursive in parentheses only."""
    chain = []
    node = unwrapped(node)
    while isinstance(node, _ARITHMETIC):
        chain.append(node)
        node = unwrapped(node.this)
    if isinstance(node, exp.Neg):
        value = -constant_of(scope, node.this)
    elif isinstance(node, exp.Literal) and not node.is_string:
        value = exact_number(scope, node)
    else:
        raise scope.refusal(node, "not a number", "write numbers like 1000, 0.5 or 1e3")
    for step in reversed(chain):
        other = constant_of(scope, step.expression)
        if isinstance(step, exp.Div) and other == 0:
            raise scope.refusal(step, "a division by zero", "divide by another number")
        match step:
            case exp.Add():
                value += other
            case exp.Sub():
                value -= other
            case exp.Mul():
                value *= other
            case _:
                value /= other
        value = checked(scope, step, value)
    return value


def checked(scope: Scope, node: Node, number: Fraction) -> Fraction:
    """Refuse numbers whose exact fraction takes too long to compute with."""
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > LONGEST_FRACTION:
        raise scope.refusal(node, "arithmetic with numbers that are too long", "write the result as one number")
    return number


def number_of(scope: Scope, node: Node, number: Fraction) -> float:
    """A factor as a float; refused where it is beyond what can be computed with."""
    size = abs(number)
    if number != 0 and not Fraction(1, 10**100) < size < 10**100:
        raise scope.refusal(node, "a factor that is too large or too small", "use factors from 1e-100 to 1e100")
    return float(number)
