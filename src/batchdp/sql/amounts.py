"""Items of a SELECT: what each record adds, or an expression of several such amounts where no single one will do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sqlglot import exp

from batchdp.domain import Integers, Listed, Numbers
from batchdp.domain.columns import Grid, fold
from batchdp.queries.expressions import MOST_RATIOS, Affine, Combination, Crossing, Ratio
from batchdp.queries.query import Amount, Choice, Constant, Missing, Negation, Over, Person, Scaled, Total, ValueOf
from batchdp.sql.conditions import branches, check_branches, condition
from batchdp.sql.constants import checked, constant_of, is_constant, number_of
from batchdp.sql.functions import function, is_function, kind_of, refused_at
from batchdp.sql.pieces import FIRST, LAST, Function, Line
from batchdp.sql.quantiles import QUANTILES, crossing, filtered
from batchdp.sql.refusals import Node
from batchdp.sql.regions import ends_of, where
from batchdp.sql.relations import computed, is_related
from batchdp.sql.sources import PersonCount
from batchdp.sql.syntax import FUNCTIONS, Scope, unwrapped

_COMBINE = "ask for both and combine the answers: that costs no privacy"

_NOTHING = Constant(0.0)
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
        if isinstance(node.this, PersonCount):
            return Person(condition(scope, node.expression.this))
        return Choice(condition(scope, node.expression.this), aggregate(scope, node.this, factor), _NOTHING)
    if type(node) in AGGREGATES:
        return AGGREGATES[type(node)](scope, node, factor)
    if isinstance(node, exp.Window):
        remedy = "write COUNT(*) / SUM(COUNT(*)) OVER () by itself, or with PARTITION BY"
        raise scope.refusal(node, "a window function in a sum", remedy)
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
    if isinstance(node, FUNCTIONS) and any(node.find_all(exp.AggFunc)):
        raise scope.refusal(node, "a function of an answer is not supported", _COMBINE)
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


AGGREGATES: dict[type, Callable[[Scope, Node, Fraction], Amount]] = {
    exp.Count: _count,
    exp.Sum: _sum_of,
    PersonCount: lambda scope, node, factor: Person(),
}
"""What a record adds to a multiple of every linear aggregate; `syntax.PARTS` lists the parts that its node may have."""


def summed(scope: Scope, node: Node, factor: Fraction) -> Amount:
    """What a record adds to a multiple of a SUM; nothing where SQL has NULL."""
    inner, multiple = stripped(scope, node)
    factor = checked(scope, node, factor * multiple)
    if isinstance(inner, exp.Case):
        return _case(scope, inner, lambda result: summed(scope, result, factor))
    if isinstance(inner, (exp.Add, exp.Sub)) and is_related(inner):
        amount, constant, _ = computed(scope, inner)
        parts = [Scaled(number_of(scope, inner, factor), amount)]
        if constant:
            parts.append(Scaled(number_of(scope, inner, factor * constant), replace(amount, counted=True)))
        return parts[0] if len(parts) == 1 else Total(tuple(parts))
    if _is_computed(inner) or _is_listed(scope, inner):
        return amount_of(scope, inner, number_function(scope, inner), factor)
    if isinstance(inner, exp.Column):
        name, _ = summable(scope, inner, "a sum")
        return ValueOf(name) if factor == 1 else Scaled(number_of(scope, inner, factor), ValueOf(name))
    if isinstance(inner, exp.Null):
        return _NOTHING
    if is_constant(inner):
        return Constant(number_of(scope, inner, factor * constant_of(scope, inner)))
    raise scope.refusal(inner, "not a number for every record", "write SUM(CASE WHEN … THEN number ELSE number END)")


def present(scope: Scope, node: Node) -> Amount:
    """1 for every record for which `summed` has a number, nothing where SQL has NULL."""
    inner, _ = stripped(scope, node)
    if isinstance(inner, exp.Column) and not _is_listed(scope, inner):
        return ValueOf(summable(scope, inner, "a sum")[0], counted=True)
    if isinstance(inner, exp.Case):
        return _case(scope, inner, lambda result: present(scope, result))
    if isinstance(inner, (exp.Add, exp.Sub)) and is_related(inner):
        return replace(computed(scope, inner)[0], counted=True)
    if _is_computed(inner) or isinstance(inner, exp.Column):
        return counted_of(scope, inner, number_function(scope, inner))
    return _NOTHING if isinstance(inner, exp.Null) else Constant(1.0)


def stripped(scope: Scope, node: Node) -> tuple[Node, Fraction]:
    """What is summed without its constant factors, and these."""
    inner, factor = unwrapped(node), Fraction(1)
    while isinstance(inner, (exp.Neg, exp.Mul, exp.Div)) and not is_constant(inner) and not _is_product(inner):
        inner, multiple = (inner.this, Fraction(-1)) if isinstance(inner, exp.Neg) else _scaled(scope, inner)
        inner, factor = unwrapped(inner), checked(scope, inner, factor * multiple)
    return inner, factor


def _is_product(node: Node) -> bool:
    """Whether both sides depend on a column."""
    return isinstance(node, (exp.Mul, exp.Div)) and not (
        is_constant(node.expression) or (isinstance(node, exp.Mul) and is_constant(node.this))
    )


def _is_computed(node: Node) -> bool:
    """Whether a node is a function of columns, and not a constant."""
    return is_function(node) and any(node.find_all(exp.Column))


def _is_listed(scope: Scope, node: Node) -> bool:
    """Whether a node is a column that lists whole numbers, which are summed value by value."""
    column = scope.column(node)[1] if isinstance(node, exp.Column) else None
    return isinstance(column, Listed) and column.kind == "integer"


def number_function(scope: Scope, node: Node) -> Function:
    """A function of one column whose results are numbers, or NULL."""
    own = function(scope, node)
    if kind_of(own) not in (Fraction, None):
        raise scope.refusal(node, "not a number for every record", "write SUM(CASE WHEN … THEN number ELSE number END)")
    return own


def amount_of(scope: Scope, node: Node, own: Function, factor: Fraction, less: Fraction = Fraction(0)) -> Amount:
    """What a record adds to a multiple of the sum of a function, from which a number is taken each time."""

    def one(result: Fraction | Line) -> Amount:
        if not isinstance(result, Line):
            return Constant(number_of(scope, node, checked(scope, node, factor * (result - less))))
        at = next(one for one in node.find_all(exp.Column) if scope.column(one)[0] == own.column)
        name, _ = summable(scope, at, "a sum")
        slope, start = (checked(scope, node, factor * part) for part in (result.slope, result.start - less))
        along = ValueOf(name) if slope == 1 else Scaled(number_of(scope, node, slope), ValueOf(name))
        return Total((along, Scaled(number_of(scope, node, start), ValueOf(name, counted=True)))) if start else along

    return _pieced(scope, node, own, one)


def counted_of(scope: Scope, node: Node, own: Function) -> Amount:
    """1 for every record for which a function has a number."""
    name = own.column
    return _pieced(
        scope, node, own, lambda result: ValueOf(name, counted=True) if isinstance(result, Line) else Constant(1.0)
    )


def _pieced(scope: Scope, node: Node, own: Function, one: Callable[[Fraction | Line], Amount]) -> Amount:
    """An amount for every result, where the function has it."""
    found: dict[Any, list[Any]] = {}
    for region, result in own.pieces:
        if result is not None:
            found.setdefault(result, []).append(region)
    if list(found.values()) == [[(FIRST, LAST)]] and isinstance(next(iter(found)), Line):
        amounts = [one(next(iter(found)))]
    else:
        with refused_at(scope, node):
            amounts = [Choice(where(own, regions), one(result), _NOTHING) for result, regions in found.items()]
    if isinstance(own.missing, Fraction):
        amounts.append(Choice(Missing(own.column), one(own.missing), _NOTHING))
    return amounts[0] if len(amounts) == 1 else Total(tuple(amounts))


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


# ── items ──


def measured(scope: Scope, node: Node) -> Amount | Combination[Any] | Crossing[Amount]:
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
    if len(found.terms) == 1 and isinstance(found.terms[0][0], exp.Window) and not found.ratios:
        return Combination(_affine(scope, node, Fraction(1)))
    alone = len(found.terms) == 1 and found.terms[0][1] == 1
    if not found.ratios and found.rest == 0 and (alone or not any(is_person(part) for part, _ in found.terms)):
        return _together(scope, found.terms)
    rest = found.rest
    ratios: list[Ratio[Any]] = []
    for part, factor in found.ratios:
        one, more = _ratio(scope, part, factor)
        rest = checked(scope, part, rest + more)
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
    plain = _apart(scope, found.terms)
    return Combination(Affine(number_of(scope, node, rest), plain), tuple(ratios))


def _ratio(scope: Scope, node: Node, factor: Fraction) -> tuple[Ratio[Any], Fraction]:
    """A multiple of an average or of a quotient, and what is added to it."""
    node, holds = filtered(scope, node)
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
    if isinstance(node, (exp.Add, exp.Sub)) and is_related(node):
        amount, constant, middle = computed(scope, node)
        counted, middle = replace(amount, counted=True), Fraction(float(middle))
        return Total((amount, Scaled(-float(middle), counted))), counted, middle + constant
    if _is_computed(node) or _is_listed(scope, node):
        own = number_function(scope, node)
        middle = Fraction(float(sum(ends_of(own), Fraction(0)) / 2)) if kind_of(own) is not None else Fraction(0)
        return amount_of(scope, node, own, Fraction(1), middle), counted_of(scope, node, own), middle
    if not isinstance(node, exp.Column):
        return summed(scope, node, Fraction(1)), present(scope, node), Fraction(0)
    name, grid = summable(scope, node, "an average")
    middle = (grid.low + grid.high) / 2
    count = ValueOf(name, counted=True)
    if middle == 0:
        return ValueOf(name), count, Fraction(0)
    middle = Fraction(float(middle))
    return Total((ValueOf(name), Scaled(-float(middle), count))), count, middle


def _affine(scope: Scope, node: Node, factor: Fraction) -> Affine[Any]:
    """One side of a quotient: a single aggregate and its factor, so that others may share it, or a sum of several."""
    found = collected(scope, node)
    if found.ratios:
        raise scope.refusal(found.ratios[0][0], "a ratio inside a ratio is not supported", _COMBINE)
    rest = number_of(scope, node, checked(scope, node, factor * found.rest))
    if not found.terms:
        return Affine(rest)
    if len(found.terms) == 1:
        (part, own), *_ = found.terms
        factor = checked(scope, node, factor * own)
        amount = over(scope, part) if isinstance(part, exp.Window) else aggregate(scope, part, Fraction(1))
    elif any(is_person(part) for part, _ in found.terms):
        return Affine(rest, _apart(scope, [(part, checked(scope, node, factor * own)) for part, own in found.terms]))
    else:
        amount = _together(scope, found.terms)
    return Affine(rest, ((number_of(scope, node, factor), amount),))


def over(scope: Scope, node: Node) -> Over:
    """A sum of an aggregate over the rows of a statement, or over those that share some keys."""
    inner, by = node.this, [unwrapped(one) for one in node.args.get("partition_by") or ()]
    if not isinstance(inner, exp.Sum) or not isinstance(unwrapped(inner.this), exp.Count | exp.Sum | exp.Filter):
        remedy = "write SUM(COUNT(*)) OVER (), which adds up the counts of all groups"
        raise scope.refusal(node, "a window function of anything but SUM of a count or sum", remedy)
    keys = {key.name: key.node for key in scope.keys.keys}
    if len(scope.keys.sets) != 1:
        raise scope.refusal(node, "a window function beside totals", "ask for the totals in a query of their own")
    named: set[str] = set()
    for one in by:
        by_name = fold(one.name) if isinstance(one, exp.Column) else None
        found = [name for name, own in keys.items() if own == one or fold(name) == by_name]
        if not found:
            raise scope.refusal(one, "PARTITION BY something that is not grouped by", "add it to GROUP BY")
        named.add(found[0])
    if is_person(unwrapped(inner.this)):
        remedy = "ask for the persons of all groups in a query of their own"
        raise scope.refusal(node, "persons of groups added up, who may be in several", remedy)
    return Over(aggregate(scope, unwrapped(inner.this), Fraction(1)), frozenset(named))


def is_person(node: Node) -> bool:
    """Whether an aggregate counts persons."""
    return isinstance(node.this if isinstance(node, exp.Filter) else node, PersonCount)


def _apart(scope: Scope, terms: list[tuple[Node, Fraction]]) -> tuple[tuple[float, Amount], ...]:
    """Terms with persons by themselves: they are rows of other relations than all the rest."""
    rest = [(part, factor) for part, factor in terms if not is_person(part)]
    found = [(1.0, _together(scope, rest))] if rest else []
    for part, factor in terms:
        if is_person(part):
            found.append((number_of(scope, part, factor), aggregate(scope, part, Fraction(1))))
    return tuple(found)


def _together(scope: Scope, terms: list[tuple[Node, Fraction]]) -> Amount:
    amounts = [aggregate(scope, part, factor) for part, factor in terms]
    return amounts[0] if len(amounts) == 1 else Total(tuple(amounts))
