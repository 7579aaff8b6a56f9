"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, whether it held, and the figures."""

    check: str
    held: bool
    figures: str
