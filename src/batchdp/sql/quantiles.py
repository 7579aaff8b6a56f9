"""Quantiles: the running totals of a column over its bins, and the share that they are to cross."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

from sqlglot import exp

from batchdp.domain import Dates, Integers, Listed, Numbers
from batchdp.domain.columns import Grid, day_cut, exact
from batchdp.queries.expressions import Crossing
from batchdp.queries.query import Amount, Choice, Condition, Constant, Cut, Within
from batchdp.sql.conditions import condition
from batchdp.sql.constants import constant_of
from batchdp.sql.functions import function, kind_of
from batchdp.sql.pieces import Function, Line
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import Scope, unwrapped

QUANTILES = (exp.Median, exp.WithinGroup, exp.PercentileCont, exp.ApproxQuantile, exp.Quantile)
MOST_VALUES = 512
"""That a column may have, over all groups, to have a bin for each value, whatever bins it declares: files grow with
the square, and a release of 1,024 takes 26 MB under Laplace noise and 42 MB under Gaussian noise."""
FEW_VALUES = 128
"""That have a bin for each, however many groups there are."""
MOST_BINS = 128
"""Of a grid that nobody declared."""
_STEPS = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5), Fraction(10))
"""Widths that people read easily, times a power of ten."""

_NOTHING = Constant(0.0)


def crossing(scope: Scope, node: Node) -> Crossing[Amount]:
    """The running totals of a column over its bins, and the share that they are to cross."""
    whole, (node, holds) = node, filtered(scope, node)
    inner, share = _asked(scope, node)
    name, column, said = _rising(scope, whole, inner)
    low, high = (exact(end) for end in column.ends())
    steps = Grid(low, Fraction(1), int(high - low)) if isinstance(column, Dates) else column.grid
    groups = 1 if scope.keys is None else scope.keys.size
    each = steps is not None and steps.steps < max(FEW_VALUES, MOST_VALUES // groups)
    step = steps.step if steps is not None and (each or not isinstance(column, Numbers)) else None
    edges = grid(column, steps, each=each)

    def counted(high: Cut) -> Amount:
        found = Choice(Within(name, Cut(column.ends()[0]), high), Constant(1.0), _NOTHING)
        return found if holds is None else Choice(holds, found, _NOTHING)

    half = Fraction(0) if step is None else step / 2
    places = tuple(float(said.at(place)) for place in (*(edge - half for edge in edges), high + half))
    if any(below >= above for below, above in pairwise(places)):
        problem = f"a quantile of {name}, whose bins are too narrow to be told apart as floats"
        raise scope.refusal(whole, problem, "declare coarser bins, or a range nearer to 0")
    last = Cut(column.ends()[1], after=True)
    return Crossing(
        share=float(share),
        edges=places,
        # As the declared edges are: a whole number where it is one.
        below=tuple(counted(Cut(int(edge) if edge.denominator == 1 else float(edge))) for edge in edges[1:]),
        total=counted(day_cut(last) or last if isinstance(column, Dates) else last),
        step=None if step is None else float(said.slope * step),
        start=float(said.at(low)),
    )


def _rising(scope: Scope, whole: Node, inner: Node) -> tuple[str, Integers | Numbers | Dates, Line]:
    """The column that a quantile is of, and what is made of its values, or days: a line that rises with them."""
    remedy = "write MEDIAN(column), or of a column times a number above 0, plus or minus another"
    found = dict(scope.column(one) for one in inner.find_all(exp.Column))
    if len(found) != 1:
        raise scope.refusal(whole, "a quantile of anything but a column", remedy)
    ((name, column),) = found.items()
    if isinstance(column, Listed):
        raise scope.refusal(
            whole,
            f"a quantile of {name}, which is not a number",
            "declare it as integers = [lowest, highest] or as range",
        )
    own = function(scope, inner)
    if kind_of(own) is date and isinstance(column, Dates):
        days = f"write MEDIAN({name} - DATE '{column.dates[0]}'), days since then"
        raise scope.refusal(whole, f"a quantile of {name}, which is a day and no number", days)
    said = _line_of(own)
    if said is None or not said.slope > 0 or own.missing is not None:
        raise scope.refusal(whole, f"a quantile of what does not rise evenly with {name}", remedy)
    return name, column, said


def _line_of(own: Function) -> Line | None:
    """A function of numbers, or of days, as one line; None where it is none."""
    results = list(own.results)
    if len(results) == 1 and isinstance(results[0], Line):
        return results[0]
    if not isinstance(own.declared, Dates) or not all(isinstance(result, Fraction) for result in results):
        return None
    values: list[Any] = results
    slope = values[1] - values[0] if len(values) > 1 else Fraction(1)
    first = int(own.declared.ends()[0])
    line = Line(slope, values[0] - slope * first)
    return line if values == [line.at(Fraction(day)) for day in range(first, first + len(values))] else None


def filtered(scope: Scope, node: Node) -> tuple[Node, Condition | None]:
    """An aggregate without its FILTER, and the condition of that."""
    return (node.this, condition(scope, node.expression.this)) if isinstance(node, exp.Filter) else (node, None)


def grid(column: Integers | Numbers | Dates, steps: Grid | None, *, each: bool) -> list[Fraction]:
    """The lower edges of a column's bins: one for each value, else as declared, else of an even width."""
    low, high = (exact(end) for end in column.ends())
    if steps is not None and each:
        return [steps.value(place) for place in range(steps.steps + 1)]
    if column.bins is not None:
        declared = column.bins.values() if isinstance(column.bins, dict) else column.bins
        return [exact(edge.toordinal() if isinstance(edge, date) else edge) for edge in declared]
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
