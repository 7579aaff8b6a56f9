"""A table's own columns, with what a codebook says about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from batchdp.domain.codebooks.reading import Codebook
from batchdp.domain.described import ColumnType, Described
from batchdp.domain.names import folded

WORDS: dict[ColumnType, str] = {
    "text": "texts",
    "number": "numbers",
    "whole": "whole numbers",
    "date": "days",
    "boolean": "true and false",
}


def joined(columns: Iterable[Described], codebook: Codebook) -> list[Described]:
    """The columns under their own names: the table decides which there are, the codebook what they hold."""
    known = {folded(other): column for column in codebook.columns for other in column.also}
    known |= {folded(column.name): column for column in codebook.columns}
    return [_both(column, known.get(folded(column.name))) for column in columns]


def _both(column: Described, entry: Described | None) -> Described:
    if entry is None or column.kind == "other":
        return column
    found = replace(entry, name=column.name, step=column.step)
    if entry.kind in ("unknown", "other") or (column.kind == "boolean" and len(entry.values) == 2):
        return replace(found, kind=column.kind, values=())
    numeric = {column.kind, entry.kind} <= {"number", "whole"}
    if column.kind == "unknown" or column.kind == entry.kind or numeric:
        return found
    clash = f"EDIT: the codebook has {WORDS[entry.kind]} here, the table {WORDS[column.kind]}."
    return replace(found, notes=(*found.notes, clash))
