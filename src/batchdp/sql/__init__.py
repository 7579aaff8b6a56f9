"""SQL to linear queries: parsed to an allow-list of syntax; no text of the user's ever reaches an engine."""

from batchdp.sql.script import (
    Batch,
    batch_of,
    is_many,
    load_queries,
    load_text,
    queries_of,
    read_batch,
    read_queries,
    read_selections,
)

__all__ = [
    "Batch",
    "batch_of",
    "is_many",
    "load_queries",
    "load_text",
    "queries_of",
    "read_batch",
    "read_queries",
    "read_selections",
]
