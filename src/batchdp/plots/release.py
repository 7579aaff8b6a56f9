"""A release as a picture: every answer with its interval, and beside it the interval alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchdp.linalg.matrix import Dense
from batchdp.plots.canvas import BLUE, GREY, figure, label_rows, owner, plain
from batchdp.plots.scale import Scale, scale_for, symmetric

MOST_NAMED = 60
"""Queries that get a line and a name each; of more, the names are left out and the lines get thin."""


def plot_release(
    names: Sequence[str],
    values: Dense,
    half_widths: Dense,
    *,
    confidence: float,
    more: int = 0,
    axes: Axes | None = None,
) -> Figure:
    """Answers with intervals, on axes of one's own if given; else also the intervals around 0, where they show.

    Half widths are one a name, or two: how far an interval goes below and above its answer; `more` is how many answers
    are not drawn.
    """
    largest = half_widths if half_widths.ndim == 1 else half_widths.max(axis=0)
    if axes is None:
        sheet = figure(9, 1.1 + 0.24 * len(names) if len(names) <= MOST_NAMED else 9)
        axes, beside = sheet.subplots(1, 2, sharey=True, width_ratios=(2, 1))
        _intervals(beside, np.zeros(len(names)), half_widths, symmetric(largest), marker="none")
        beside.set_xlabel("± margin", color=GREY)
    _intervals(axes, values, half_widths, scale := scale_for(values, largest), marker="o")
    if len(names) <= MOST_NAMED:
        label_rows(axes, names)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(names):,} queries, the first on top", color=GREY)
        axes.set_ylim(len(names), -1)
    kind = "" if scale.unit is None else ", logarithmic scale"
    left = f"; {more:,} more are not drawn" if more else ""
    axes.set_xlabel(f"answer, {100 * confidence:g} % interval{kind}{left}", color=GREY)
    return owner(axes)


def _intervals(axes: Axes, values: Dense, half_widths: Dense, scale: Scale, *, marker: str) -> None:
    few = len(values) <= MOST_NAMED
    axes.errorbar(
        values,
        np.arange(len(values)),
        xerr=half_widths,
        fmt=marker,
        color=BLUE,
        markersize=4 if few else 2,
        linewidth=1.6 if few else 0.8,
    )
    if scale.unit is not None:
        axes.set_xscale("asinh", linear_width=scale.unit)
    axes.set_xlim(scale.low, scale.high)
    axes.set_xticks(scale.ticks(4), [f"{tick:,.10g}" for tick in scale.ticks(4)])
    axes.minorticks_off()
    plain(axes)
