"""How much of a batch of tables is shown at once: all of a few answers, else the top rows of the first tables."""

from __future__ import annotations

from collections.abc import Sequence

WHOLE = 60
"""Answers that are all shown."""
NOTEBOOK = 20
"""Answers that are all shown in a notebook."""
LISTED = 40
"""Tables that are named."""
OPENED = 6
"""Tables of which rows are shown too."""
ROWS = 5
"""Rows of each, at least: fewer tables show more."""


def excerpt(sizes: Sequence[int], whole: int = WHOLE) -> list[int]:
    """How many rows to show of each of the first tables; the others are not even named.

    Args:
        sizes: how many rows every table has.
        whole: rows in all of a batch that is shown whole.
    """
    if sum(sizes) <= whole:
        return list(sizes)
    opened = min(len(sizes), OPENED)
    most = max(ROWS, (whole - 2 * opened) // (2 * opened))
    return [min(size, most) if t < opened else 0 for t, size in enumerate(sizes[:LISTED])]


def full_title(name: str, columns: Sequence[str]) -> str:
    """A table's title: its name, and its columns where the name does not say them."""
    listed = " × ".join(columns)
    return name if not columns or name == listed else f"{name} by {listed}"
