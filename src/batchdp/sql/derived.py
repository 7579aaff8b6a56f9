"""Items of a SELECT: what each record adds, or an expression of several such amounts where no single one will do."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from batchdp.derived.expressions import MOST_RATIOS, Affine, Combination, Crossing, Ratio
from batchdp.queries import Amount, Choice, Constant, Scaled, Total, ValueOf
from batchdp.sql.amounts import (
    aggregate,
    checked,
    collected,
    number_of,
    present,
    stripped,
    summable,
    summed,
)
from batchdp.sql.conditions import check_branches, condition
from batchdp.sql.places import Node
from batchdp.sql.quantiles import QUANTILES, crossing
from batchdp.sql.scope import Scope, unwrapped

_NOTHING = Constant(0.0)
_COMBINE = "ask for both and combine the answers: that costs no privacy"


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
            ratios[same] = Ratio(_sum(ratios[same].numerator, one.numerator), one.denominator)
    if len(ratios) > MOST_RATIOS:
        problem = f"more than {MOST_RATIOS} ratios with denominators of their own, added up"
        raise scope.refusal(node, problem, _COMBINE)
    plain = ((1.0, _together(scope, found.terms)),) if found.terms else ()
    return Combination(Affine(number_of(scope, node, constant), plain), tuple(ratios))


def _ratio(scope: Scope, node: Node, factor: Fraction) -> tuple[Ratio[Amount], Fraction]:
    """A multiple of an average or of a quotient, and what is added to it."""
    holds = None
    if isinstance(node, exp.Filter):
        holds, node = condition(scope, node.expression.this), node.this
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
        (part, own), multiple = found.terms[0], factor
        amount = aggregate(scope, part, Fraction(1))
        multiple = checked(scope, node, multiple * own)
    else:
        amount, multiple = _together(scope, found.terms), factor
    return Affine(constant, ((number_of(scope, node, multiple), amount),))


def _together(scope: Scope, terms: list[tuple[Node, Fraction]]) -> Amount:
    amounts = [aggregate(scope, part, factor) for part, factor in terms]
    return amounts[0] if len(amounts) == 1 else Total(tuple(amounts))


def _sum(one: Affine[Amount], other: Affine[Amount]) -> Affine[Amount]:
    return Affine(one.constant + other.constant, one.terms + other.terms)
