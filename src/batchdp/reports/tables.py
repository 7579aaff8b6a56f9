"""The tables: a list of them, each opened when somebody looks; the answers in the page, or in files beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from batchdp.markup import render
from batchdp.release.consistent.answers import Consistent
from batchdp.release.records import Release
from batchdp.reports.beside import Progress
from batchdp.reports.figures import decimals_for, number
from batchdp.reports.grids import Grid, count_grids, counts_among, grids
from batchdp.reports.packing import Packer, Put, harmless_json

MOST_INSIDE = 5_000
"""Answers that the page itself holds; more are beside it."""
MOST_TABLES_INSIDE = 500
MOST_LISTED = 100
"""Tables that are named without JavaScript."""
MOST_OPENED = 5
"""Tables of which answers are shown without JavaScript, where the others are beside the page."""
MOST_ROWS = 50
"""Answers of each of these."""


def fits_inside(release: Release) -> bool:
    """Whether the page needs no file beside it."""
    tables, answers = count_grids(release)
    return answers <= MOST_INSIDE and tables <= MOST_TABLES_INSIDE


def identity(release: Release) -> str:
    """What a page and the files beside it must agree on."""
    c = release.certificate
    text = f"{c.release_id}\n{c.plan_digest}\n{c.ledger_head}\n{release.confidence!r}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Tables:
    """What a page says of a release's tables."""

    count: int
    section: Markup | None = None
    """The list of them, with the first as they stand."""
    folder: str = ""
    """The name of the folder beside the page; empty where the page holds everything."""
    half_width: float = 0.0
    """Of a typical count, where tables are lazy: the median over all counts of their tables' medians."""


def tables_of_page(
    release: Release,
    agreeing: Consistent | None = None,
    *,
    folder: str = "",
    put: Put | None = None,
    progress: Progress | None = None,
) -> Tables:
    """The list with the first tables as they stand, and all answers packed.

    Args:
        release: whose tables.
        agreeing: consistent tables of the same, to be shown beside.
        folder: the name of the folder beside the page, empty where the page holds everything.
        put: where the parts go that belong into that folder.
        progress: called with (share, what is being done).
    """
    tables, answers = count_grids(release)
    if not tables:
        return Tables(0)
    inside: dict[str, Any] = {}
    listed: list[dict[str, object]] = []
    half, sizes = [], []
    counts = counts_among(release) if release.layout.is_lazy else None
    opened, rows = (MOST_OPENED, MOST_ROWS) if folder else (tables, answers)
    packer = Packer(put or inside.__setitem__)
    for t, grid in enumerate(grids(release, agreeing)):
        if t < max(opened, MOST_LISTED):
            listed.append(_entry(grid, rows if t < opened else 0))
        if counts is not None and counts[t]:
            half.append(float(np.nanmedian(grid.half_widths)))
            sizes.append(grid.answers)
        packer.add(grid)
        if progress is not None:
            progress((t + 1) / tables, "writing tables")
    packer.finish()
    section = render(
        "reports/tables.html",
        tables=tables,
        of_all=len(release.tables),
        count=answers,
        confidence=f"{100 * release.confidence:g} %",
        release=identity(release),
        folder=quote(folder, safe=""),
        listed=listed,
        unlisted=tables - len(listed),
        notes=() if agreeing is None else agreeing.notes,
        counted=bool(release.notes),
        data=Markup(harmless_json(inside)) if inside else "",
    )
    return Tables(tables, section, folder, _median(half, sizes) if half else 0.0)


def _median(values: list[float], times: list[int]) -> float:
    """Of values that count so many times each."""
    order = np.argsort(values)
    counted = np.cumsum(np.array(times)[order])
    return float(values[int(order[np.searchsorted(counted, counted[-1] / 2)])])


def _entry(grid: Grid, rows: int) -> dict[str, object]:
    asked = np.flatnonzero(~np.isnan(grid.values))
    decimals, count = decimals_for(grid.errors[asked]), len(asked)
    shown = asked if count <= rows else asked[np.argsort(-grid.values[asked], kind="stable")[:rows]]
    sizes = [f"{len(labels):,}" for labels in grid.labels]
    places = np.unravel_index(shown, tuple(map(len, grid.labels))) if sizes else ()
    names = [[labels[k] for k in place.tolist()] for labels, place in zip(grid.labels, places, strict=True)]
    parts = [grid.values, grid.errors, grid.half_widths, *(() if grid.consistent is None else (grid.consistent,))]
    figures = (
        [number(x, decimals) for x in (v, e, v - h, v + h, *more)]
        for v, e, h, *more in zip(*(part[shown].tolist() for part in parts), strict=True)
    )
    titles = zip(*names, strict=True) if names else [(grid.title,)] * len(shown)
    return {
        "title": grid.title,
        "size": (" × ".join(sizes) + ": " if len(sizes) > 1 else "") + f"{count:,} answer{'s' if count != 1 else ''}",
        "typical": number(float(np.median(grid.errors[asked])), decimals),
        "headings": grid.columns or ("Query",),
        "rows": list(zip(titles, figures, strict=True)),
        "count": count,
        "more": count - len(shown),
    }
