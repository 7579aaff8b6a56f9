"""Guarantees as a picture: the ε that holds for each δ, one line a guarantee."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchdp.plots.canvas import BLUE, GREY, PALE, figure, owner, shortened

APART = 0.05
"""How far names stand apart at the least, in heights of the picture."""


def plot_curves(
    deltas: Sequence[float], names: Sequence[str], epsilons: Sequence[Sequence[float]], *, axes: Axes | None = None
) -> Figure:
    """One line a guarantee, named at its end; the last one, of all together, in blue."""
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
