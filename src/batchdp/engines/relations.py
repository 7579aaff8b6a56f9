"""Joins, persons and rows for each person, in the engine: what a table's rows become before they are counted.

Each table is capped first, by the lot that its own counts are capped by. Who is one person is decided once, for the
cap, for a join and for persons alike: by the unit itself, and in a join by how it is spelled; of text that may have a
collation, by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from itertools import count
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np

from batchdp.domain import Domain, Integers, Listed, Numbers
from batchdp.domain.relations import GROUP, Aggregate, DeclaredTable, Joined, PerPerson, Persons, Relation
from batchdp.engines.coding import (
    Lookup,
    constant,
    finest,
    join_lookup,
    keeps,
    pack,
    place_on_grid,
    sum_limbs,
    value_at,
)
from batchdp.engines.columns import identify, is_missing, kind_of, known, read_column, spell
from batchdp.engines.counting import Counted, bound_units, counted_by, lots, ready, tell_apart
from batchdp.engines.source import Engine, Query, Source, shield
from batchdp.errors import TableError
from batchdp.queries.query import Amount
from batchdp.text import Progress
from batchdp.workloads.encode.atoms import Atoms, ListedAtoms, split
from batchdp.workloads.encode.several import disjoint

UNIT = "unit"


@dataclass(frozen=True)
class Rows:
    """The rows of a relation, with whose each is and its columns as they are declared."""

    table: Any
    columns: Mapping[str, str]
    """What the table calls every declared column."""
    lookups: tuple[Lookup, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where the tables of a relation are: one engine, by their declared names."""

    sources: Mapping[str, Source]
    engine: Engine
    marks: Iterator[int] = field(default_factory=count)
    """Of the stages of one query, whose names must differ."""

    @property
    def description(self) -> str:
        """What messages call it."""
        return " and ".join(dict.fromkeys(source.description for source in self.sources.values()))

    def mark(self) -> str:
        """What keeps the names of a stage apart from those of all others."""
        return f"{next(self.marks)}_"


def prepare_relation(
    relation: Relation, sources: Mapping[str, Source], atoms: Sequence[Atoms]
) -> Callable[[Progress | None], Iterator[Counted]]:
    """What counts a relation's rows by atoms, once the engine has accepted the query; as `prepare_count` for a table.

    Args:
        relation: what is counted.
        sources: its tables, by their declared names, each opened with all of its columns.
        atoms: of the relation's columns.
    """
    place = _place(relation, sources)
    packs = pack([one.size for one in atoms])

    def made() -> Query:
        rows = rows_of(relation, place)
        told = tell_apart(rows.table, [rows.columns[one.column] for one in atoms], atoms, place.engine, place.mark())
        coded = told.rows.select(**told.packed(packs), **told.steps())
        names = [f"p{i}" for i in range(len(packs))]
        return Query(counted_by(coded, names, atoms), (*rows.lookups, *told.tables))

    query = shield(made, f"counting in {place.description}")
    return ready(place.engine, place.description, query, atoms)


def _place(relation: Relation, sources: Mapping[str, Source]) -> Place:
    """Where all tables of a relation are; refused unless one query can look at them, and tell persons alike."""
    own = {name: sources[name] for name in relation.tables}
    first, *others = own.values()
    for other in others:
        if other.engine.place != first.engine.place:
            raise TableError(
                f"{relation.name}: {first.description} and {other.description} cannot be looked at by one query; give "
                "files and frames, or one database or session that has both"
            )
    if others:
        for name, source in own.items():
            _check_unit(name, source)
        if len({source.unit_rule for source in own.values()} - {None}) > 1:
            told = " and ".join(f"{source.unit_rule or 'its spelling'} in {name}" for name, source in own.items())
            raise TableError(
                f"{relation.name}: the privacy unit is told apart by {told}; give it as a text or a whole number in all"
            )
    return Place(own, first.engine.beside([other.engine for other in others]) if others else first.engine)


