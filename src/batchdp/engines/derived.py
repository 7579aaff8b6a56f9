"""Columns that are computed from others: what kind of value a record has, its month, how many rows its unit has.

Each depends on the record itself alone, or on the rows of the record's own unit: so a unit that comes or goes changes
nothing about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import ibis  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.domain.columns import LARGEST, Column, fold
from batchdp.engines.columns import PARSING, declared_columns, identify, is_missing, is_whole, known, read_column
from batchdp.engines.source import Source
from batchdp.errors import TableError

How = Literal["kind", "month", "rows", "value"]
WHOLE, NUMBER, DAY, OTHER = 1, 2, 3, 4
"""What `kind` says of a value; NULL of none."""


@dataclass(frozen=True)
class Derived:
    """A table, and which of a domain's columns are computed from which of its own: `rows` from none."""

    table: Any
    columns: Mapping[str, tuple[How, str | None]]
    types: Mapping[str, Column]
    """Its own columns, each declared as something that its type can be read as."""


def open_derived(
    open_: Callable[[Any, Domain], Source], given: Derived, domain: Domain, columns: Collection[str] | None
) -> Source:
    """The table, open for reading, with its computed columns beside the others."""
    asked = domain.columns if columns is None else columns
    wanted = {name: given.columns.get(name) for name in domain.columns if fold(name) in {fold(one) for one in asked}}
    sources = {name: name if how is None else how[1] for name, how in wanted.items()}
    needed = {source: given.types[source] for source in sources.values() if source is not None}
    inner = domain.model_copy(update={"columns": needed or dict(list(given.types.items())[:1])})
    source = open_(given.table, inner)
    dialect = source.engine.dialect
    table = source.table if source.unit is None else source.table.mutate(**{"unit of a row": source.unit})
    unit = None if source.unit is None else table["unit of a row"]
    made = {}
    for i, (name, how) in enumerate(wanted.items()):
        if how is not None:
            column = None if how[1] is None else table[source.places[_key(source, how[1])]]
            made[f"derived {i}"] = _compute(how[0], column, unit, source, dialect), name
    table = table.mutate(**{place: expression for place, (expression, _) in made.items()})
    places = {key: place for key, place in source.places.items() if key is None or (key in wanted and not wanted[key])}
    places |= {name: place for place, (_, name) in made.items()}
    names = {key: source.names.get(key, str(key)) for key in places}
    return replace(
        source,
        table=table,
        names=names,
        places=places,
        unit=None if unit is None else table["unit of a row"],
        declared=declared_columns(domain, names),
    )


def _key(source: Source, name: str) -> str:
    return next(key for key in source.places if key is not None and fold(key) == fold(name))


def _compute(how: How, column: Any, unit: Any, source: Source, dialect: str) -> Any:
    if how == "rows":
        if unit is None:
            raise TableError("how many rows a unit has cannot be counted without a unit")
        group = identify(unit, dialect, source.engine.collates)
        # In an order, for without one DuckDB joins the records with themselves: a stream is read only once.
        return unit.count().over(group_by=group, order_by=group, rows=(None, None)).cast("int64")
    if how == "value":
        return column
    if how == "month":
        day = read_column(column, "date", dialect)
        return (day.year() * 12 + day.month()).cast("int64")
    return _kind(column, dialect)


def _kind(column: Any, dialect: str) -> Any:
    """Which kind of value it is: by the column's type, and by the text itself where texts are parsed."""
    dtype = column.type()
    nothing = ibis.null("int64")

    def number(read: Any) -> Any:
        if dtype.is_integer():
            return _code(WHOLE)
        # As a float, for a decimal may have no room for the ends, and an engine that compares them would fail.
        inside = read.cast("float64") if dtype.is_decimal() else known(read)
        whole = is_whole(inside) & (inside >= -LARGEST) & (inside <= LARGEST)
        return ibis.ifelse(whole, _code(WHOLE), _code(NUMBER))

    if dtype.is_integer() or dtype.is_decimal() or dtype.is_floating():
        return ibis.ifelse(is_missing(column), nothing, number(column))
    if dtype.is_date() or dtype.is_timestamp():
        return ibis.ifelse(column.isnull(), nothing, _code(DAY))
    if not dtype.is_string() or dialect not in PARSING:
        return ibis.ifelse(column.isnull(), nothing, _code(OTHER))
    read, day = read_column(column, "number", dialect), read_column(column, "date", dialect)
    other = ibis.ifelse(day.isnull(), _code(OTHER), _code(DAY))
    return ibis.ifelse(column.isnull(), nothing, ibis.ifelse(is_missing(read), other, number(read)))


def _code(kind: int) -> Any:
    return ibis.literal(kind).cast("int64")
