"""The section of the page about published figures, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path

import matplotlib

from batchdp.reports.plots import GREY, label_rows, plain
from batchdp.reports.plots import figure as new_figure
from reproduction.findings import short
from reproduction.peers.figures import LARGEST, Figure
from reproduction.peers.verdicts import AHEAD, BEHIND, EQUAL, MISSING, Verdict

COLOURS = {AHEAD: "#2f6bd8", EQUAL: GREY, BEHIND: "#dc2626"}
NAME = "peers"


def draw(verdicts: Sequence[Verdict], folder: Path) -> None:
    """Ratios to the published figures, and the times of both where a time was published."""
    shown = [one for one in verdicts if one.found is not None]
    sheet = new_figure(11, 1.6 + 0.19 * len(shown))
    left, right = sheet.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    rows = range(len(shown))
    for word, colour in COLOURS.items():
        at = [i for i in rows if shown[i].word == word]
        left.scatter([shown[i].ratio for i in at], at, color=colour, s=18, label=word)
    left.axvline(1.0, color=GREY, linewidth=0.8)
    left.set_xscale("log")
    ticks = [tick for tick in (0.03, 0.1, 0.2, 0.5, 0.7, 1.0, 1.4) if tick >= 0.8 * min(one.ratio for one in shown)]
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    left.set_xlabel("found ÷ published")
    label_rows(left, [f"{_short(one.figure)}; {one.figure.program}" for one in shown])
    found = [one.found.seconds if one.found else 0.0 for one in shown]
    right.scatter(found, rows, color=COLOURS[AHEAD], s=18, label="here")
    right.scatter([one.figure.seconds for one in shown], rows, color=GREY, marker="x", s=22, label="published")
    right.set_xscale("log")
    right.set_xlabel("seconds, each on its own machine")
    for axes in (left, right):
        plain(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.06), ncols=3, frameon=False, fontsize="small")
    sheet.suptitle("Published figures over many columns", x=0.01, ha="left", fontsize="medium")
    with matplotlib.rc_context({"svg.hashsalt": NAME, "svg.fonttype": "none"}):
        sheet.savefig(folder / f"{NAME}.png", dpi=70, pil_kwargs={"optimize": True})
        sheet.savefig(folder / f"{NAME}.svg", metadata={"Date": None})


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many of each."""
    counts = {word: sum(one.word == word for one in verdicts) for word in (AHEAD, EQUAL, BEHIND, MISSING)}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def lines(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """The table's, without headings."""
    found = list[tuple[str, ...]]()
    for one in verdicts:
        figure, ours = one.figure, one.found
        by = f"{figure.program}, {figure.year}"
        times = "" if isnan(figure.seconds) else f"{figure.seconds:g}"
        if ours is None:
            found.append(
                (_batch(figure), "", figure.printed, by, "", "", "", times, "", f"**{MISSING}**: {one.why_not}")
            )
            continue
        measured = (f"{ours.error:.5g}", f"{ours.limit:.5g}", short(ours.seconds), times, f"{ours.megabytes:,.0f}")
        found.append((_batch(figure), f"{ours.queries:,}", figure.printed, by, *measured, f"**{one.word}**"))
    return found


HEADINGS = ("batch", "queries", "published", "by", "found", "limit", "seconds", "published seconds", "MB", "verdict")
"""Of the table."""
WORDS = (
    "What others publish about batches over many columns, and what `optimize` finds for the same batches, written down "
    "in this library's own words. Root mean squared errors per query, or the largest variance where that is said, with "
    "Gaussian noise at ρ = ½ and Laplace noise at ε = √2, so that a measurement of sensitivity 1 has a variance of 1. "
    "*Equal* is within 0.1 %, or the same to the digits that were published. Published figures were not measured here; "
    "their seconds are of other machines. No strategy is below the limit, which is loose with Laplace noise. Seconds "
    "here are of one core; memory is that of the whole process."
)


def sources(verdicts: Sequence[Verdict]) -> str:
    """Who published what where."""
    known = dict.fromkeys((one.figure.program, one.figure.source, one.figure.year) for one in verdicts)
    return "Sources: " + "; ".join(f"{program}: {source}, {year}" for program, source, year in known) + "."


def _batch(figure: Figure) -> str:
    largest = ", largest variance" if figure.task.measure == LARGEST else ""
    return f"{figure.task.batch}, {figure.task.noise}{largest}"


def _short(figure: Figure) -> str:
    """For the picture, which has less room."""
    return _batch(figure).replace(", gaussian", "").replace(" variance", "").replace("laplace", "Laplace")
