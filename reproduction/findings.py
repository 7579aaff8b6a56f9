"""A run's results by their parameters, for those who judge them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reproduction.datasets import SEARCH_LOGS
from reproduction.examples import Example
from reproduction.journal import Row

LOW_RANK = ("LRM", "LRM-printed")
RIVALS = ("LM", "WM", "HM", "MM")
"""What the paper compares LRM with."""

Curve = dict[float, float]
"""From the value of the parameter that is varied to an error."""


class Findings:
    """The rows that have figures; closed forms do not depend on the dataset, so those of Search Logs speak for all.

    Where a search failed and only its start is left, the figures say nothing about the mechanism.
    """

    def __init__(self, rows: Iterable[Row], examples: Sequence[Example] = ()) -> None:
        self.rows: Sequence[Row] = [
            row for row in rows if row.ok and not row.fell_back and row.dataset == SEARCH_LOGS.name
        ]
        self.examples = examples

    def of(self, figure: str, mechanism: str, **values: object) -> list[Row]:
        """The rows of a figure and mechanism whose columns have these values."""
        return [
            row
            for row in self.rows
            if row.figure == figure
            and row.mechanism == mechanism
            and all(getattr(row, name) == value for name, value in values.items())
        ]

    def curve(self, figure: str, mechanism: str) -> Curve:
        """Errors of one mechanism in Figures 4 to 9."""
        name = varied(figure)
        return {getattr(row, name): row.error for row in self.of(figure, mechanism)}

    def low_rank(self, figure: str) -> Curve:
        """The better of the two algorithms for the paper's program, wherever one of them has ended."""
        return best(self.curve(figure, name) for name in LOW_RANK)

    def rivals(self, figure: str) -> Curve:
        """The best of the other mechanisms of the paper, where all but MM are known; MM is never the best."""
        needed = [self.curve(figure, name) for name in RIVALS if name != "MM"]
        known = set(needed[0]).intersection(*needed[1:])
        return {value: error for value, error in best([*needed, self.curve(figure, "MM")]).items() if value in known}


def varied(figure: str) -> str:
    """The column along the figure's axis."""
    return {"figure-2": "gamma", "figure-3": "ratio", "figure-7": "m", "figure-8": "m", "figure-9": "s"}.get(
        figure, "n"
    )


def best(curves: Iterable[Curve]) -> Curve:
    """The least of several curves, wherever one is known."""
    found: Curve = {}
    for curve in curves:
        for value, error in curve.items():
            found[value] = min(error, found.get(value, error))
    return dict(sorted(found.items()))


def short(value: float) -> str:
    """A figure as people read it."""
    size = abs(value)
    if size >= 1e6:
        return f"{value:.2e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def span(values: Iterable[float]) -> str:
    """The least and the largest of some figures, or the one that they all are."""
    ordered = sorted(values)
    low, high = short(ordered[0]), short(ordered[-1])
    return low if low == high else f"{low} to {high}"
