"""SQL to linear queries: parsed to an allow-list of syntax; no text of the user's ever reaches an engine."""

from batchdp.sql.script import read_queries

__all__ = ["read_queries"]
