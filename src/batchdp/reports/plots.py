"""Values drawn by matplotlib: a strategy as two pictures, a release with its intervals, a ledger with its spends."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from batchdp.ledger import Ledger
from batchdp.ledger.books import DELTAS, Curve
from batchdp.linalg.matrix import Dense, Matrix, shrunk
from batchdp.privacy import LETTERS
from batchdp.release import Answer, Release
from batchdp.reports.notebook import Seen, look_at
from batchdp.strategies.pair import PairStrategy

BLUE, ORANGE, GREY, PALE = "#2f6bd8", "#d9662b", "#6b7280", "#d5d9e0"
SIGNED = LinearSegmentedColormap.from_list("batchdp", [ORANGE, "#ffffff", BLUE])
"""For entries of a matrix: orange below 0, white at 0, blue above."""
LONGEST_LABEL = 44
MOST_PLOTTED = 2_000
"""Answers of a release that are drawn."""


class Drawing(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot was ever imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a name in a script that the font lacks shows as boxes
            self.savefig(buffer, format="png")
        return buffer.getvalue()


def figure(width: float, height: float) -> Drawing:
    """An empty figure, in inches, that makes room for its labels."""
    return Drawing(figsize=(width, height), layout="constrained")


def owner(axes: Axes) -> Figure:
    """The figure that these axes belong to."""
    found = axes.get_figure(root=True)
    assert found is not None
    return found


def plain(axes: Axes) -> None:
    """Only the lines that carry information."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.tick_params(color=PALE, labelcolor=GREY, length=3)
    axes.tick_params(axis="y", length=0, labelcolor="black")
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=PALE, linewidth=0.6)


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """One label per row, from the top; dollar signs stay dollar signs."""
    axes.set_yticks(range(len(labels)), [shortened(label) for label in labels], parse_math=False)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def shortened(label: str) -> str:
    """A label that leaves room for the plot."""
    line = " ".join(label.split())
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"


