"""A budget as a picture: what each spend took from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchdp.plots.canvas import BLUE, GREY, ORANGE, PALE, figure, label_rows, owner, plain

MOST_ROWS = 40


def plot_ledger(
    labels: Sequence[str],
    charges: Sequence[float],
    interrupted: Sequence[bool],
    *,
    total: float,
    unit: str,
    axes: Axes | None = None,
) -> Figure:
    """A bar a spend, each beginning where the one before ended; old ones become one bar if there are many."""
    earlier = max(0, len(charges) - MOST_ROWS)
    taken = [float(sum(charges[:earlier])), *charges[earlier:]] if earlier else list(charges)
    names = [f"{earlier:,} earlier spends", *labels[earlier:]] if earlier else list(labels)
    stopped = [False, *interrupted[earlier:]] if earlier else list(interrupted)
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
