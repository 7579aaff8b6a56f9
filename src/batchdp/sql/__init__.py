"""SQL to linear queries: parsed to an allow-list of syntax; no text of the user's ever reaches an engine."""

from batchdp.sql.batch import load_queries, load_text, read_queries

__all__ = ["load_queries", "load_text", "read_queries"]
