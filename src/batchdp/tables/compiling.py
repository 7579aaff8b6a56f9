"""A query as the SQL of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ibis  # type: ignore[import-untyped]

from batchdp.tables.lookups import Lookup


@dataclass(frozen=True, repr=False)
class Query:
    """An ibis expression over a source's table and, by their names, over lookup tables that go along with it."""

    expression: Any
    lookups: tuple[Lookup, ...] = ()
    sets: tuple[tuple[str, ...], ...] = ()
    """Where given, the expression's rows are counted by each of these sets of its columns."""
    packs: tuple[tuple[tuple[str, int], ...], ...] = ()
    """How these columns go into few integers: for each integer the columns in it, with their strides."""
    spelled: dict[str, str] = field(default_factory=dict)
    """What it was compiled to, by dialect: it is checked before it is run."""

    @property
    def width(self) -> int:
        """How many columns it gives."""
        return len(self.packs) + 1 if self.sets else len(self.expression.schema().names)


def compiled(query: Query, dialect: str) -> str:
    """The SQL of a query."""
    if dialect not in query.spelled:
        query.spelled[dialect] = _compiled(query, dialect)
    return query.spelled[dialect]


def _compiled(query: Query, dialect: str) -> str:
    """Nested selects stay nested: fused, each of a hundred comparisons would parse or cast its column anew."""
    fused = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        sql = str(ibis.to_sql(query.expression, dialect=dialect, pretty=False))
    finally:
        ibis.options.sql.fuse_selects = fused
    if query.sets:
        sql = _by_sets(sql, query)
    if not query.lookups:
        return sql
    tables = ", ".join(lookup.sql() for lookup in query.lookups)
    return f"WITH {tables} SELECT * FROM ({sql}) AS counted"


def _by_sets(sql: str, query: Query) -> str:
    """The rows counted by sets of columns. A packed code is one more than the code, 0 where a row is not counted by it.

    ibis has no GROUPING SETS. All names here are our own, and codes are of 64 bits and never NULL.
    """
    one = "CAST(1 AS BIGINT)"
    shown = []
    for i, pack in enumerate(query.packs):
        parts = [f"COALESCE({name} + {one}, CAST(0 AS BIGINT)) * CAST({stride} AS BIGINT)" for name, stride in pack]
        shown.append(f"{' + '.join(parts) or 'CAST(0 AS BIGINT)'} AS k{i}")
    sets = ", ".join(f"({', '.join(names)})" for names in query.sets)
    listed = ", ".join([*shown, "COUNT(*) AS n"])
    return f"SELECT {listed} FROM ({sql}) AS coded GROUP BY GROUPING SETS ({sets})"
