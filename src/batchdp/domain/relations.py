"""What a statement counts: a declared table, tables joined on the unit, the persons of one, or a row for each person.

Every relation has columns like a table's and a cap: at most so many of its rows are one person's. Each table is capped
first, before anything here looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from batchdp.domain.columns import Column, Dates, Integers, Listed, Numbers, fold
from batchdp.domain.domain import LARGEST_CAP, Database, Domain, database_of
from batchdp.errors import DomainError
from batchdp.queries.query import Amount


@dataclass(frozen=True)
class Relation:
    """What is counted, as a table of its own."""

    domain: Domain = field(compare=False, repr=False)
    """Its columns, its name, and its cap as `rows_per_unit`."""

    @property
    def name(self) -> str:
        """What certificates and messages call it."""
        return self.domain.table

    @property
    def cap(self) -> int:
        """How many of its rows are one person's at most."""
        return self.domain.privacy.rows_per_unit

    @property
    def parts(self) -> tuple[Relation, ...]:
        """The relations that it is made of."""
        return ()

    @property
    def tables(self) -> Iterator[str]:
        """The declared tables that it is made of."""
        for part in self.parts:
            yield from part.tables


@dataclass(frozen=True)
class DeclaredTable(Relation):
    """A declared table."""

    table: str

    @property
    def tables(self) -> Iterator[str]:
        """Itself."""
        yield self.table


@dataclass(frozen=True)
class Joined(Relation):
    """Every row of one relation with every row of another of the same person."""

    left: Relation
    right: Relation
    outer: bool
    """Whether rows on the left without one on the right stay, with NULL on the right."""
    right_columns: tuple[tuple[str, str], ...] = ()
    """What columns on the right are called here and there."""

    @property
    def parts(self) -> tuple[Relation, ...]:
        """Both sides."""
        return self.left, self.right


GROUP = "group"
"""The one column of a relation of persons."""


@dataclass(frozen=True)
class Persons(Relation):
    """A row for every person and every group that one of the person's rows is in; its column is the group's number."""

    of: Relation
    groups: tuple[Amount, ...]
    """What a row adds to the count of every group: 1 or nothing, and 1 to one group at most."""

    @property
    def parts(self) -> tuple[Relation, ...]:
        """What the persons have rows of."""
        return (self.of,)


@dataclass(frozen=True)
class Aggregate:
    """What a person's rows come to in one column."""

    kind: Literal["count", "sum", "min", "max", "any"]
    """Any: the first in the order that is declared, NULL where none of the declared values is there."""
    column: str | None = None
    """None where rows are counted, whatever they have."""


@dataclass(frozen=True)
class PerPerson(Relation):
    """One row for every person who has a row that fulfils a condition, with aggregates of these rows."""

    of: Relation
    where: Amount | None
    """1 for rows that fulfil it, nothing for others."""
    columns: tuple[tuple[str, Aggregate], ...]

    @property
    def parts(self) -> tuple[Relation, ...]:
        """What the rows are aggregated of."""
        return (self.of,)


def joined(left: Relation, right: Relation, *, outer: bool) -> Joined:
    """Both joined on the unit; a row on the left meets at most the cap's number of rows on the right."""
    columns: dict[str, Column] = dict(left.domain.columns)
    taken = {fold(name) for name in (*columns, left.domain.privacy.unit or "")}
    taken |= {fold(name) for column in columns.values() for name in column.groupings or ()}
    called: list[tuple[str, str]] = []

    def free(name: str) -> str:
        while fold(name) in taken:
            name = f"{right.name.replace(' ', '_')}_{name}"
        taken.add(fold(name))
        return name

    for name, column in right.domain.columns.items():
        here = free(name)
        groupings = {free(one): how for one, how in (column.groupings or {}).items()} or None
        # What is dropped was dropped in the table; a row without a partner is none of it.
        columns[here] = column.model_copy(update={"other": "keep", "groupings": groupings})
        called.append((here, name))
    words = "LEFT JOIN" if outer else "JOIN"
    most = _most(left, lambda rows: rows * right.cap)
    domain = _derived(f"{left.name} {words} {right.name}", left.domain, left.cap * right.cap, columns, most)
    return Joined(domain, left, right, outer, tuple(called))


