"""Items of a SELECT: what each record adds, or an expression of several such amounts where no single one will do."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, log10

from sqlglot import exp

from batchdp.domain import Column, Integers, Numbers
from batchdp.domain.columns import exact
from batchdp.queries.expressions import MOST_RATIOS, Affine, Combination, Crossing, Ratio
from batchdp.queries.query import Amount, Choice, Constant, Cut, Scaled, Total, ValueOf, Within
from batchdp.sql.amounts import (
    aggregate,
    checked,
    collected,
    constant_of,
    number_of,
    present,
    stripped,
    summable,
    summed,
)
from batchdp.sql.conditions import check_branches, condition
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import Scope, unwrapped

QUANTILES = (exp.Median, exp.WithinGroup, exp.PercentileCont, exp.ApproxQuantile, exp.Quantile)
MOST_BINS = 128
"""Of a grid that nobody declared; a column with no more values than that has a bin for each."""
_STEPS = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5), Fraction(10))
"""Widths that people read easily, times a power of ten."""


def crossing(scope: Scope, node: Node) -> Crossing[Amount]:
    """The running totals of a column over its bins, and the share that they are to cross."""
    holds = None
    whole = node
    if isinstance(node, exp.Filter):
        holds, node = condition(scope, node.expression.this), node.this
    inner, share = _asked(scope, node)
    if not isinstance(inner, exp.Column):
        raise scope.refusal(whole, "a quantile of anything but a column", "write MEDIAN(column)")
    name, column = scope.column(inner)
    if not isinstance(column, Integers | Numbers):
        raise scope.refusal(
            whole, f"a quantile of {name}, which is no number", "declare it as integers = [lowest, highest] or as range"
        )
    step = None if column.grid is None or (column.grid.steps > MOST_BINS and _is_real(column)) else column.grid.step
    edges = grid(column)
    one = Constant(1.0)

    def counted(high: Cut) -> Amount:
        found = Choice(Within(name, Cut(column.ends()[0]), high), one, Constant(0.0))
        return found if holds is None else Choice(holds, found, Constant(0.0))

    low, high = (exact(end) for end in column.ends())
    half = Fraction(0) if step is None else step / 2
    places = (*(float(edge - half) for edge in edges), float(high + half))
    if any(below >= above for below, above in pairwise(places)):
        remedy = "declare coarser bins, or a range nearer to 0"
        raise scope.refusal(
            whole, f"a quantile of {name}, whose bins are too narrow to be told apart as floats", remedy
        )
    return Crossing(
        share=float(share),
        edges=places,
        below=tuple(counted(Cut(_plain(edge))) for edge in edges[1:]),
        total=counted(Cut(column.ends()[1], after=True)),
        step=None if step is None else float(step),
        start=float(low),
    )


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
        raise scope.refusal(
            node, "a quantile without an order", "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column)"
        )
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


def _is_real(column: Column) -> bool:
    return isinstance(column, Numbers)


def _plain(edge: Fraction) -> int | float:
    """As the declared edges are: a whole number where it is one."""
    return int(edge) if edge.denominator == 1 else float(edge)


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
