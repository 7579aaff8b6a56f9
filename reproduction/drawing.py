"""The figures in the paper's layout: lines are closed forms, markers are averages over the repetitions of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt
from pathlib import Path
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from batchdp.reports.plots import PALE, Drawing
from batchdp.reports.plots import figure as new_figure
from reproduction.datasets import DATASETS
from reproduction.findings import varied
from reproduction.journal import Row
from reproduction.points import WORKLOADS


@dataclass(frozen=True)
class Style:
    """How a mechanism looks in every figure."""

    label: str
    colour: str
    marker: str
    line: str = "-"


STYLES = {
    "LM": Style("LM: noise on data", "#6b7280", "s"),
    "WM": Style("WM: wavelets", "#b45309", "^"),
    "HM": Style("HM: tree", "#ca8a04", "v"),
    "MM": Style("MM: matrix mechanism", "#a21caf", "D"),
    "LRM": Style("LRM", "#dc2626", "o"),
    "LRM-printed": Style("LRM, algorithm as printed", "#f87171", "x", "--"),
    "p-Identity": Style("p-Identity", "#0d9488", "P"),
    "optimize": Style("batchdp.optimize", "#2f6bd8", "*"),
    "Gaussian": Style("Gaussian noise, ρ = ε²/2", "#16a34a", "d", "-."),
    "bound": Style("no pair with Laplace noise is below", "#111827", "", ":"),
}
"""Warm colours and greys for what the paper has, cold ones for what came later."""
LEVELS: dict[str, Literal["--", ":"]] = {"LM": "--", "bound": ":"}
"""What does not vary in the figures of LRM alone, as lines across."""
BUDGETS = (("^", 0.5), ("s", 0.75), ("o", 1.0))
"""A marker and an opacity for each ε in the figures of LRM alone, so that a mechanism keeps its colour."""
FINER = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
"""Which multiples of powers of ten are marked on an axis, the narrower its range the more."""
TITLES = {
    "figure-2": "Figure 2: relaxation γ, LRM on Search Logs",
    "figure-3": "Figure 3: number of measurements r, LRM on Search Logs",
    "figure-4": "Figure 4: number of cells n, WDiscrete, ε = 0.1",
    "figure-5": "Figure 5: number of cells n, WRange, ε = 0.1",
    "figure-6": "Figure 6: number of cells n, WRelated, ε = 0.1",
    "figure-7": "Figure 7: number of queries m, WRange, ε = 0.1",
    "figure-8": "Figure 8: number of queries m, WRelated, ε = 0.1",
    "figure-9": "Figure 9: rank s of WRelated, ε = 0.1",
}


def has_curves(figure: str, rows: Sequence[Row]) -> bool:
    """Whether there is anything to draw; in the figures of LRM alone, the levels across are not enough."""
    alone = figure in ("figure-2", "figure-3")
    return any(row.figure == figure and row.ok and (row.mechanism == "LRM" or not alone) for row in rows)


def draw(figure: str, rows: Sequence[Row], folder: Path) -> None:
    """Write the figure's PNG and SVG."""
    rows = [row for row in rows if row.figure == figure and row.ok]
    sheet = _alone(figure, rows) if figure in ("figure-2", "figure-3") else _compared(figure, rows)
    sheet.suptitle(TITLES[figure], x=0.01, ha="left", fontsize="medium")
    with matplotlib.rc_context({"svg.hashsalt": figure, "svg.fonttype": "none"}):
        sheet.savefig(folder / f"{figure}.png", dpi=85, pil_kwargs={"optimize": True})
        sheet.savefig(folder / f"{figure}.svg", metadata={"Date": None})


