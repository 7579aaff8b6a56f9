"""The paper that plots are drawn on: figures without pyplot's global state, and the colours that all plots share."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

BLUE, ORANGE, GREY, PALE = "#2f6bd8", "#d9662b", "#6b7280", "#d5d9e0"
SIGNED = LinearSegmentedColormap.from_list("batchdp", [ORANGE, "#ffffff", BLUE])
"""For entries of a matrix: orange below 0, white at 0, blue above."""
LONGEST_LABEL = 44


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
    """One label a row, from the top; dollar signs stay dollar signs."""
    axes.set_yticks(range(len(labels)), [shortened(label) for label in labels], parse_math=False)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def shortened(label: str) -> str:
    """A label that leaves room for the plot."""
    line = " ".join(label.split())
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"
