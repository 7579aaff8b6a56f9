"""What is known about a column before anything is declared: its name, its type, and what a codebook says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

ColumnType = Literal["text", "number", "whole", "date", "boolean", "unknown", "other"]
"""Unknown: a CSV file does not say. Other: no kind of declared column fits, such as a list."""

End = int | float | date


@dataclass(frozen=True)
class Described:
    """A column by its name and type. The rest is a codebook's, or the type's own; nothing is looked up in the data."""

    name: str
    kind: ColumnType
    values: tuple[bool | int | str, ...] = ()
    """All that can occur; none if they are not known."""
    low: End | None = None
    high: End | None = None
    step: float | None = None
    """The last digit that a decimal type keeps."""
    missing: tuple[str, ...] = ()
    """What stands for a missing value."""
    notes: tuple[str, ...] = ()
    """Sentences for whoever edits the draft."""
    documented: bool = False
    """Whether a codebook speaks of it."""
    also: tuple[str, ...] = ()
    """Other names that the codebook has for it."""
