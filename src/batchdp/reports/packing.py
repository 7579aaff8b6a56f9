"""Tables as texts that a page reads in parts: answers as whole multiples of a step, 32 bits each, in base64.

A page that is opened from a disk can read nothing beside it but scripts. So a part is a script of one call,
`batchdp(release, key, content)`, with JSON that holds no character that HTML or JavaScript acts upon.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.reports.figures import decimals_for
from batchdp.reports.grids import Grid, Labels

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
        """One table more."""
        axes = [self._axis(labels) for labels in grid.labels]
        typical = float(np.nanmedian(grid.errors)) if len(grid.values) else 0.0
        words, step, decimals, constants = packed(grid)
        beside = int(grid.consistent is not None)
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

    Where they are not, every answer is followed by both, as floats of 32 bits; then by the consistent one in steps, if
    there is one.
    """
    asked = ~np.isnan(grid.values)
    errors, half = grid.errors[asked], grid.half_widths[asked]
    decimals = decimals_for(errors)
    in_steps = [own for own in (grid.values, grid.consistent) if own is not None]
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
