"""A strategy as two pictures: what is measured, and how the answers are put together from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchdp.linalg.matrix import Matrix, shrunk
from batchdp.plots.canvas import GREY, SIGNED, figure, owner

MOST_PIXELS = 400


def plot_strategy(
    measure: Matrix, reconstruct: Matrix, *, title: str = "", axes: Sequence[Axes] | None = None
) -> Figure:
    """Heat maps of L and B, on two axes of one's own if given; large matrices are drawn by their largest entries."""
    if axes is None:
        sheet = figure(9, 4)
        if title:
            sheet.suptitle(title, x=0.01, ha="left", fontsize="medium", parse_math=False)
        axes = sheet.subplots(1, 2)
    left, right = axes
    _heat(left, measure, "L, what is measured", "measurements", "cells")
    _heat(right, reconstruct, "B, how answers are put together", "queries", "measurements")
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
