"""Items of a SELECT: what each record adds, or an expression of several such amounts where no single one will do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, log10

from sqlglot import exp

from batchdp.domain import Integers, Numbers
from batchdp.domain.columns import Grid, exact
from batchdp.queries.expressions import MOST_RATIOS, Affine, Combination, Crossing, Ratio
from batchdp.queries.query import (
    Amount,
    Choice,
    Condition,
    Constant,
    Cut,
    Missing,
    Negation,
    Scaled,
    Total,
    ValueOf,
    Within,
)
from batchdp.sql.conditions import branches, check_branches, condition, exact_number
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import ARITHMETIC, Scope, unwrapped

LONGEST_FRACTION = 4096
"""Bits."""
QUANTILES = (exp.Median, exp.WithinGroup, exp.PercentileCont, exp.ApproxQuantile, exp.Quantile)
MOST_BINS = 128
"""Of a grid that nobody declared; a column with no more values than that has a bin for each."""
_STEPS = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5), Fraction(10))
"""Widths that people read easily, times a power of ten."""
_COMBINE = "ask for both and combine the answers: that costs no privacy"

_NOTHING = Constant(0.0)
_COMPUTE: dict[type, Callable[[Fraction, Fraction], Fraction]] = dict(
    zip(ARITHMETIC, (operator.add, operator.sub, operator.mul, operator.truediv), strict=True)
)
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
            case exp.Mul() | exp.Div() if isinstance(part, exp.Mul) or is_constant(part.expression):
                inner, multiple = _scaled(scope, part)
                pending.append((inner, checked(scope, part, factor * multiple)))
            case exp.Literal() | exp.Null():
                found.rest = checked(scope, part, found.rest + factor * constant_of(scope, part))
            case exp.Div() | exp.Avg() | exp.Filter(this=exp.Avg()):
                found.ratios.append((part, factor))
            case exp.Cast() if part.to.this in _REAL:
                pending.append((part.this, factor))
            case _:
                found.terms.append((part, factor))
    return found


def aggregate(scope: Scope, node: Node, factor: Fraction) -> Amount:
    """What a record adds to a multiple of an aggregate. Factors go down to the numbers, to be rounded only once."""
    if isinstance(node, exp.Filter):
        if type(node.this) not in AGGREGATES:
            raise scope.refusal(node, "FILTER of anything but COUNT or SUM", "write COUNT(*) FILTER (WHERE …)")
        return Choice(condition(scope, node.expression.this), aggregate(scope, node.this, factor), _NOTHING)
    if type(node) in AGGREGATES:
        return AGGREGATES[type(node)](scope, node, factor)
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


def _sum_of(scope: Scope, node: Node, factor: Fraction) -> Amount:
    check_branches(scope, node)
    return summed(scope, node.this, factor)


AGGREGATES: dict[type, Callable[[Scope, Node, Fraction], Amount]] = {exp.Count: _count, exp.Sum: _sum_of}
"""What a record adds to a multiple of every linear aggregate; `syntax.PARTS` lists the parts that its node may have."""


def summed(scope: Scope, node: Node, factor: Fraction) -> Amount:
    """What a record adds to a multiple of a SUM; nothing where SQL has NULL."""
    inner, multiple = stripped(scope, node)
    factor = checked(scope, node, factor * multiple)
    if isinstance(inner, exp.Case):
        return _case(scope, inner, lambda result: summed(scope, result, factor))
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
    if isinstance(inner, exp.Case):
        return _case(scope, inner, lambda result: present(scope, result))
    return _NOTHING if isinstance(inner, exp.Null) else Constant(1.0)


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


def _case(scope: Scope, node: Node, amount_of: Callable[[Node], Amount]) -> Amount:
    default = node.args.get("default")
    amount = _NOTHING if default is None else amount_of(default)
    for holds, result in reversed(branches(scope, node)):
        amount = Choice(holds, amount_of(result), amount)
    return amount


def is_constant(node: Node) -> bool:
    """Whether a node is made of numbers alone."""
    pending = [node]
    while pending:
        part = unwrapped(pending.pop())
        if isinstance(part, ARITHMETIC):
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
    problem = f"a {_OPERATION[type(node)]} of two things that depend on the data is not linear"
    raise scope.refusal(node, problem, _COMBINE)


def constant_of(scope: Scope, node: Node) -> Fraction:
    """The exact value of arithmetic on numbers; recursive in parentheses only."""
    chain = []
    node = unwrapped(node)
    while isinstance(node, ARITHMETIC):
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
        value = checked(scope, step, _COMPUTE[type(step)](value, other))
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


# ── quantiles ──


def crossing(scope: Scope, node: Node) -> Crossing[Amount]:
    """The running totals of a column over its bins, and the share that they are to cross."""
    whole, (node, holds) = node, _filtered(scope, node)
    inner, share = _asked(scope, node)
    if not isinstance(inner, exp.Column):
        raise scope.refusal(whole, "a quantile of anything but a column", "write MEDIAN(column)")
    name, column = scope.column(inner)
    if not isinstance(column, Integers | Numbers):
        remedy = "declare it as integers = [lowest, highest] or as range"
        raise scope.refusal(whole, f"a quantile of {name}, which is no number", remedy)
    fine = column.grid is None or (column.grid.steps > MOST_BINS and isinstance(column, Numbers))
    step = None if fine or column.grid is None else column.grid.step
    edges = grid(column)

    def counted(high: Cut) -> Amount:
        found = Choice(Within(name, Cut(column.ends()[0]), high), Constant(1.0), _NOTHING)
        return found if holds is None else Choice(holds, found, _NOTHING)

    low, high = (exact(end) for end in column.ends())
    half = Fraction(0) if step is None else step / 2
    places = (*(float(edge - half) for edge in edges), float(high + half))
    if any(below >= above for below, above in pairwise(places)):
        problem = f"a quantile of {name}, whose bins are too narrow to be told apart as floats"
        raise scope.refusal(whole, problem, "declare coarser bins, or a range nearer to 0")
    return Crossing(
        share=float(share),
        edges=places,
        # As the declared edges are: a whole number where it is one.
        below=tuple(counted(Cut(int(edge) if edge.denominator == 1 else float(edge))) for edge in edges[1:]),
        total=counted(Cut(column.ends()[1], after=True)),
        step=None if step is None else float(step),
        start=float(low),
    )


def _filtered(scope: Scope, node: Node) -> tuple[Node, Condition | None]:
    """An aggregate without its FILTER, and the condition of that."""
    return (node.this, condition(scope, node.expression.this)) if isinstance(node, exp.Filter) else (node, None)


def grid(column: Integers | Numbers) -> list[Fraction]:
    """The lower edges of a column's bins: as declared, else one for each of a few values, else of an even width."""
    low, high = (exact(end) for end in column.ends())
    if column.bins is not None:
        declared = column.bins.values() if isinstance(column.bins, dict) else column.bins
        return [exact(edge) for edge in declared]
    steps = column.grid
    if steps is not None and steps.steps < MOST_BINS:
        return [steps.value(place) for place in range(steps.steps + 1)]
    if low == high:
        return [low]
    width = (high - low) / MOST_BINS
    power = Fraction(10) ** floor(log10(width))
    even = next(step * power for step in _STEPS if step * power >= width)
    if steps is not None:
        even = max(steps.step, ceil(even / steps.step) * steps.step)
    return [low + place * even for place in range(ceil((high - low) / even))]


