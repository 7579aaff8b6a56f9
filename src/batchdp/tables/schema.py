"""The names and types of a table's columns, to draft a domain from. No record is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from batchdp.domain import Domain, as_domain
from batchdp.domain.draft import ColumnType
from batchdp.tables.files import ending, found, header
from batchdp.tables.opening import opened


def read_schema(table: str) -> tuple[str, dict[str, ColumnType]]:
    """A name for the table, and the type of every column; CSV files have names only."""
    is_address = "://" in table
    path = Path(table)
    if not is_address and (path.is_dir() or ending(path)):
        files, kind = found(path)
        name = _plain_name(path.name if path.is_dir() else path.name.split(".")[0])
        if kind == "CSV":
            return name, dict.fromkeys(header(files[0])[0], "unknown")
    else:
        _, mark, behind = table.rpartition("#")
        name = _plain_name(behind.rpartition(".")[2] if mark else path.stem)
    _, looked_at, engine = opened(table, _placeholder(name), ())
    try:
        return name, {column: _type(dtype) for column, dtype in looked_at.schema().items()}
    finally:
        engine.close()


def _placeholder(name: str) -> Domain:
    return as_domain({"table": name, "columns": {"any": {"values": [True]}}})


def _plain_name(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "records"


def _type(dtype: Any) -> ColumnType:
    if dtype.is_boolean():
        return "boolean"
    if dtype.is_integer():
        return "whole"
    if dtype.is_numeric():
        return "number"
    if dtype.is_date() or dtype.is_timestamp():
        return "date"
    return "text" if dtype.is_string() else "unknown"
