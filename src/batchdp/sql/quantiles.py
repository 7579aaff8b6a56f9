"""Quantiles in SQL: the bins of their running totals."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, log10

from sqlglot import exp

from batchdp.derived.expressions import Crossing
from batchdp.domain import Column, Integers, Numbers
from batchdp.domain.columns import exact
from batchdp.queries import Amount, Choice, Constant, Cut, Within
from batchdp.sql.amounts import constant_of
from batchdp.sql.conditions import condition
from batchdp.sql.places import Node
from batchdp.sql.scope import Scope, unwrapped

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