def _asked(scope: Scope, node: Node) -> tuple[Node, Fraction]:
    """The column, and the share of its records that lies below."""
    if isinstance(node, exp.Median):
        return unwrapped(node.this), Fraction(1, 2)
    if isinstance(node, exp.ApproxQuantile | exp.Quantile):
        if node.args.get("quantile") is None:
            raise scope.refusal(node, "a quantile without its share", "write APPROX_QUANTILE(column, 0.5)")
        return unwrapped(node.this), _share(scope, node, node.args["quantile"])
    if not isinstance(node, exp.WithinGroup) or not isinstance(node.this, exp.PercentileCont):
        remedy = "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column)"
        raise scope.refusal(node, "a quantile without an order", remedy)
    ordered = node.expression.expressions
    if len(ordered) != 1:
        raise scope.refusal(node, "a quantile of several columns", "ORDER BY one column")
    share = _share(scope, node, node.this.this, descending=bool(ordered[0].args.get("desc")))
    return unwrapped(ordered[0].this), share


def _share(scope: Scope, node: Node, given: Node, *, descending: bool = False) -> Fraction:
    share = constant_of(scope, given)
    share = 1 - share if descending else share
    if not 0 < float(share) < 1:
        remedy = "give a number above 0 and below 1; the least and the largest value cannot be kept private"
        raise scope.refusal(node, f"a quantile of the share {float(share):g}", remedy)
    return share


# ── items ──