def _check_unit(name: str, source: Source) -> None:
    """Refuse a unit that is spelled by rules of its type: the other side might spell the same one another way."""
    dtype = source.unit.type()
    if not (dtype.is_string() or dtype.is_integer() or dtype.is_null()):
        raise TableError(
            f"{name}: the privacy unit {source.names[None]!r} is {dtype} in {source.description}; for joins, give a "
            "view in which it is a text or a whole number"
        )


@singledispatch
def rows_of(relation: Relation, place: Place) -> Rows:
    """The rows of a relation; each kind registers its own."""
    raise TypeError(f"nothing says which rows a {type(relation).__name__} has")


@rows_of.register
def _(relation: DeclaredTable, place: Place) -> Rows:
    """Those of a table that are kept, without those of nobody, and at most the cap's number of everybody's."""
    source, domain = place.sources[relation.table], relation.domain
    dialect = place.engine.dialect
    if source.unit is None:
        raise TableError(f"the privacy unit was not asked for when {source.description} was opened")
    names = {name: f"c{i}" for i, name in enumerate(domain.columns)}
    read = {
        here: read_column(source.column(name), kind_of(domain.columns[name]), dialect) for name, here in names.items()
    }
    drawn = lots(source)
    # By itself in one table, where types may be spelled alike that differ; of several, only texts and whole numbers.
    who = source.unit if len(place.sources) == 1 else spell(source.unit, dialect)
    rows = source.table.select(unit=identify(who, dialect, place.engine.collates), **read, **drawn)
    dropping = split((), domain)
    told = tell_apart(rows, [names[one.column] for one in dropping], dropping, place.engine, place.mark())
    told = told.where(~is_missing(told.rows[UNIT]))
    bounded = bound_units(told.rows, [*drawn], relation.cap)
    return Rows(bounded.select(UNIT, *read), names, told.tables)


@rows_of.register
def _(relation: Joined, place: Place) -> Rows:
    """Every row on the left with every row on the right of the same person."""
    left, right = rows_of(relation.left, place), rows_of(relation.right, place)
    own = {there: f"r{i}" for i, (_, there) in enumerate(relation.right_columns)}
    places = {name: f"l{i}" for i, name in enumerate(left.columns)}
    ours = left.table.select(UNIT, **{places[name]: left.table[at] for name, at in left.columns.items()})
    theirs = right.table.select(
        theirs=right.table[UNIT], **{own[name]: right.table[at] for name, at in right.columns.items()}
    )
    met = ours.join(theirs, ours[UNIT] == theirs["theirs"], how="left" if relation.outer else "inner")
    columns = places | {here: own[there] for here, there in relation.right_columns}
    return Rows(met.select(UNIT, *columns.values()), columns, left.lookups + right.lookups)


@rows_of.register
def _(relation: Persons, place: Place) -> Rows:
    """Everybody once in every group that one of their rows is in."""
    rows = rows_of(relation.of, place)
    found, lookups = numbered(rows, relation.of, relation.groups, place)
    own = found.filter(found[GROUP] >= constant(0)).select(UNIT, GROUP).distinct()
    return Rows(own, {GROUP: GROUP}, rows.lookups + lookups)


@rows_of.register
def _(relation: PerPerson, place: Place) -> Rows:
    """What everybody's rows come to, of those who have any."""
    rows = rows_of(relation.of, place)
    table, lookups = rows.table, rows.lookups
    if relation.where is not None:
        found, more = numbered(rows, relation.of, (relation.where,), place)
        table, lookups = found.filter(found[GROUP] == constant(0)), lookups + more
    own = {name: f"s{i}" for i, (name, _) in enumerate(relation.columns)}
    first = {name: one.column or "" for name, one in relation.columns if one.kind == "any"}
    listed = {name: _each_value(column, relation.of.domain) for name, column in first.items()}
    atoms = {name: found for name, found in listed.items() if found is not None}
    own_columns = [rows.columns[first[name]] for name in atoms]
    told = tell_apart(table, own_columns, list(atoms.values()), place.engine, place.mark())
    table, places = told.rows, dict(zip(atoms, map(told.code, range(len(atoms))), strict=True))
    sums = {}
    for name, one in relation.columns:
        if name in atoms:
            there = places[name] < constant(len(atoms[name].groups))
            sums[own[name]] = ibis.ifelse(there, places[name], ibis.null("int64")).min()
        else:
            sums[own[name]] = _aggregated(table, rows, relation.of, one, place.engine.dialect)
    everybody = table.group_by(UNIT).aggregate(rows=table.count(), **sums)
    values = {own[name]: value_at(everybody[own[name]], each) for name, each in atoms.items()}
    return Rows(everybody.mutate(**values).select(UNIT, *own.values()), own, (*lookups, *told.tables))


