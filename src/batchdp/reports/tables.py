"""The tables: a list of them, each opened when somebody looks; the answers in the page, or in files beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from batchdp.archive import check_folder, write_folder
from batchdp.errors import ReleaseError
from batchdp.release.beside import Beside
from batchdp.release.exports import INDEX
from batchdp.release.release import Release
from batchdp.reports.matrices import Grid, Labels, count_grids, counts_among, grids
from batchdp.reports.rendering import decimals_for, number, render
from batchdp.text import Progress

Put = Callable[[str, Any], object]
"""Takes a key and what belongs to it."""
Words = NDArray[np.int32]

WORDS = 2**18
"""Of a part: a megabyte, which is a moment's work for a browser."""
LARGEST = 2**31 - 2
HOLE = -(2**31)
"""Where nothing was asked."""
FINER = 2
"""Decimals beyond those that are shown."""


class Packer:
    """Puts the tables into parts, one after the other, and remembers where each of them is."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._words: list[Words] = []
        self._filled = self._parts = 0
        self._axes: dict[Labels | int, int] = {}
        self.tables: list[list[Any]] = []

    def add(self, grid: Grid) -> None:
        """Pack one table more."""
        axes = [self._axis(labels) for labels in grid.labels]
        typical = float(np.nanmedian(grid.errors)) if len(grid.values) else 0.0
        words, step, decimals, constants = packed(grid)
        beside = int(grid.beside is not None)
        stride = (3 if constants is None else 1) + beside
        where = self._placed(words, stride)
        sizes = [len(labels) for labels in grid.labels]
        entry = [grid.title, list(grid.columns), axes, sizes, grid.answers, typical, *where, stride, step, decimals]
        self.tables.append([*entry, *(constants or (0.0, 0.0)), beside])

    def finish(self) -> None:
        """Put what is left, and the list of all tables."""
        self._flush()
        self._put("list", self.tables)

    def _axis(self, labels: Labels) -> int:
        numbered = all(label == str(k) for k, label in enumerate(labels))
        key: Labels | int = len(labels) if numbered else labels
        if key not in self._axes:
            self._axes[key] = len(self._axes)
            self._put(f"axis-{self._axes[key]}", key if isinstance(key, int) else list(key))
        return self._axes[key]

    def _placed(self, words: Words, stride: int) -> tuple[int, int, int]:
        """The first part, the first word in it, and the cells of the table that a part holds."""
        cells = len(words) // stride
        if self._filled + len(words) > WORDS:
            self._flush()
        each = max(1, min(cells, WORDS // stride))
        first = self._parts, self._filled, each
        for start in range(0, cells, each):
            if start:
                self._flush()
            self._words.append(words[start * stride : (start + each) * stride])
            self._filled += len(self._words[-1])
        return first

    def _flush(self) -> None:
        if self._filled:
            content = np.concatenate(self._words).astype("<i4").tobytes()
            self._put(f"part-{self._parts}", base64.b64encode(content).decode())
            self._words, self._filled = [], 0
            self._parts += 1


def packed(grid: Grid) -> tuple[Words, float, int | None, tuple[float, float] | None]:
    """The answers in steps, the step, the decimals to show, and the error and half width where all are the same.

    Where they are not, every answer is followed by both, as floats of 32 bits; then by what is beside it in steps, if
    there is one.
    """
    asked = ~np.isnan(grid.values)
    errors, half = grid.errors[asked], grid.half_widths[asked]
    decimals = decimals_for(errors)
    in_steps = [own for own in (grid.values, grid.beside) if own is not None]
    step = _step(np.concatenate([own[asked] for own in in_steps]), errors, decimals)
    words, *beside = [_in_steps(own, asked, step) for own in in_steps]
    if np.ptp(errors) <= 1e-9 * abs(errors[0]) and np.ptp(half) <= 1e-9 * abs(half[0]):
        return np.column_stack([words, *beside]).reshape(-1), step, decimals, (float(errors[0]), float(half[0]))
    floats = np.column_stack([grid.errors, grid.half_widths]).astype("<f4")
    return np.column_stack([words, floats.view(np.int32), *beside]).reshape(-1), step, decimals, None


def _in_steps(values: NDArray[np.float64], asked: NDArray[np.bool_], step: float) -> Words:
    words = np.full(len(values), HOLE, dtype=np.int32)
    words[asked] = np.rint(values[asked] / step).astype(np.int32)
    return words


def _step(values: NDArray[np.float64], errors: NDArray[np.float64], decimals: int | None) -> float:
    """A power of ten, far below the errors, in which the largest answer is a number of 32 bits."""
    needed = float(np.abs(values).max(initial=0.0)) / LARGEST
    wanted = float(errors[errors > 0].min(initial=math.inf)) / 1000
    fine = 10.0 ** -(decimals + FINER) if decimals is not None else wanted
    step = max(fine if math.isfinite(fine) else 0.0, needed * (1 + 1e-9))
    return float(f"1e{math.ceil(math.log10(step) - 1e-9)}") if step > 1e-300 else 1.0


def script_of(release: str, key: str, content: Any) -> str:
    """A part as a script of one call."""
    return f"batchdp({harmless_json(release)},{harmless_json(key)},{harmless_json(content)})\n"


def harmless_json(content: Any) -> str:
    """JSON that is also JavaScript, and the same inside of HTML: everything beyond plain ASCII, and <, >, & escaped."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@contextmanager
def files_beside(release: Release, folder: Path, name: str) -> Iterator[Put]:
    """Takes the parts; the folder is in its place when all are there. One that no report wrote is never replaced.

    Args:
        release: whose tables.
        folder: where they go.
        name: what the page and every part call the release.
    """
    target = check_folder(folder, "report", INDEX, ReleaseError, overwrite=True)
    with write_folder(target, ReleaseError, overwrite=True) as beside:

        def put(key: str, content: Any) -> None:
            (beside / f"{key}.js").write_text(script_of(name, key, content), encoding="ascii")

        yield put
        mark = {"release_id": release.certificate.release_id, "about": "the tables of the page beside this folder"}
        (beside / INDEX).write_text(json.dumps(mark, indent=1), encoding="utf-8")


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
    beside: Beside | None = None,
    *,
    folder: str = "",
    put: Put | None = None,
    progress: Progress | None = None,
) -> Tables:
    """The list with the first tables as they stand, and all answers packed.

    Args:
        release: whose tables.
        beside: other values of the same, to be shown beside.
        folder: the name of the folder beside the page, empty where the page holds everything.
        put: where the parts go that belong into that folder.
        progress: called with (share done, what is being done).
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
    for t, grid in enumerate(grids(release, beside)):
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
        beside=beside,
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
    parts = [grid.values, grid.errors, grid.half_widths, *(() if grid.beside is None else (grid.beside,))]
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