def measured(scope: Scope, node: Node) -> Amount | Combination[Amount] | Crossing[Amount]:
    """What an item asks for: a linear query, ratios added up, or a quantile."""
    inner = unwrapped(node)
    if isinstance(inner.this if isinstance(inner, exp.Filter) else inner, QUANTILES):
        return crossing(scope, inner)
    found = collected(scope, node)
    for part, _ in found.terms:
        if isinstance(part.this if isinstance(part, exp.Filter) else part, QUANTILES):
            remedy = "ask for it by itself and compute with the answer: that costs no privacy"
            raise scope.refusal(part, "a quantile in arithmetic is not supported", remedy)
    if not found.terms and not found.ratios:
        raise scope.refusal(node, "no count or sum is asked for", "write COUNT(*) or SUM(…)")
    if not found.ratios and found.rest == 0:
        return _together(scope, found.terms)
    constant = found.rest
    ratios: list[Ratio[Amount]] = []
    for part, factor in found.ratios:
        one, more = _ratio(scope, part, factor)
        constant = checked(scope, part, constant + more)
        same = next((i for i, other in enumerate(ratios) if other.denominator == one.denominator), None)
        if same is None:
            ratios.append(one)
        else:
            above = ratios[same].numerator
            added = Affine(above.constant + one.numerator.constant, above.terms + one.numerator.terms)
            ratios[same] = Ratio(added, one.denominator)
    if len(ratios) > MOST_RATIOS:
        problem = f"more than {MOST_RATIOS} ratios with denominators of their own, added up"
        raise scope.refusal(node, problem, _COMBINE)
    plain = ((1.0, _together(scope, found.terms)),) if found.terms else ()
    return Combination(Affine(number_of(scope, node, constant), plain), tuple(ratios))


def _ratio(scope: Scope, node: Node, factor: Fraction) -> tuple[Ratio[Amount], Fraction]:
    """A multiple of an average or of a quotient, and what is added to it."""
    node, holds = _filtered(scope, node)
    if not isinstance(node, exp.Avg):
        below = unwrapped(node.expression)
        if isinstance(below, exp.Nullif):  # a division by 0 is not determined anyway
            if not (isinstance(below.expression, exp.Literal) and below.expression.this == "0"):
                raise scope.refusal(below, "NULLIF of anything but 0", "write NULLIF(…, 0), or leave it out")
            below = below.this
        denominator = _affine(scope, below, Fraction(1))
        if not denominator.terms:
            raise scope.refusal(node, "a division by a constant", "write the number itself")
        return Ratio(_affine(scope, node.this, factor), denominator), Fraction(0)
    check_branches(scope, node)
    inner, multiple = stripped(scope, node.this)
    factor = checked(scope, node, factor * multiple)
    above, count, added = _averaged(scope, inner)
    if holds is not None:
        above, count = Choice(holds, above, _NOTHING), Choice(holds, count, _NOTHING)
    numerator = Affine(0.0, ((number_of(scope, node, factor), above),))
    return Ratio(numerator, Affine(0.0, ((1.0, count),))), factor * added


def _averaged(scope: Scope, node: Node) -> tuple[Amount, Amount, Fraction]:
    """What a record adds to the numerator and to the denominator of an average, and what is added to the quotient.

    A column is summed from the middle of its range: N − θ D is then as small as can be whatever the average θ is, and
    so is what one record can change.
    """
    if not isinstance(node, exp.Column):
        return summed(scope, node, Fraction(1)), present(scope, node), Fraction(0)
    name, grid = summable(scope, node, "an average")
    middle = (grid.low + grid.high) / 2
    count = ValueOf(name, counted=True)
    if middle == 0:
        return ValueOf(name), count, Fraction(0)
    middle = Fraction(float(middle))
    return Total((ValueOf(name), Scaled(-float(middle), count))), count, middle


def _affine(scope: Scope, node: Node, factor: Fraction) -> Affine[Amount]:
    """One side of a quotient: a single aggregate and its factor, so that others may share it, or a sum of several."""
    found = collected(scope, node)
    if found.ratios:
        raise scope.refusal(found.ratios[0][0], "a ratio inside a ratio is not supported", _COMBINE)
    constant = number_of(scope, node, checked(scope, node, factor * found.rest))
    if not found.terms:
        return Affine(constant)
    if len(found.terms) == 1:
        (part, own), *_ = found.terms
        amount, factor = aggregate(scope, part, Fraction(1)), checked(scope, node, factor * own)
    else:
        amount = _together(scope, found.terms)
    return Affine(constant, ((number_of(scope, node, factor), amount),))


def _together(scope: Scope, terms: list[tuple[Node, Fraction]]) -> Amount:
    amounts = [aggregate(scope, part, factor) for part, factor in terms]
    return amounts[0] if len(amounts) == 1 else Total(tuple(amounts))
