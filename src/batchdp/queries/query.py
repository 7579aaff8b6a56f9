"""A linear query: the sum, over all records, of what each one adds."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchdp.queries.amounts import Amount

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
"""That can be given by hand."""


@dataclass(frozen=True)
class Item:
    """What is counted or summed, of which a query is one group: an item of a SELECT."""

    name: str
    select: int = 0
    """The number of its SELECT: two may give the same name to different groups."""
    weight: float = 1.0
    """How much it matters, by a hint in the SELECT."""
    of: str = ""
    """The derived answer that it is a part of."""
    share: float = 1.0
    """Of what counts as one statement: the parts of a derived answer are one together."""
    adds: str = ""
    """What it adds up, where its name does not say that."""


@dataclass(frozen=True)
class Query:
    """A name and how much each record adds to the answer."""

    name: str
    amount: Amount
    item: Item | None = field(default=None, compare=False)
    """Of which it is a group; itself if left out."""
    also: tuple[Item, ...] = field(default=(), compare=False)
    """Further items that need the same: parts of derived answers."""
    asked: bool = field(default=True, compare=False)
    """Whether somebody asked for it; if not, it is a part of a derived answer and no more."""
