"""The answers: a plot that shows sizes and margins side by side, and a table of the figures."""

from __future__ import annotations

import numpy as np

from batchdp.markup import isolated
from batchdp.plots.scale import Scale, scale_for, symmetric
from batchdp.release import Answer, Release
from batchdp.reports.figures import decimals_for, number, percent

MOST_PLOTTED = 1000
MOST_UNBOXED = 60
"""Rows that stand on the page; more scroll within a box."""
COLUMNS = (("Query", "name"), ("Answer", "value"), ("Standard error", "error"), ("Low", "low"), ("High", "high"))


def answers_section(release: Release) -> str:
    """Filter, plot and table; both follow the filter and the order that the reader chooses."""
    answers, confidence = release.answers, f"{100 * release.confidence:g} %"
    missed = (1 - release.confidence) * len(answers)
    return f"""
<h2>Answers</h2>
<p>Each interval holds the true answer with {confidence} confidence, one at a time: of {len(answers):,}
interval{"s" if len(answers) > 1 else ""}, about {missed:.2g} can be expected to miss. Noise can take an answer below 0
or away from a whole number; that is not an error.</p>
<form class="filter" role="search" hidden>
  <label for="filter">Show queries with</label>
  <input id="filter" type="search" autocomplete="off" spellcheck="false" placeholder="any words">
  <output id="shown" for="filter" aria-live="polite">{len(answers):,} of {len(answers):,} shown</output>
</form>
{_plot(answers[:MOST_PLOTTED], confidence, len(answers))}
{_table(answers, confidence)}
"""


def _plot(answers: tuple[Answer, ...], confidence: str, of: int) -> str:
    values = np.array([one.value for one in answers])
    half = np.array([one.high - one.value for one in answers])
    sizes, margins = scale_for(values, half), symmetric(half)
    rows = "".join(
        f'<li data-row="{i}">{_name(one)}{_interval(one.low, one.value, one.high, sizes)}'
        f"{_interval(one.low - one.value, None, one.high - one.value, margins)}</li>"
        for i, one in enumerate(answers)
    )
    logarithmic = "" if sizes.unit is None else " The scale of the answers is logarithmic."
    left_out = f" The first {len(answers):,} of {of:,} are drawn." if of > len(answers) else ""
    return f"""
<figure class="answers">
<div class="{_box(answers)}" tabindex="0" role="region" aria-label="Plot of the answers">
<div class="axis" aria-hidden="true"><span>Query</span>{_axis(sizes, "Answer")}{_axis(margins, "Margin")}</div>
<ol aria-hidden="true">{rows}</ol>
</div>
<figcaption>Left, every answer with its {confidence} interval, which is often narrower than the dot; right, the same
interval around 0, on its own scale.{logarithmic}{left_out} The table below has the figures.</figcaption>
</figure>"""


def _name(one: Answer) -> str:
    return f'<span class="name">{isolated(one.name)}</span>'


def _interval(low: float, value: float | None, high: float, scale: Scale) -> str:
    ends = f'x1="{percent(scale.position(low))}" x2="{percent(scale.position(high))}"'
    dot = "" if value is None else f'<circle cx="{percent(scale.position(value))}" cy="50%" r="3.5"/>'
    return f'<svg>{_grid(scale)}<line class="interval" {ends} y1="50%" y2="50%"/>{dot}</svg>'


def _grid(scale: Scale) -> str:
    places = (percent(scale.position(tick)) for tick in _ticks(scale))
    return "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="100%"/>' for x in places)


def _axis(scale: Scale, label: str) -> str:
    marks = "".join(
        f'<text x="{percent(at := scale.position(tick))}" y="2.5em" text-anchor="{_anchor(at)}">{_short(tick)}</text>'
        for tick in _ticks(scale)
    )
    return f'<svg><text class="label" x="0" y="1em">{label}</text>{marks}</svg>'


def _ticks(scale: Scale) -> list[float]:
    return scale.ticks(4 if -scale.low != scale.high else 3)


def _anchor(at: float) -> str:
    return "start" if at < 0.08 else "end" if at > 0.92 else "middle"


def _short(tick: float) -> str:
    """A tick that fits: 100k for 100,000."""
    size = abs(tick)
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if power <= size < 1000 * power:
            return f"{tick / power:g}{letter}".replace("-", "−")
    return f"{tick:.3g}".replace("-", "−")


def _table(answers: tuple[Answer, ...], confidence: str) -> str:
    decimals = decimals_for(np.array([one.standard_error for one in answers]))
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button" data-column="{i}" disabled>{label}</button></th>'
        for i, (label, _) in enumerate(COLUMNS)
    )
    rows = "".join(_row(i, one, decimals) for i, one in enumerate(answers))
    return f"""
<div class="{_box(answers)} table" tabindex="0" role="region" aria-label="Table of the answers">
<table id="table">
<caption>Answers, their standard errors and {confidence} intervals</caption>
<thead><tr>{head}</tr></thead>
<tbody>{rows}</tbody>
</table>
</div>"""


def _row(i: int, one: Answer, decimals: int | None) -> str:
    figures = "".join(
        f'<td data-value="{value!r}">{number(value, decimals)}</td>'
        for value in (one.value, one.standard_error, one.low, one.high)
    )
    return f'<tr data-row="{i}"><th scope="row">{isolated(one.name)}</th>{figures}</tr>'


def _box(answers: tuple[Answer, ...]) -> str:
    return "box tall" if len(answers) > MOST_UNBOXED else "box"
