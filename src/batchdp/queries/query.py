"""A query as a value: conditions on columns and amounts, groups and statements, whatever language they came from."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction

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


@dataclass(frozen=True)
class Term:
    """A multiple of the number in a column, or of the place of its value among some where it lists its values."""

    column: str
    factor: Fraction
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Compared:
    """The sum of some terms lies between two whole numbers, both included, each open-ended if left out.

    Factors are such that every sum is a whole number. It is unknown where a column is NULL or has an undeclared value.
    """

    terms: tuple[Term, ...]
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Each:
    """Every declared value of a column is told apart."""

    column: str


Leaf = OneOf | Within | Missing
Condition = Leaf | Compared | All | Any | Negation | Truth


@dataclass(frozen=True)
class Constant:
    """The same number for every record."""

    number: float


@dataclass(frozen=True)
class ValueOf:
    """The number in a column with declared integers or a step; 0 for NULL and for anything else."""

    column: str
    counted: bool = False
    """1 in the place of the number: how many numbers a sum has."""


@dataclass(frozen=True)
class Choice:
    """One amount where the condition is true, another where it is false or unknown."""

    condition: Condition
    then: Amount
    otherwise: Amount


@dataclass(frozen=True)
class Scaled:
    """A multiple of an amount."""

    factor: float
    amount: Amount


@dataclass(frozen=True)
class Total:
    """The sum of amounts."""

    amounts: tuple[Amount, ...]


@dataclass(frozen=True)
class Computed:
    """The sum of some terms; 0 where one of their columns is NULL or has an undeclared value."""

    terms: tuple[Term, ...]
    divisor: int = 1
    """Of the sum, which is a whole number as in `Compared`."""
    counted: bool = False
    """1 in the place of the number: how many numbers a sum has."""


@dataclass(frozen=True)
class Person:
    """1 for a person with at least one record that fulfils a condition, nothing more for further ones.

    No record adds this by itself: persons are rows of a relation of their own (`domain.relations.Persons`).
    """

    condition: Condition | None = None


Amount = Constant | ValueOf | Choice | Scaled | Total | Computed | Person


_NOTHING = Constant(0.0)


@dataclass(frozen=True)
class Group:
    """The records for which the first condition that is true is one of the group's; or none is, if `rest`."""

    title: str
    cases: tuple[tuple[Condition, bool], ...]
    """Conditions in the order of the CASE, each with whether it leads here."""
    rest: bool = False

    @property
    def condition(self) -> Condition | None:
        """The one condition that says it all; None for a CASE."""
        return self.cases[0][0] if len(self.cases) == 1 and self.cases[0][1] and not self.rest else None

    def of(self, amount: Amount) -> Amount:
        """The amount for records in the group, nothing for others."""
        found: Amount = amount if self.rest else _NOTHING
        for holds, here in reversed(self.cases):
            found = Choice(holds, amount if here else _NOTHING, found)
        return found


@dataclass(frozen=True)
class Over:
    """An amount of all groups together but for those of some keys: what a window function adds up."""

    amount: Amount
    keys: frozenset[str]
    """By whose groups it is told apart, as PARTITION BY says."""


def union(groups: Sequence[Group]) -> Group:
    """The records in any of a key's groups."""
    if all(group.condition is not None for group in groups):
        conditions = tuple(group.cases[0][0] for group in groups)
        return Group(ALL, ((conditions[0] if len(conditions) == 1 else Any(conditions), True),))
    cases = tuple((own[0][0], any(here for _, here in own)) for own in zip(*(g.cases for g in groups), strict=True))
    return Group(ALL, cases, any(group.rest for group in groups))


def restricted(amount: Amount, groups: Sequence[Group], where: Condition | None) -> Amount:
    """The amount for records in all of these groups that fulfil the condition, nothing for others."""
    conditions = [group.condition for group in groups if group.condition is not None]
    conditions += [] if where is None else [where]
    for group in reversed(groups):
        if group.condition is None:
            amount = group.of(amount)
    if not conditions:
        return amount
    return Choice(conditions[0] if len(conditions) == 1 else All(tuple(conditions)), amount, _NOTHING)


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
    table: str = ""
    """Whose rows add to it, where a domain has several tables."""
    asked: bool = field(default=True, compare=False)
    """Whether somebody asked for it; if not, it is a part of a derived answer and no more."""


GROUPED = re.compile(r"(?P<name>.+?)\[(?P<groups>[^=\]]+=.*)\]", re.DOTALL)
"""What plans call a query of a statement with GROUP BY: name[column=group, …]."""
ALL = "all"
"""What a name says of a key that a row adds up over, where SQL engines have NULL."""
OTHER, MISSING = "anything else", "NULL"
"""What the groups beside the declared ones are called, in parentheses."""
QUERY = "query"
"""The group column of queries whose names say no more."""
SINGLE = "answers"
"""What single answers are called together."""


def in_name(title: str) -> str:
    """A group's title as names have it: one that would look like a row that adds up is quoted."""
    return f"'{title}'" if title.strip("'") == ALL else title


def in_column(text: str) -> str | None:
    """What a name says of a group as tables have it: the title, or nothing where the row adds up over the key."""
    if text == ALL:
        return None
    return text[1:-1] if text.startswith("'") and text.strip("'") == ALL else text


@dataclass(frozen=True)
class Statement:
    """Some of the answers, by position: those of one statement."""

    name: str
    columns: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    """For every answer the text of its group in each column."""
    answers: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis: the answers as they come."""
        return (len(self.answers),) if self.columns else ()

    @property
    def labels(self) -> list[str]:
        """What tells the answers of this table apart, a text each."""
        return [", ".join(own) or self.name for own in self.groups]

    def without(self, names: Collection[str]) -> Statement:
        """The same without answers of these names: all of a table with such a name, or single ones."""
        single = self.columns == (QUERY,)
        kept = [k for k, label in enumerate(self.labels) if (label if single else self.name) not in names]
        return replace(self, groups=tuple(self.groups[k] for k in kept), answers=tuple(self.answers[k] for k in kept))


def statements_of(names: Sequence[str]) -> list[Statement]:
    """One for every name before the groups; queries that are none of them grouped are one table together."""
    return _gathered(names, alone=len(names) == 1 or any(GROUPED.fullmatch(name) for name in names))


def tables_of(names: Sequence[str]) -> list[Statement]:
    """The same with all single answers as one table, the first: what people look at."""
    found = _gathered(names, alone=False)
    return sorted(found, key=lambda one: (one.name, one.columns) != (SINGLE, (QUERY,)))


def _gathered(names: Sequence[str], *, alone: bool) -> list[Statement]:
    found: dict[tuple[str, tuple[str, ...]], list[tuple[int, tuple[str, ...]]]] = {}
    for q, name in enumerate(names):
        own, columns, groups = _read(name, alone=alone)
        found.setdefault((own, columns), []).append((q, groups))
    return [
        Statement(name, columns, tuple(groups for _, groups in own), tuple(q for q, _ in own))
        for (name, columns), own in found.items()
    ]


def _read(name: str, *, alone: bool) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    grouped = GROUPED.fullmatch(name)
    if grouped is None:
        return (name, (), ()) if alone else (SINGLE, (QUERY,), (name,))
    # A group's own text may hold ", ": only what looks like the beginning of a column's group parts them.
    parts = re.split(r", (?=\w+=)", grouped["groups"])
    pairs = [part.partition("=") for part in parts]
    columns = tuple(column for column, _, _ in pairs)
    if len(set(columns)) != len(columns):
        return grouped["name"], (QUERY,), (name,)
    return grouped["name"], columns, tuple(group for _, _, group in pairs)
