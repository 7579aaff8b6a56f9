"""The matrices L and B as pictures that suit a light page and a dark one: what is 0 is transparent."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Matrix, shrunk
from batchdp.release import Release
from batchdp.reports.figures import significant

MOST_PIXELS = 360
WIDEST, TALLEST, LARGEST_CELL, LEAST = 440, 400, 16, 20
"""Of a picture on the page, in CSS pixels."""
POSITIVE, NEGATIVE = (47, 107, 216), (217, 102, 43)
HALF = 127
"""Palette entries on either side of 0; the middle one is transparent."""


def matrices_section(release: Release) -> str:
    """L and B side by side."""
    (r, n), m = release.measure.shape, len(release.names)
    return f"""
<h2>What was measured</h2>
<p>The {m:,} answers are put together from {r:,} noisy measurements of {n:,} cells: L says what is measured, B how each
answer follows from the measurements. Both were chosen from the queries alone, before any data were read. Blue adds,
orange subtracts; colours deepen with the square root of the size.</p>
<div class="columns">
{_figure(release.measure, "L", "measurements", "cells")}
{_figure(release.law.reconstruct, "B", "queries", "measurements")}
</div>"""


def _figure(matrix: Matrix, letter: str, rows: str, columns: str) -> str:
    m, n = matrix.shape
    entries = shrunk(matrix, rows=MOST_PIXELS, columns=MOST_PIXELS)
    largest = float(np.abs(entries).max(initial=0.0))
    height, width = entries.shape
    side = min(LARGEST_CELL, WIDEST / width, TALLEST / height)
    across, down = max(LEAST, round(side * width)), max(LEAST, round(side * height))
    size = f"width:{across}px;aspect-ratio:{across}/{down}"  # narrower on a phone, in proportion
    coarse = " (each pixel shows the largest entry of its block)" if (m, n) != entries.shape else ""
    ramp = f'<img src="{picture(np.linspace(-1, 1, 2 * HALF + 1)[None, :])}" alt="" aria-hidden="true">'
    low, high = significant(-largest), significant(largest)
    return f"""<figure class="matrix">
<img src="{picture(entries)}" style="{size}" alt="Heat map of {letter}, {m:,} {rows} by {n:,} {columns}">
<figcaption><strong>{letter}</strong>: {m:,} {rows} (down) × {n:,} {columns} (across){coarse}
<span class="ramp"><span>{low}</span>{ramp}<span>{high}</span></span>
</figcaption></figure>"""


def picture(entries: NDArray[np.float64]) -> str:
    """A PNG as a data address: blue above 0, orange below, deeper with the square root of the size."""
    largest = float(np.abs(entries).max(initial=0.0)) or 1.0
    shares = entries / largest
    indices = (HALF + np.rint(HALF * np.sign(shares) * np.sqrt(np.abs(shares)))).astype(np.uint8)
    enlarged = np.ones((max(1, MOST_PIXELS // max(indices.shape)),) * 2, dtype=np.uint8)  # else viewers smooth it
    return "data:image/png;base64," + base64.b64encode(_png(np.kron(indices, enlarged))).decode()


def _png(indices: NDArray[np.uint8]) -> bytes:
    """An image of 8-bit palette entries; the palette's opacity says how far from 0."""
    height, width = indices.shape
    rows = np.hstack([np.zeros((height, 1), dtype=np.uint8), indices])  # each row begins with its filter, none
    steps = range(-HALF, HALF + 1)
    colours = b"".join(bytes(NEGATIVE if step < 0 else POSITIVE) for step in steps)
    opacities = bytes(round(255 * abs(step) / HALF) for step in steps)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", colours),
        (b"tRNS", opacities),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