CROWDED = 20.0
"""How many times larger than a small answer the largest may be on a linear scale."""


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`; with a `unit`, linear up to about that size and logarithmic beyond (asinh)."""

    low: float
    high: float
    unit: float | None = None

    def position(self, value: float) -> float:
        """From 0 at the low end to 1 at the high end."""
        low, high = self._stretched(self.low), self._stretched(self.high)
        return (self._stretched(value) - low) / (high - low)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers to write along the axis."""
        if self.unit is None:
            step = _round_step((self.high - self.low) / most)
            first = math.ceil(self.low / step - 1e-9)
            found = [k * step for k in range(first, first + 2 * most) if k * step <= self.high + 1e-9 * step]
            return found if len(found) >= 3 else self.ticks(most + 2)  # one alone would not tell the scale
        largest = max(abs(self.low), abs(self.high))
        powers = range(math.ceil(math.log10(self.unit)), math.floor(math.log10(largest)) + 1)
        sizes = [10.0**power for power in powers]
        found = [one for one in (*(-size for size in reversed(sizes)), 0.0, *sizes) if self.low <= one <= self.high]
        return found[:: max(1, math.ceil(len(found) / (most + 2)))]

    def _stretched(self, value: float) -> float:
        return value if self.unit is None else math.asinh(value / self.unit)


def scale_for(values: Dense, half_widths: Dense) -> Scale:
    """An axis on which all intervals fit."""
    low, high = float(np.min(values - half_widths)), float(np.max(values + half_widths))
    sizes = np.abs(values)
    noise, largest = float(np.median(half_widths)), float(sizes.max())
    small = max(float(np.quantile(sizes, 0.25)), noise)
    unit = max(noise, 1e-6 * largest) if 0 < CROWDED * small < largest else None
    if low == high:  # answers that are 0 whatever the data
        low, high = low - 1.0, high + 1.0
    if unit is None:
        if 0 < low < (high - low):
            low = 0.0  # not far away, and people compare with it
        room = 0.02 * (high - low)
        return Scale(low - (room if low else 0.0), high + room)
    below = low / 1.3 if low > unit else low * 1.3 if low < -unit else low - unit
    above = high * 1.15 if high > unit else high + unit
    return Scale(below, above, unit)


def symmetric(half_widths: Dense) -> Scale:
    """An axis for the margins alone, 0 in the middle."""
    widest = float(half_widths.max(initial=0.0)) or 1.0
    return Scale(-1.05 * widest, 1.05 * widest)


def _round_step(size: float) -> float:
    """1, 2 or 5 times a power of ten, not below the size."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size * (1 - 1e-9))


UNLIKE = 10
"""Where the next larger margin is so many times as large, the answers are of another kind, and on another axis."""


def alike(half_widths: Dense) -> list[list[int]]:
    """Which answers share an axis, because their margins are alike; in the order of the first of each."""
    order = np.argsort(half_widths, kind="stable")
    steps = half_widths[order][1:] > UNLIKE * np.maximum(half_widths[order][:-1], 1e-300)
    return sorted(np.sort(own).tolist() for own in np.split(order, np.flatnonzero(steps) + 1))


APART = 0.05
"""How far names stand apart at the least, in heights of the picture."""


def plot_curves(curves: Sequence[Curve], *, axes: Axes | None = None) -> Figure:
    """One line per guarantee, named at its end; the last one, of all together, in blue."""
    deltas, names, epsilons = DELTAS, [one.name for one in curves], [one.epsilons for one in curves]
    if axes is None:
        axes = figure(9, max(4.0, 0.26 * len(names))).subplots()
    top = 1.05 * max((max(own) for own in epsilons), default=1.0)
    places = _apart([own[-1] / top for own in epsilons])
    for number, (name, own, place) in enumerate(zip(names, epsilons, places, strict=True)):
        last = number == len(names) - 1
        colour = BLUE if last else GREY
        axes.plot(deltas, own, color=colour, linewidth=2.4 if last else 1.1, zorder=2 + last)
        axes.annotate(
            f"{shortened(name)}: ε = {own[-1]:.3g}",
            (1.0, own[-1] / top),
            xycoords="axes fraction",
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            color=colour,
            fontsize="small",
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": PALE, "linewidth": 0.8},
        )
    axes.set_xscale("log")
    axes.set_xlim(max(deltas), min(deltas))
    axes.set_ylim(0, top)
    axes.set_xlabel(f"δ; figures at the lines are for δ = {deltas[-1]:g}", color=GREY)
    axes.set_ylabel("ε", color=GREY, rotation=0, labelpad=12)
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.minorticks_off()
    return owner(axes)


def _apart(heights: Sequence[float]) -> list[float]:
    """The heights, moved up where they would stand too close to one below."""
    found = list(heights)
    before = -1.0
    for i in sorted(range(len(found)), key=lambda i: (found[i], i)):
        found[i] = before = max(found[i], before + APART)
    return found


@singledispatch
def draw(value: Any, *, axes: Any = None) -> Figure:
    """A value as a figure, on matplotlib axes of your own if given; each kind is registered."""
    raise NotImplementedError(f"a {type(value).__name__} cannot be drawn")


MOST_ROWS = 40


@draw.register
def plot_ledger(ledger: Ledger, *, axes: Axes | None = None) -> Figure:
    """A bar a spend, each beginning where the one before ended; old ones become one bar if there are many."""
    now = ledger.standing()
    spends, total, unit = now.entries, now.total, LETTERS[now.unit]
    earlier = max(0, len(spends) - MOST_ROWS)
    taken = [math.fsum(one.charged for one in spends[:earlier])] * (earlier > 0)
    names, stopped = [f"{earlier:,} earlier spends"] * (earlier > 0), [False] * (earlier > 0)
    for one in spends[earlier:]:
        taken.append(one.charged)
        names.append(f"{one.time[:10]}  {one.table}")
        stopped.append(one.state == "reserved")
    ends = np.cumsum(taken)
    left = total - (float(ends[-1]) if taken else 0.0)
    if axes is None:
        axes = figure(8, 1.4 + 0.3 * len(names)).subplots()
    rows = np.arange(len(taken) + 1)
    starts = np.concatenate([[0.0], ends])
    colours = [ORANGE if one else BLUE for one in stopped]
    axes.barh(rows, [*taken, left], left=starts, color=[*colours, PALE], height=0.6)
    plain(axes)
    label_rows(axes, [*names, "left"])
    axes.axvline(total, color=GREY, linewidth=1)
    axes.set_xlim(0, total * 1.02)
    axes.set_xlabel(f"{unit} spent of {total:g}" + (", orange: interrupted" if any(stopped) else ""))
    return owner(axes)


MOST_NAMED = 60
"""Queries that get a line and a name each; of more, the names are left out and the lines get thin."""


@draw.register
def plot_release(release: Release, *, axes: Axes | None = None) -> Figure:
    """Answers with intervals: a panel per table, or on axes of your own if given; of a single short table, and on
    your own axes, as they come, also with the intervals around 0, where they show."""
    if axes is None:
        sizes = [table.queries for table in release.layout.tables(together=True)]
        if len(sizes) > 1 or MOST_NAMED < sizes[0] <= MOST_IN_PANELS:
            return plot_panels(release)
    some = release.answers[:MOST_PLOTTED]
    known = [one for one in some if one.determined] or [Answer("not determined", 0.0, 0.0, 0.0, 0.0)]
    names = [f"{one.name}{' (derived)' * one.derived}" for one in known]
    values = np.array([one.value for one in known])
    half_widths = np.array([[one.value - one.low, one.high - one.value] for one in known]).reshape(-1, 2).T
    largest, more = half_widths.max(axis=0), len(release.answers) - len(some)
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
    axes.set_xlabel(f"answer, {100 * release.confidence:g} % interval{kind}{left}", color=GREY)
    return owner(axes)


MOST_IN_PANELS = 240
"""Answers that are all drawn in panels; of more, the largest of the first tables."""
PANEL_ROWS = 40
"""From which there are several columns; a table that is longer than a column goes on in the next one."""
ROW, OVER = 0.19, 0.75
"""Inches that an answer takes, and what a panel's title and axis take."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Some answers of one table, on the scale of all that are drawn of it."""

    title: str
    labels: Sequence[str]
    values: Dense
    half_widths: Dense
    scale: Scale

    @property
    def height(self) -> float:
        """In inches."""
        return OVER + ROW * len(self.labels)


def plot_panels(release: Release) -> Figure:
    """Every table as a panel with axes of its own, in columns of about the same height."""
    seen = [one for one in look_at(release, whole=MOST_IN_PANELS).tables if one.more < one.answers]
    drawn = sum(one.answers - one.more for one in seen)
    columns = 1 + (drawn > PANEL_ROWS) + (drawn > 3 * PANEL_ROWS)
    panels = [panel for one in seen for panel in _panels(one, max(PANEL_ROWS, math.ceil(drawn / columns)))]
    inches = sum(panel.height for panel in panels)
    stacks: list[list[Panel]] = [panels[:1]]
    for panel in panels[1:]:
        if len(stacks) < columns and sum(one.height for one in (*stacks[-1], panel)) > 1.1 * inches / columns:
            stacks.append([])
        stacks[-1].append(panel)
    heights = [sum(one.height for one in stack) for stack in stacks]
    sheet = figure(4.5 + 3.5 * len(stacks) if len(stacks) > 1 else 8, max(heights) + 0.4)
    parts: list[Any] = sheet.subfigures(1, len(stacks), squeeze=False)[0].tolist()
    for part, stack, height in zip(parts, stacks, heights, strict=True):
        rest = [max(heights) - height] * (height < max(heights))
        grid = part.add_gridspec(len(stack) + len(rest), 1, height_ratios=[*(one.height for one in stack), *rest])
        for place, panel in enumerate(stack):
            own = part.add_subplot(grid[place])
            _intervals(own, panel.values, panel.half_widths, panel.scale, marker="o")
            label_rows(own, panel.labels)
            own.tick_params(labelsize="small")
            own.set_title(panel.title, loc="left", fontsize="medium", parse_math=False)
    left = len(release.answers) - drawn
    more = f"; {left:,} more answers are not drawn" if left else ""
    about = f"Answers with {100 * release.confidence:g} % intervals, every table on a scale of its own{more}"
    sheet.suptitle(about, x=0.01, ha="left", fontsize="medium", color=GREY)
    return sheet


def _panels(one: Seen, most: int) -> list[Panel]:
    """A table in pieces that fit into a column; single answers also by the size of their margins."""
    rows = [row for row in one.rows if not math.isnan(row[1])]
    if not rows:
        return []
    names = [f"{name}{' (derived)' * (derived and one.single)}" for name, *_, derived in rows]
    values, low, high = (np.array([row[k] for row in rows]) for k in (1, 3, 4))
    half = np.stack([values - low, high - values])
    title = ("Single answers" if one.single else one.title) + ", derived" * (one.derived and not one.single)
    title += f", the {len(rows):,} largest of {one.answers:,}" * (one.more > 0)
    made: list[Panel] = []
    for own in alike(half.max(axis=0)) if one.single else [list(range(len(rows)))]:
        scale = scale_for(values[own], half[:, own].max(axis=0))
        for part in np.array_split(own, math.ceil(len(own) / most)):
            said = f"{title}{', continued' * bool(made)}{', logarithmic scale' * (scale.unit is not None)}"
            made.append(Panel(said, [names[k] for k in part], values[part], half[:, part], scale))
    return made


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


MOST_PIXELS = 400


@draw.register
def plot_strategy(strategy: PairStrategy, *, axes: Sequence[Axes] | None = None) -> Figure:
    """Heat maps of L and B, on two axes of your own if given; large matrices are drawn by their largest entries."""
    if axes is None:
        sheet = figure(9, 4)
        if strategy.method:
            sheet.suptitle(strategy.method, x=0.01, ha="left", fontsize="medium", parse_math=False)
        axes = sheet.subplots(1, 2)
    left, right = axes
    _heat(left, strategy.measurement, "L, what is measured", "measurements", "cells")
    _heat(right, strategy.reconstruction, "B, how answers are put together", "queries", "measurements")
    return owner(left)


def _heat(axes: Axes, matrix: Matrix, title: str, rows: str, columns: str) -> None:
    m, n = matrix.shape
    entries = shrunk(matrix, rows=MOST_PIXELS, columns=MOST_PIXELS)
    largest = float(np.abs(entries).max(initial=0.0)) or 1.0
    image = axes.imshow(
        entries, cmap=SIGNED, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest", extent=(0, n, m, 0)
    )
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set_xlabel(f"{n:,} {columns}", color=GREY)
    axes.set_ylabel(f"{m:,} {rows}", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
    bar = owner(axes).colorbar(image, ax=axes, shrink=0.8, ticks=[-largest, 0, largest], format="%.3g")
    bar.outline.set_visible(False)
