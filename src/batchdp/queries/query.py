"""A linear query: the sum, over all records, of what each one adds."""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.queries.amounts import Amount


@dataclass(frozen=True)
class Query:
    """A name and how much each record adds to the answer."""

    name: str
    amount: Amount
