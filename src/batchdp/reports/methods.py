"""How much noise other methods would have needed: a bar each, never without its residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from batchdp.markup import escaped, isolated
from batchdp.reports.figures import percent, significant


class Compared(Protocol):
    """A method's figures; the rows of `batchdp.studies.comparison` are such."""

    @property
    def name(self) -> str:
        """Of the method."""

    @property
    def expected_squared_error(self) -> float:
        """The total over all queries at ε = 1."""

    @property
    def residual(self) -> float:
        """‖W − B L‖_F / ‖W‖_F: how far the method is from answering what was asked."""


def methods_section(methods: Sequence[Compared], lower_bound: float | None) -> str:
    """A bar chart, the best first; nothing if there is nothing to compare."""
    kept = sorted(
        (one for one in methods if math.isfinite(one.expected_squared_error) and math.isfinite(one.residual)),
        key=lambda one: one.expected_squared_error,
    )
    if not kept:
        return ""
    least = kept[0].expected_squared_error
    longest = max(kept[-1].expected_squared_error, lower_bound or 0.0) or 1.0
    rows = "".join(_row(one, least, longest, lower_bound, best=one is kept[0]) for one in kept)
    bound = (
        f" No method with this kind of noise can be below {significant(lower_bound)}, the dashed line."
        if lower_bound is not None and math.isfinite(lower_bound)
        else ""
    )
    return f"""
<h2>Expected error by method</h2>
<p>The total expected squared error over all queries at ε = 1; it grows with 1 / ε². It follows from the queries alone:
no data were looked at to compare the methods.{bound}</p>
<div class="box" tabindex="0" role="region" aria-label="Expected error by method">
<table class="methods">
<caption>The residual says how far a method is from answering exactly what was asked: 10⁻⁹ or less is rounding</caption>
<thead><tr><th scope="col">Method</th><th scope="col">Squared error</th><th scope="col" class="extra">× least</th>
<th scope="col">Residual</th><th scope="col" class="wide" aria-label="Squared error as a bar"></th></tr></thead>
<tbody>{rows}</tbody>
</table>
</div>"""


def _row(one: Compared, least: float, longest: float, bound: float | None, *, best: bool) -> str:
    error = one.expected_squared_error
    width = percent(error / longest)
    line = ""
    if bound is not None and math.isfinite(bound):
        at = percent(bound / longest)
        line = f'<line class="bound" x1="{at}" x2="{at}" y1="0" y2="100%"/>'
    bar = f'<rect class="{"this" if best else "other"}" x="0" y="15%" width="{width}" height="70%" rx="2"/>'
    ratio = f"{error / least:,.2f}" if least > 0 else "—"
    return (
        f'<tr{" class=this" if best else ""}><th scope="row">{isolated(one.name)}</th>'
        f'<td>{significant(error)}</td><td class="extra">{ratio}</td><td>{escaped(_brief(one.residual))}</td>'
        f'<td><svg aria-hidden="true">{bar}{line}</svg></td></tr>'
    )


def _brief(residual: float) -> str:
    return "0" if residual == 0 else f"{residual:.0e}"
