"""Any other engine that ibis can talk to, by a table that the user has opened with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from batchdp.tables.compiling import Query
from batchdp.tables.postgres import without_nan
from batchdp.tables.shield import shielded
from batchdp.tables.source import UNKNOWN_PROGRESS, Columns, as_columns


class IbisEngine:
    """The backend that the table is bound to."""

    dialect = None

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # ibis calls what its engines have renamed
            reader = query.expression.to_pyarrow_batches()
            batch = next(reader, None)
        while batch is not None:
            yield as_columns(batch)
            batch = next(reader, None)

    def progress(self) -> float:
        """Not to be had through ibis."""
        return UNKNOWN_PROGRESS

    def close(self) -> None:
        """The connection is the user's."""


def open_ibis(table: Any) -> tuple[str, Any, IbisEngine]:
    """Description, ibis table and engine."""
    backend = shielded(lambda: str(table.get_backend().name), "looking at the ibis table")
    if backend == "postgres":
        numerics = {name: without_nan(table[name]) for name, dtype in table.schema().items() if dtype.is_decimal()}
        table = table.mutate(**numerics) if numerics else table
    return f"the ibis table on {backend}", table, IbisEngine()