def _each_value(name: str, domain: Domain) -> ListedAtoms | None:
    """A column's listed values, each by itself in the order in which they are declared; None where they are a line."""
    column = domain.columns[name]
    if not isinstance(column, Listed):
        return None
    return ListedAtoms(name, column.kind, tuple((value,) for value in column.values), None)


def _aggregated(table: Any, rows: Rows, of: Relation, one: Aggregate, dialect: str) -> Any:
    """What a person's rows come to in a column; no value of a row may raise."""
    if one.column is None:
        return table.count().cast("int64")
    declared = of.domain.columns[one.column]
    column = known(table[rows.columns[one.column]])
    if one.kind == "any":
        return _declared_alone(column, one.column, of.domain).min()
    if one.kind != "sum":
        return {"count": column.count().cast("int64"), "min": column.min(), "max": column.max()}[one.kind]
    assert isinstance(declared, Integers | Numbers)
    assert declared.grid is not None
    grid = declared.grid
    steps = place_on_grid(table[rows.columns[one.column]], finest(declared), dialect)
    units = sum_limbs(steps) + steps.count().cast("int64") * constant(int(grid.low / grid.step))
    if isinstance(declared, Integers):
        return units
    # One division of whole numbers that floats hold: the float next to the exact sum.
    return (units * constant(grid.step.numerator)).cast("float64") / ibis.literal(float(grid.step.denominator))


def _declared_alone(column: Any, name: str, domain: Domain) -> Any:
    """The values of a line that are declared, NULL for others; what is beyond an end may count as that end later."""
    declared = domain.columns[name]
    if getattr(declared, "outside", None) is not None:
        return column
    dropping = declared.model_copy(update={"other": "drop"})
    (own,) = split((), domain.model_copy(update={"columns": {name: dropping}}))
    return ibis.ifelse(keeps(column, own), column, ibis.null(column.type()))


def numbered(rows: Rows, of: Relation, groups: Sequence[Amount], place: Place) -> tuple[Any, tuple[Lookup, ...]]:
    """The rows with the number of the group that each is in; −1 for none. No row is in two."""
    found = disjoint(of.domain, groups)
    engine, mark = place.engine, place.mark()
    told = tell_apart(rows.table, [rows.columns[one.column] for one in found.atoms], found.atoms, engine, mark)
    tables, state = list(told.tables), constant(found.first)
    for i, steps in found.steps:
        keyed = told.rows.mutate(**{f"k{i}": state * constant(found.atoms[i].size) + told.code(i)})
        values, often = np.unique(steps, return_counts=True)
        otherwise = int(values[np.argmax(often)])
        entries = tuple((int(k), int(steps.flat[k])) for k in np.flatnonzero(steps != otherwise))
        state = constant(otherwise)
        if entries:
            tables.append(Lookup(f"batchdp_groups_{mark}{i}", engine.dialect, ibis.dtype("int64"), entries))
            keyed = join_lookup(keyed, f"k{i}", tables[-1], f"t{i}", engine.collates)
            state = ibis.coalesce(keyed[f"t{i}"], state)
        told = replace(told, rows=keyed)
    return told.rows.mutate(**{GROUP: state}), tuple(tables)
