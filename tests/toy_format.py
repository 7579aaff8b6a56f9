"""A file format in one file: a table as JSON, one row per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from batchdp.release.exports import WRITERS, Columns


def write_lines(path: Path, columns: Columns, _groups: list[str], _notes: tuple[str, ...]) -> None:
    """One object per row, with the columns' names."""
    rows: list[Any] = [dict(zip(columns, row, strict=True)) for row in zip(*map(list, columns.values()), strict=True)]
    path.write_text("".join(json.dumps(row, default=float) + "\n" for row in rows), encoding="utf-8")


WRITERS["jsonl"] = write_lines
