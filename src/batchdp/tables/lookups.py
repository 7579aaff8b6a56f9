"""Long lists of values: a small table within the query that the records are joined with.

A CASE with a branch for each value is tried from the top for every record, which thousands of values make slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np
import sqlglot.expressions as sge
from ibis.backends.sql.datatypes import (  # type: ignore[import-untyped]
    DuckDBType,
    PostgresType,
    PySparkType,
)

from batchdp.cells.atoms import Atoms, ListedAtoms
from batchdp.queries.conditions import Value
from batchdp.tables.coding import is_held
from batchdp.tables.reading import BYTES

SHORT = 32
"""So many values are tried one by one."""
SQL_TYPES = {"duckdb": DuckDBType, "postgres": PostgresType, "pyspark": PySparkType}


@dataclass(frozen=True)
class Lookup:
    """Values of a column with their atoms, as a table `name(value, atom)`."""

    name: str
    dialect: str
    dtype: Any
    """The ibis type of the column, which the values are given too."""
    atoms: tuple[tuple[Value, int], ...]

    def sql(self) -> str:
        """The table as a part of WITH."""
        dialect = {"pyspark": "spark"}.get(self.dialect, self.dialect)
        rows = ", ".join(f"({sge.convert(_text(value)).sql(dialect=dialect)}, {atom})" for value, atom in self.atoms)
        type_ = ibis.expr.datatypes.dtype(self.dtype)(nullable=True)
        spelled = SQL_TYPES[self.dialect].from_ibis(type_).sql(dialect=dialect)
        # The value is cast to the column's own type and the atom to 64 bits: engines would choose smaller ones.
        return (
            f"{self.name} AS (SELECT CAST(value AS {spelled}) AS value, CAST(atom AS BIGINT) AS atom "
            f"FROM (VALUES {rows}) AS listed(value, atom))"
        )


def lookup(atoms: Atoms, name: str, dtype: Any, dialect: str, collates: bool) -> Lookup | None:
    """The table for a long list, and for texts that a collation could confuse; None for everything else."""
    if not isinstance(atoms, ListedAtoms) or atoms.kind == "boolean":
        return None
    found: dict[Value, int] = dict.fromkeys(atoms.declared or (), len(atoms.groups))
    found |= {value: i for i, group in enumerate(atoms.groups) for value in group}
    if len(found) <= SHORT and not (collates and atoms.kind == "text"):
        return None
    held = [(value, atom) for value, atom in found.items() if isinstance(value, str) or is_held(value, dtype)]
    if dtype.is_float32():  # which takes neighbouring whole numbers for one; the first atom has them
        held = list(
            {np.float32(value): (value, atom) for value, atom in sorted(held, key=lambda one: -one[1])}.values()
        )
    return Lookup(name, dialect, dtype, tuple(held)) if held else None


def joined(rows: Any, column: str, table: Lookup, place: str, collates: bool) -> Any:
    """The rows with their atoms in the column `place`; NULL where the value is not in the table."""
    there = ibis.table({"value": table.dtype, "atom": "int64"}, name=table.name)
    match = rows[column] == there["value"]
    if collates and table.dtype.is_string():
        # Bytes, because a collation that takes two values for one would find a record twice.
        match = BYTES[table.dialect](rows[column]) == BYTES[table.dialect](there["value"])
    return rows.left_join(there, match).select(rows, **{place: there["atom"]})


def _text(value: Value) -> str:
    return value if isinstance(value, str) else str(int(value))
