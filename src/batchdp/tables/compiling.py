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
    spelled: dict[str, str] = field(default_factory=dict)
    """What it was compiled to, by dialect: it is checked before it is run."""

    @property
    def width(self) -> int:
        """How many columns it gives."""
        return len(self.expression.schema().names)


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
    if not query.lookups:
        return sql
    tables = ", ".join(lookup.sql() for lookup in query.lookups)
    return f"WITH {tables} SELECT * FROM ({sql}) AS counted"