def persons(of: Relation, groups: tuple[Amount, ...], called: str) -> Persons:
    """The persons of a relation by groups: one can be in as many as there are rows of them, and groups."""
    columns: dict[str, Column] = {GROUP: Integers(integers=(0, len(groups) - 1))}
    domain = _derived(called, of.domain, min(of.cap, len(groups)), columns, _most(of, lambda rows: rows))
    return Persons(domain, of, groups)


def per_person(of: Relation, where: Amount | None, columns: Sequence[tuple[str, Aggregate]]) -> PerPerson:
    """One row per person; what its columns can hold follows from the cap and from what is declared."""
    declared = {name: _aggregated(of, one) for name, one in columns}
    unit = of.domain.privacy.unit
    domain = _derived(f"{of.name} by {unit}", of.domain, 1, declared, _most(of, lambda rows: rows))
    return PerPerson(domain, of, where, tuple(columns))


LARGEST_SUM = 2**50
"""Steps that the sum of a person's rows can have, and whole numbers that floats hold exactly."""


def _aggregated(of: Relation, one: Aggregate) -> Column:
    """The column that an aggregate is; a `DomainError` says why it can be none."""
    if one.column is None:
        return Integers(integers=(1, of.cap))
    column = of.domain.columns[one.column]
    if one.kind == "count":
        return Integers(integers=(0, of.cap))
    if one.kind == "any":
        return column.model_copy(update={"other": "keep"})
    if isinstance(column, Listed):
        remedy = "write ANY_VALUE, or declare integers, range or dates"
        raise DomainError(f"{one.kind.upper()} of {one.column}, which lists values; {remedy}")
    if one.kind != "sum":
        return column.model_copy(update={"other": "keep"})
    if isinstance(column, Dates) or (grid := column.grid) is None or grid.low % grid.step:
        raise DomainError(f"SUM of {one.column}; declare it as integers, or as a range from a multiple of its step")
    low, high = min(grid.low, of.cap * grid.low), max(grid.high, of.cap * grid.high)
    if max(abs(low), abs(high)) * grid.step.denominator > LARGEST_SUM or grid.steps * of.cap > LARGEST_SUM:
        raise DomainError(f"SUM of {one.column} has too many values; declare coarser steps or a shorter range")
    if isinstance(column, Integers):
        return Integers(integers=(int(low), int(high)))
    return Numbers(range=(float(low), float(high)), step=float(grid.step))


def as_counted(domain: Domain, relations: Sequence[Relation]) -> Domain:
    """The domain with every relation as one table more; itself where there are none."""
    if not relations:
        return domain
    own = domain.tables if isinstance(domain, Database) else {domain.table: domain}
    if taken := next((one.name for one in relations if one.name in own), None):
        raise DomainError(
            f"{taken!r} is the name of a table, and of a join or subquery of other tables; rename the table"
        )
    return database_of({**own, **{one.name: one.domain for one in relations}}, domain, tuple(relations))


def _most(of: Relation, change: Callable[[int], int]) -> int | None:
    rows = of.domain.privacy.max_rows
    return None if rows is None else min(change(rows), 10**15)


def _derived(name: str, like: Domain, cap: int, columns: Mapping[str, Column], max_rows: int | None) -> Domain:
    """The domain of a relation, with the protection of another."""
    if cap > LARGEST_CAP:
        raise DomainError(f"{name}: one person has up to {cap:,} rows, more than {LARGEST_CAP:,}; lower rows_per_unit")
    privacy = like.privacy.model_copy(update={"rows_per_unit": cap, "max_rows": max_rows})
    return Domain.model_construct(table=name, privacy=privacy, columns=dict(columns), lookups=like.lookups)
