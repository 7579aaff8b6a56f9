"""An ibis expression as the SQL of an engine."""

from __future__ import annotations

from typing import Any

import ibis  # type: ignore[import-untyped]


def compiled(query: Any, dialect: str) -> str:
    """The SQL of a query.

    Nested selects stay nested: fused, each of a hundred comparisons would parse or cast its column anew.
    """
    fused = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        return str(ibis.to_sql(query, dialect=dialect, pretty=False))
    finally:
        ibis.options.sql.fuse_selects = fused
