"""What a record must fulfil: conditions on single columns, joined by AND, OR and NOT in SQL's three-valued logic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Value = str | int | bool
"""A declared value of a column that lists its values."""
Place = int | float
"""A number on a column's line; a date is the number of its day (`date.toordinal`)."""


class Truth(Enum):
    """What a condition is for a record. NULL makes a comparison unknown, and NOT leaves unknown what is unknown."""

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2


@dataclass(frozen=True, order=True)
class Cut:
    """Where a line is cut: just before a value, or just after it."""

    value: Place
    after: bool = False


@dataclass(frozen=True)
class OneOf:
    """The column's value is among these declared ones; unknown for NULL, false for anything else."""

    column: str
    values: frozenset[Value]


@dataclass(frozen=True)
class Within:
    """The column's value lies between two cuts, each open-ended if left out; unknown for NULL.

    Both ends of the line belong to it: a value beyond the declared range is above or below all declared ones.
    """

    column: str
    low: Cut | None
    high: Cut | None


@dataclass(frozen=True)
class Missing:
    """The column is NULL (or not a number); never unknown."""

    column: str


@dataclass(frozen=True)
class All:
    """Every one of the conditions holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    """At least one of the conditions holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Negation:
    """The condition is false."""

    condition: Condition


Leaf = OneOf | Within | Missing
Condition = Leaf | All | Any | Negation | Truth
