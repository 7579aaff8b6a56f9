"""Long lists of values: a small table within the query that the records are joined with.

A CASE with a branch for each value is tried from the top for every record, which thousands of values make slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ibis  # type: ignore[import-untyped]
import sqlglot.expressions as sge

from batchdp.cells.atoms import Atoms, ListedAtoms
from batchdp.domain.columns import LARGEST
from batchdp.queries.conditions import Value
from batchdp.tables.coding import is_whole

SHORT = 32
"""So many values are tried one by one."""


@ibis.udf.scalar.builtin(name="encode")  # type: ignore[untyped-decorator]
def _encode(text: str) -> bytes:
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="encode")  # type: ignore[untyped-decorator]
def _encode_as(text: str, encoding: str) -> bytes:
    raise NotImplementedError


@ibis.udf.scalar.builtin(name="convert_to")  # type: ignore[untyped-decorator]
def _convert_to(text: str, encoding: str) -> bytes:
    raise NotImplementedError


BYTES = {
    "duckdb": lambda text: _encode(text),
    "pyspark": lambda text: _encode_as(text, "UTF-8"),
    "postgres": lambda text: _convert_to(text, "UTF8"),
}
"""How a text becomes bytes, by the engine's dialect."""


@dataclass(frozen=True)
class Lookup:
    """Values of a column with their atoms, as a table `name(value, atom)`."""

    name: str
    dialect: str
    atoms: tuple[tuple[Value, int], ...]

    def sql(self) -> str:
        """The table as a part of WITH."""
        dialect = {"pyspark": "spark"}.get(self.dialect, self.dialect)
        rows = ", ".join(f"({sge.convert(value).sql(dialect=dialect)}, {atom})" for value, atom in self.atoms)
        return f"{self.name}(value, atom) AS (VALUES {rows})"


def lookup(atoms: Atoms, name: str, dialect: str | None) -> Lookup | None:
    """The table for a long list; None for everything else, and for engines that are not known to cope with it."""
    if not isinstance(atoms, ListedAtoms) or atoms.kind == "boolean" or dialect is None:
        return None
    found: dict[Value, int] = dict.fromkeys(atoms.declared or (), len(atoms.groups))
    found |= {value: i for i, group in enumerate(atoms.groups) for value in group}
    return Lookup(name, dialect, tuple(found.items())) if len(found) > SHORT else None


def joined(rows: Any, column: str, table: Lookup, place: str) -> Any:
    """The rows with their atoms in the column `place`; NULL where the value is not in the table."""
    text = rows[column].type().is_string()
    there = ibis.table({"value": "string" if text else "int64", "atom": "int64"}, name=table.name)
    if text:
        # Bytes, because a collation that takes two values for one would find a record twice.
        match = BYTES[table.dialect](rows[column]) == BYTES[table.dialect](there["value"])
    else:
        match = whole_numbers(rows[column]) == there["value"]
    return rows.left_join(there, match).select(rows, **{place: there["atom"]})


def whole_numbers(column: Any) -> Any:
    """The column's whole numbers, as such; NULL for others."""
    if column.type().is_integer():
        return column
    inside = (column >= -LARGEST) & (column <= LARGEST)
    return ibis.ifelse(inside, ibis.ifelse(is_whole(column), column.cast("int64"), ibis.null()), ibis.null())
