"""An open table, the queries over it, and the engine that counts in it; engine errors may hold values of records, so
only their type gets out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ibis  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from batchdp.domain.columns import Column, fold
from batchdp.engines.coding import Lookup
from batchdp.errors import TableError

T = TypeVar("T")
END = object()


def shield(action: Callable[[], T], task: str) -> T:
    """What the action gives; an error in it becomes one that names its type and nothing else."""
    try:
        return action()
    except TableError:
        raise
    except Exception as error:
        failure = type(error).__name__
    # Raised out here, the error does not carry the engine's one as its context.
    raise TableError(f"{task} failed in the engine with {failure}; its message is withheld, as it may show records")


def shield_all(items: Iterator[T], task: str) -> Iterator[T]:
    """The same for every item of an iterator."""
    while True:
        item = shield(lambda: next(items, END), task)
        if item is END:
            return
        yield item  # type: ignore[misc]


# ── a query as SQL ──


@dataclass(frozen=True, repr=False)
class Query:
    """An ibis expression over a source's table and, by their names, over lookup tables that go along with it."""

    expression: Any
    lookups: tuple[Lookup, ...] = ()
    sets: tuple[tuple[str, ...], ...] = ()
    """Where given, the expression's rows are counted by each of these sets of its columns."""
    packs: tuple[tuple[tuple[str, int], ...], ...] = ()
    """How these columns go into few integers: for each integer the columns in it, with their strides."""
    persons: str | None = None
    """Where given, the expression's columns are values, and their rows are counted by this SQL, column by column."""
    spelled: dict[str, str] = field(default_factory=dict)
    """What it was compiled to, by dialect: it is checked before it is run."""

    @property
    def width(self) -> int:
        """How many columns it gives."""
        return len(self.packs) + 1 if self.sets else len(self.expression.schema().names)


def compile_query(query: Query, dialect: str) -> str:
    """The SQL of a query."""
    if dialect not in query.spelled:
        query.spelled[dialect] = _write_query(query, dialect)
    return query.spelled[dialect]


def _write_query(query: Query, dialect: str) -> str:
    """Nested selects stay nested: fused, each of a hundred comparisons would parse or cast its column anew."""
    fused = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        sql = str(ibis.to_sql(query.expression, dialect=dialect, pretty=False))
    finally:
        ibis.options.sql.fuse_selects = fused
    if query.persons is not None:
        sql = _group_by_values(sql, query)
    elif query.sets:
        sql = _group_by_sets(sql, query)
    if not query.lookups:
        return sql
    tables = ", ".join(lookup.sql() for lookup in query.lookups)
    return f"WITH {tables} SELECT * FROM ({sql}) AS counted"


def _group_by_sets(sql: str, query: Query) -> str:
    """The rows counted by sets of columns. A packed code is one more than the code, 0 where a row is not counted by it.

    ibis has no GROUPING SETS. All names here are our own, and codes are of 64 bits and never NULL.
    """
    one = "CAST(1 AS BIGINT)"
    shown = []
    for i, pack in enumerate(query.packs):
        parts = [f"COALESCE({name} + {one}, CAST(0 AS BIGINT)) * CAST({stride} AS BIGINT)" for name, stride in pack]
        shown.append(f"{' + '.join(parts) or 'CAST(0 AS BIGINT)'} AS k{i}")
    sets = ", ".join(f"({', '.join(names)})" for names in query.sets)
    listed = ", ".join([*shown, "COUNT(*) AS n"])
    return f"SELECT {listed} FROM ({sql}) AS coded GROUP BY GROUPING SETS ({sets})"


def _group_by_values(sql: str, query: Query) -> str:
    """How many rows, or units, every value of each column has; all other columns are NULL in its row."""
    names = [name for name, *_ in query.sets]
    sets = ", ".join(f"({name})" for name in names)
    counted = f"CAST({query.persons} AS BIGINT) AS n"
    return f"SELECT {', '.join(names)}, {counted} FROM ({sql}) AS listed GROUP BY GROUPING SETS ({sets})"