def _alone(figure: str, rows: Sequence[Row]) -> Drawing:
    """LRM: a column a workload; errors for every ε above, the time below."""
    sheet = new_figure(10, 6)
    panels = sheet.subplots(2, 3, sharex=True, sharey="row", height_ratios=(3, 2))
    by_gamma = figure == "figure-2"
    name = varied(figure)
    for column, workload in enumerate(WORKLOADS):
        above, below = panels[0, column], panels[1, column]
        of_workload = [row for row in rows if row.workload == workload]
        low_rank = [row for row in of_workload if row.mechanism == "LRM"]
        for (marker, alpha), epsilon in zip(BUDGETS, sorted({row.epsilon for row in rows}), strict=False):
            shown = sorted((row for row in low_rank if row.epsilon == epsilon), key=lambda row: getattr(row, name))
            _line(above, name, shown, Style(f"LRM, ε = {epsilon:g}", STYLES["LRM"].colour, marker), alpha)
            for mechanism, line in LEVELS.items():
                for row in of_workload:
                    if row.epsilon == epsilon and row.mechanism == mechanism:
                        above.axhline(
                            row.error, color=STYLES[mechanism].colour, alpha=alpha, linestyle=line, linewidth=1
                        )
        times = sorted({(getattr(row, name), row.seconds) for row in low_rank})
        below.plot(
            [at for at, _ in times],
            [seconds for _, seconds in times],
            color=STYLES["LRM"].colour,
            marker="o",
            markersize=4,
            linewidth=1.2,
        )
        above.set_title(workload, fontsize="medium", loc="left")
        below.set_xlabel("relaxation γ" if by_gamma else "r / rank(W)")
        for axes in (above, below):
            _grid(axes)
            axes.set_yscale("log")
            if by_gamma:
                axes.set_xscale("log")
            axes.minorticks_off()
    _mark_times(panels[1, 0], [row.seconds for row in rows if row.mechanism == "LRM"])
    panels[0, 0].set_ylabel("average squared error")
    panels[1, 0].set_ylabel("seconds")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    handles += [
        Line2D([], [], color=STYLES[mechanism].colour, linestyle=line, linewidth=1)
        for mechanism, line in LEVELS.items()
    ]
    labels += [f"{STYLES[mechanism].label}, each ε" for mechanism in LEVELS]
    sheet.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
    return sheet


def _mark_times(axes: Axes, seconds: Sequence[float]) -> None:
    """About six marks on a logarithmic axis, however narrow its range is; plain figures, not powers of ten."""
    if not seconds:
        return
    middle = sqrt(min(seconds) * max(seconds))
    low, high = min(0.8 * min(seconds), middle / 2), max(1.25 * max(seconds), middle * 2)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    found = ([m * 10.0**power for power in powers for m in of if low <= m * 10.0**power <= high] for of in FINER)
    marks = max((one for one in found if len(one) <= 7), key=len, default=[])
    axes.set_ylim(low, high)
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()


def _compared(figure: str, rows: Sequence[Row]) -> Drawing:
    """All mechanisms: a panel a dataset."""
    name = varied(figure)
    words = {"n": "cells n", "m": "queries m", "s": "rank s"}[name]
    sheet = new_figure(11, 5)
    panels = sheet.subplots(1, 3, sharey=True)
    for axes, dataset in zip(panels, DATASETS, strict=True):
        of_dataset = [row for row in rows if row.dataset == dataset.name]
        for mechanism, style in STYLES.items():
            shown = sorted(
                (row for row in of_dataset if row.mechanism == mechanism), key=lambda row: getattr(row, name)
            )
            if shown:
                _line(axes, name, shown, style)
        axes.set_title(dataset.name, fontsize="medium", loc="left")
        axes.set_xlabel(words)
        axes.set_yscale("log")
        values = sorted({getattr(row, name) for row in rows})
        if name != "s":
            axes.set_xscale("log", base=2)
        axes.set_xticks(values, [str(value) for value in values], rotation=45 if len(values) > 5 else 0)
        axes.minorticks_off()
        _grid(axes)
    panels[0].set_ylabel("average squared error")
    handles, labels = panels[0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
    return sheet


def _line(axes: Axes, name: str, rows: Sequence[Row], style: Style, alpha: float = 1.0) -> None:
    """The closed form as a line, the averages over repetitions as markers with their standard errors."""
    values = [getattr(row, name) for row in rows]
    errors = [row.error for row in rows]
    axes.plot(values, errors, color=style.colour, alpha=alpha, linestyle=style.line, linewidth=1.2)
    if style.marker:
        axes.errorbar(
            values,
            [row.simulated for row in rows],
            yerr=[row.standard_error for row in rows],
            color=style.colour,
            alpha=alpha,
            marker=style.marker,
            markersize=5,
            linestyle="none",
            linewidth=1,
        )
    axes.plot(
        [],
        [],
        color=style.colour,
        alpha=alpha,
        linestyle=style.line,
        marker=style.marker or None,
        markersize=5,
        label=style.label,
    )


def _grid(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=PALE, linewidth=0.6)
