"""The matrices L and B as pictures that suit a light page and a dark one: what is 0 is transparent."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from batchdp.linalg.matrix import Matrix, shrunk
from batchdp.mechanism.reader import CellReader
from batchdp.release.beside import Beside
from batchdp.release.release import Release
from batchdp.release.tables import Table, headings
from batchdp.reports.rendering import render, significant
from batchdp.workloads.kronecker import Factor

Dense = NDArray[np.float64]
Labels = tuple[str, ...]

ROOM = 4
"""A table with holes, such as one with totals, is put on axes with at most so many places an answer."""


@dataclass(frozen=True)
class Grid:
    """One table; its answers in the order of its axes, the last fastest; not a number where nothing was asked."""

    title: str
    columns: tuple[str, ...]
    labels: tuple[Labels, ...]
    values: Dense
    errors: Dense
    half_widths: Dense
    beside: Dense | None = None
    """Beside the answers, where somebody made them."""

    @property
    def answers(self) -> int:
        """How many there are."""
        return int(np.count_nonzero(~np.isnan(self.values)))


def tables_of_grids(release: Release) -> Sequence[Table]:
    """The tables that are shown as such: of linear answers, which have something in common."""
    found = release.layout.tables(together=True)
    if release.layout.is_lazy:
        return found
    return [one for one in found if not one.single and not release.derived_in(one).all()]


def single_answers(release: Release) -> list[int]:
    """The answers that belong to no table and are not computed from others."""
    if release.layout.is_lazy:
        return []
    found = [q for one in release.layout.tables(together=True) if one.single for q in one.answers]
    return [q for q in found if not release.layout.is_derived(q)]


def count_grids(release: Release) -> tuple[int, int]:
    """How many tables there are, and answers in them."""
    if release.layout.is_lazy:
        return len(release.tables), release.reader.answers
    found = tables_of_grids(release)
    return len(found), sum(one.queries for one in found)


def counts_among(release: Release) -> NDArray[np.bool_]:
    """Which linear answers that are shown are counts, to which a record adds 1 or nothing; by table if lazy."""
    reader: Any = release.reader
    if isinstance(reader, CellReader):
        others = (reader.workload if release.kinds is None else release.kinds).copy()
        if not others.shape[1]:
            return np.zeros(len(release.linear_numbers), dtype=bool)
        others.data = 1.0 * ~np.isin(others.data, (0.0, 1.0))
        return np.asarray(others.sum(axis=1) == 0)[release.linear_numbers]
    found = reader.workload.products_of(_of_counts) == 1
    if release.layout.is_lazy:
        return np.asarray(found)
    return np.asarray(found[np.searchsorted(reader.starts, release.linear_numbers, side="right") - 1])


def _of_counts(factor: Factor) -> float:
    return 1.0 if factor.given is None or np.isin(factor.given, (0.0, 1.0)).all() else 0.0


def grids(release: Release, beside: Beside | None = None) -> Iterator[Grid]:
    """Every table of a release, one at a time, with other values beside if there are."""
    for one in tables_of_grids(release):
        figures, columns = release.figures(one), tuple(headings(one.columns))
        found = [figures.values, figures.standard_errors, figures.half_widths]
        if beside is not None:
            found.append(beside.of_table(one))
        axes = one.groups.axes()
        if axes is None:
            yield _placed(one.title, columns, one.groups.texts(), *found)
        else:
            yield Grid(one.title, columns, tuple(axes), *found)


def _placed(title: str, columns: tuple[str, ...], groups: Sequence[Sequence[str]], *figures: Dense) -> Grid:
    """Answers that come as a list with a group in every column; one axis of whole names where they fit on no others."""
    values = figures[0]
    places = [{label: k for k, label in enumerate(dict.fromkeys(group))} for group in groups]
    shape = tuple(map(len, places))
    where = np.zeros(len(values), dtype=np.int64)
    for place, group, size in zip(places, groups, shape, strict=True):
        where = where * size + np.array([place[label] for label in group], dtype=np.int64)
    if prod(shape) > ROOM * len(values) or len(np.unique(where)) != len(values):
        listed = tuple(", ".join(own) for own in zip(*groups, strict=True))
        return Grid(title, (", ".join(columns),), (listed,), *figures)
    spread = []
    for own in figures:
        whole = np.full(prod(shape), np.nan)
        whole[where] = own
        spread.append(whole)
    return Grid(title, columns, tuple(map(tuple, places)), *spread)


MOST_PIXELS = 360
WIDEST, TALLEST, LARGEST_CELL, LEAST = 440, 400, 16, 20
"""Of a picture on the page, in CSS pixels."""
POSITIVE, NEGATIVE = (47, 107, 216), (217, 102, 43)
HALF = 127
"""Palette entries on either side of 0; the middle one is transparent."""


@singledispatch
def matrices_section(reader: Any, *, derived: bool = False, blocks: bool = False) -> Markup | None:
    """What was measured, as pictures; None where nothing that small says it, each kind of reader says its own."""
    return None


@matrices_section.register
def _(reader: CellReader, *, derived: bool = False, blocks: bool = False) -> Markup:
    """L and B side by side."""
    (measurements, cells), queries = reader.measure.shape, len(reader.names)
    return render(
        "reports/matrices.html",
        queries=queries,
        derived=derived,
        blocks=blocks,
        measurements=measurements,
        cells=cells,
        figures=[
            _figure(reader.measure, "L", "measurements", "cells"),
            _figure(reader.reconstruct, "B", "queries", "measurements"),
        ],
        ramp=picture(np.linspace(-1, 1, 2 * HALF + 1)[None, :]),
    )


def _figure(matrix: Matrix, letter: str, rows: str, columns: str) -> dict[str, object]:
    entries = shrunk(matrix, rows=MOST_PIXELS, columns=MOST_PIXELS)
    largest = float(np.abs(entries).max(initial=0.0))
    height, width = entries.shape
    side = min(LARGEST_CELL, WIDEST / width, TALLEST / height)
    across, down = max(LEAST, round(side * width)), max(LEAST, round(side * height))
    return {
        "letter": letter,
        "height": matrix.shape[0],
        "width": matrix.shape[1],
        "rows": rows,
        "columns": columns,
        "picture": picture(entries),
        "style": f"width:{across}px;aspect-ratio:{across}/{down}",  # narrower on a phone, in proportion
        "coarse": matrix.shape != entries.shape,
        "low": significant(-largest),
        "high": significant(largest),
    }


def picture(entries: NDArray[np.float64]) -> str:
    """A PNG as a data address: blue above 0, orange below, deeper with the square root of the size."""
    largest = float(np.abs(entries).max(initial=0.0)) or 1.0
    shares = entries / largest
    indices = (HALF + np.rint(HALF * np.sign(shares) * np.sqrt(np.abs(shares)))).astype(np.uint8)
    enlarged = np.ones((max(1, MOST_PIXELS // max(indices.shape)),) * 2, dtype=np.uint8)  # else viewers smooth it
    image = Image.fromarray(np.kron(indices, enlarged))
    steps = range(-HALF, HALF + 1)
    image.putpalette([colour for step in steps for colour in (NEGATIVE if step < 0 else POSITIVE)])
    file = io.BytesIO()
    # The palette's opacity says how far from 0.
    image.save(file, format="PNG", optimize=True, transparency=bytes(round(255 * abs(step) / HALF) for step in steps))
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
