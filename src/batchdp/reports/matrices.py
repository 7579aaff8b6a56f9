"""The matrices L and B as pictures that suit a light page and a dark one: what is 0 is transparent."""

from __future__ import annotations

import base64
import io
from functools import singledispatch
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from batchdp.linalg.matrix import Matrix, shrunk
from batchdp.markup import render
from batchdp.mechanism.reader import CellReader
from batchdp.reports.figures import significant

MOST_PIXELS = 360
WIDEST, TALLEST, LARGEST_CELL, LEAST = 440, 400, 16, 20
"""Of a picture on the page, in CSS pixels."""
POSITIVE, NEGATIVE = (47, 107, 216), (217, 102, 43)
HALF = 127
"""Palette entries on either side of 0; the middle one is transparent."""


@singledispatch
def matrices_section(reader: Any, *, derived: bool = False) -> Markup | None:
    """What was measured, as pictures; None where nothing that small says it, each kind of reader says its own."""
    return None


@matrices_section.register
def _(reader: CellReader, *, derived: bool = False) -> Markup:
    """L and B side by side."""
    (measurements, cells), queries = reader.measure.shape, len(reader.names)
    return render(
        "reports/matrices.html",
        queries=queries,
        derived=derived,
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