# ── an open table ──

Columns = list[npt.NDArray[np.int64]]
"""One array for each column of a query's result."""


def as_columns(batch: Any) -> Columns:
    """An Arrow record batch of integers."""
    return [np.asarray(column, np.int64) for column in batch.columns]


@dataclass(frozen=True)
class Said:
    """What a schema says about the values of a table."""

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column: those of an ENUM type with a name. Others may be a dictionary, which is data."""
    digits: Mapping[str, int] = field(default_factory=dict)
    """By column: behind the point of a decimal, where the type that is read does not say."""
    checks: Sequence[tuple[str | None, str]] = ()
    """Conditions of CHECK constraints; before each the column, where it is the constraint of a type."""


class Engine(ABC):
    """Whatever runs a query; `undo` puts everything back as it was."""

    dialect: str
    """Whose SQL it speaks."""
    collates = True
    """Whether its texts may have a collation, under which two of them can be equal that are not."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo

    @abstractmethod
    def check(self, query: Query) -> None:
        """Let the engine refuse the query before anything is charged, without reading a record."""

    @abstractmethod
    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch; the query is over the source's table."""

    @abstractmethod
    def rows(self, query: Query) -> Iterator[Sequence[Any]]:
        """The rows of a query's result, of any types."""

    @property
    def place(self) -> Any:
        """What is equal for two tables that one query can look at."""
        return self

    def beside(self, others: Sequence[Engine]) -> Engine:
        """What runs queries over tables of several engines of the same place."""
        return self

    def progress(self) -> float:
        """The share of the running query that is done; NaN, as most engines do not say."""
        return math.nan

    def said(self, catalog: str | None, schema: str | None, name: str) -> Said:
        """What the schema says about the values of a table; nothing is looked up in them."""
        return Said()

    def close(self) -> None:
        """Close what was opened, and drop what was made."""
        self._undo.close()


Units = Mapping[str, Any]
"""By column: what tells privacy units apart, as an expression, where that is not the column as it is read."""


def replace_columns(table: Any, columns: Mapping[str, Any], units: Mapping[str, Any]) -> tuple[Any, Units]:
    """The ibis table with some columns replaced, and with what tells units apart beside them."""
    if not columns and not units:
        return table, {}
    places = {name: f"{name} as a privacy unit" for name in units}
    changed = table.mutate(**columns, **{places[name]: unit for name, unit in units.items()})
    return changed, {name: changed[place] for name, place in places.items()}


@dataclass(frozen=True)
class Opened:
    """A table in an engine, before its schema is compared with a domain."""

    description: str
    table: Any
    units: Units
    engine: Engine


@dataclass(frozen=True, repr=False)
class Source:
    """A table that is open for reading. Use it in a `with` block, or close it."""

    description: str
    """What it is, for messages; without passwords."""
    table: Any
    """An ibis table, whose schema is all that has been looked at."""
    engine: Engine
    names: Mapping[str | None, str]
    """What is wanted of it, as the user's table spells it: declared columns, and under None the privacy unit."""
    places: Mapping[str | None, str]
    """The same as `table` calls it."""
    unit: Any = None
    """Who a record belongs to, as an expression over `table`; None where nobody asked."""
    declared: Mapping[str, Column] = field(default_factory=dict)
    """What the domain says of the columns that are wanted."""
    unit_rule: str | None = ""
    """What tells units apart, where that is not how they are spelled; alike on both sides of a join. None of nobody."""

    def column(self, name: str) -> Any:
        """The table's column of a declared name."""
        place = next((self.places[key] for key in self.places if key and fold(key) == fold(name)), None)
        if place is None:
            raise TableError(f"column {name!r} was not asked for when {self.description} was opened")
        return self.table[place]

    def close(self) -> None:
        """Leave the engine as it was."""
        shield(self.engine.close, f"closing {self.description}")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Source: {self.description}, columns {', '.join(dict.fromkeys(self.names.values()))}>"
