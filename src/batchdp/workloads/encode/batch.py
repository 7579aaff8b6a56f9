"""A batch as a list of tables over columns of values: what is asked in factors, what is counted, what rows are called.

A table is a product of factors where its keys, its condition and its amount look at different columns, or at one column
together. Columns that a condition or an amount ties together (an OR across them, a sum over several) are taken as one,
whose values are the combinations of theirs; or, where these are many and a factor may look at several columns, they
stay apart. Atoms that nothing tells apart are one value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.domain import Domain
from batchdp.linalg.matrix import Dense, Indices
from batchdp.queries.expressions import parts_of
from batchdp.queries.query import Item
from batchdp.queries.views import View
from batchdp.workloads.encode.atoms import Atoms
from batchdp.workloads.encode.demands import Computed, Orders, RowsOf, TableSpec, TableSpecs, demands
from batchdp.workloads.encode.tables import MOST_TOGETHER, AskedTables, Legend, Part, Rows, Run, strides_of
from batchdp.workloads.kronecker import MOST_VALUES, Factor, KroneckerWorkload, distinct

if TYPE_CHECKING:
    from batchdp.sql.script import Batch
    from batchdp.sql.selections import Selection


MOST_ENTRIES = 50_000_000
"""Of one factor that is not each value by itself."""
MOST_MERGED = 1000
"""Combinations of tied columns' values that are always taken as one column."""


@dataclass(frozen=True, eq=False)
class ValueColumn:
    """A column of the batch: the columns of atoms that it is made of, and the value of every combination of these."""

    name: str
    atoms: tuple[int, ...]
    value: Indices
    """The last column fastest; −1 for what no record has."""
    size: int


@dataclass(frozen=True, eq=False)
class TableBatch:
    """Tables over columns of values, how records are told apart for them, and what their rows are called."""

    workload: KroneckerWorkload
    atoms: tuple[Atoms, ...]
    columns: tuple[ValueColumn, ...]
    legend: Legend
    runs: tuple[Run, ...]
    """What is shown: tables as they are, and what is computed from tables."""
    statements: tuple[tuple[Item, tuple[int, ...]], ...] = ()
    """Every item of a SELECT, or part of a derived one, with its tables; other tables are statements of their own."""
    views: tuple[View, ...] = ()
    """What statements show of their answers, where that is not all."""

    @cached_property
    def asked(self) -> AskedTables:
        """All answers in the order in which they are shown, made when they are looked at."""
        return AskedTables(self.workload, self.legend, self.runs)

    def values(self, codes: NDArray[np.integer], only: Sequence[int] | None = None) -> NDArray[np.int32]:
        """The values of records that are given by the numbers of their atoms; 0 in columns that nobody asks for."""
        found = np.zeros((len(codes), len(self.columns)), dtype=np.int32, order="F")
        for c in range(len(self.columns)) if only is None else only:
            column = self.columns[c]
            place = np.zeros(len(codes), dtype=np.int64)
            for i, stride in zip(column.atoms, strides_of([self.atoms[i].size for i in column.atoms]), strict=True):
                place += codes[:, i].astype(np.int64) * stride
            found[:, c] = column.value[place]
        return found


def tables_of(
    selections: Sequence[Selection],
    orders: Orders | None,
    domain: Domain,
    *,
    text: str | None = None,
    joint: bool = False,
) -> TableBatch:
    """The tables of some statements and of a domain; a `QueryError` where one is no product of small factors.

    `joint` says whether a factor may look at several columns together.
    """
    asked = demands(selections, orders, domain)
    columns, homes = _columns(asked, joint=joint)
    values = [_Values(asked, own) for own in columns or [()]]
    builder = _Builder(asked, values, homes)
    named = tuple(" & ".join(asked.atoms[i].column for i in own.own) or next(iter(domain.columns)) for own in values)
    content = [text, orders, domain.model_dump(mode="json")]
    fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    batch = builder.products(named, plain=not selections and named == tuple(domain.columns))
    found = tuple(own.column(name) for own, name in zip(values, named, strict=True))
    items = tuple((item, tuple(own)) for item, own in asked.items.values())
    views = tuple(_views(selections, asked, batch))
    return TableBatch(batch, asked.atoms, found, builder.legend(fingerprint), builder.runs(batch), items, views)


def _views(selections: Sequence[Selection], asked: TableSpecs, batch: KroneckerWorkload) -> Iterator[View]:
    """What statements show, by the names that their tables have in the batch: other tables may use a name too."""
    viewed = [(selected.view, selected) for selected in selections if selected.view is not None]
    named: dict[tuple[str, frozenset[str]], str] = {}
    for table, name in zip(asked.tables, batch.names or (), strict=False) if viewed else ():
        named.setdefault((table.name, frozenset(asked.keys[k][0].heading for k in table.keys)), name)
    for view, selected in viewed:
        if len(selected.grouping.sets) > 1:
            raise selected.statement.refusal(
                selected.statement.tree,
                "ORDER BY, LIMIT or HAVING over several sets of groups, which are tables of their own here",
                "leave it out, or ask for every set of groups in a statement of its own",
            )
        keys = frozenset(view.keys)
        yield view.renamed({item: named.get((item, keys), item) for item in view.items})


def _columns(asked: TableSpecs, *, joint: bool) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    """The columns of atoms that something looks at, tied ones together; and the column that each belongs to."""
    looked = [one.looked for one in asked.amounts] + [partition.looked for _, partition in asked.keys]
    every = {i for own in looked for i in own}
    keys, amounts = [partition.looked for _, partition in asked.keys], [one.tied for one in asked.amounts]
    columns = _joined(every, [*keys, *amounts])
    if joint and any(prod(len(asked.alive[i]) for i in own) > MOST_MERGED for own in columns if len(own) > 1):
        few = [own for own in columns if prod(len(asked.alive[i]) for i in own) <= MOST_MERGED]
        columns = _joined(every, [*keys, *few])
    for own in columns:
        size = prod(len(asked.alive[i]) for i in own)
        if len(own) > 1 and size > MOST_TOGETHER:
            named = ", ".join(asked.atoms[i].column for i in own)
            ties = [(a, one.tied) for a, one in enumerate(asked.amounts)]
            within = [(len(tied), a) for a, tied in ties if len(tied) > 1 and set(tied) <= set(own)]
            raise asked.refusal(
                f"the columns {named} are tied together by an OR, a sum or a CASE and have {size:,} combinations, more "
                f"than {MOST_TOGETHER:,}",
                "compare fewer values in them, or ask for it in a batch of its own",
                [k for k, one in enumerate(keys) if len(one) > 1 and set(one) <= set(own)],
                [a for _, a in sorted(within, reverse=True)[:1]],
            )
    return columns, {i: c for c, own in enumerate(columns) for i in own}


def _joined(columns: set[int], ties: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The columns, those together that are tied, however far the ties reach."""
    home = {i: {i} for i in columns}
    for own in ties:
        joined = set().union(*(home[i] for i in own))
        for i in joined:
            home[i] = joined
    return sorted({tuple(sorted(own)) for own in home.values()})


class _Values:
    """The values of a column: combinations of its atoms, as far as anything tells them apart."""

    def __init__(self, asked: TableSpecs, own: tuple[int, ...]) -> None:
        self._asked, self.own = asked, own
        self.shape = [len(asked.alive[i]) for i in own]
        here = [k for k, (_, partition) in enumerate(asked.keys) if set(partition.looked) <= set(own)]
        rows = [a for a, one in enumerate(asked.amounts) if set(one.looked) & set(own)]
        self._groups = {k: self._spread(asked.keys[k][1].looked, asked.keys[k][1].group) for k in here}
        self._rows = {a: asked.amounts[a].on(own, self.shape).reshape(-1) for a in rows}
        told = [self._told_apart(asked.amounts[a]) for a in rows if not set(asked.amounts[a].tied) <= set(own)]
        # In the order of a key that has a group for everybody, so that its table is each value by itself; else as atoms
        # come.
        complete = [group for group in self._groups.values() if group.min(initial=0) >= 0]
        seen = [*complete, *self._groups.values(), *self._rows.values(), *told] or [np.zeros(prod(self.shape))]
        _, first, value = np.unique(np.stack(seen, axis=1), axis=0, return_index=True, return_inverse=True)
        order = np.arange(len(first)) if complete else np.argsort(first)
        self.first, self.value = first[order], np.argsort(order)[value.reshape(-1)]
        self.size = len(self.first)

    def _spread(self, looked: Sequence[int], part: NDArray[Any]) -> NDArray[Any]:
        """Something on some of the columns as one on all of them."""
        wide = part.reshape([n if i in looked else 1 for i, n in zip(self.own, self.shape, strict=True)])
        return np.broadcast_to(wide, self.shape).reshape(-1)

    def _told_apart(self, one: Rows) -> NDArray[Any]:
        """A number for every combination of values that a query ties to other columns, the same for the same."""
        here = [place for place, i in enumerate(one.tied) if i in self.own]
        wide = np.moveaxis(one.whole, here, range(len(here)))
        shape = wide.shape[: len(here)]
        _, number = np.unique(wide.reshape(prod(shape), -1), axis=0, return_inverse=True)
        return self._spread([i for i in self.own if i in one.tied], number.reshape(shape))

    def factor(self, keys: tuple[int, ...], amount: int | None) -> Factor:
        """The queries of a table on this column: one a combination of its keys' groups."""
        sizes = [len(self._asked.keys[k][0].titles) for k in keys]
        groups = [self._groups[k][self.first].astype(np.int64) for k in keys]
        plain = not any(self._asked.keys[k][1].running for k in keys)
        place = np.zeros(self.size, dtype=np.int64)
        for size, group in zip(sizes, groups, strict=True):
            place = np.where((place < 0) | (group < 0), -1, place * size + group)
        rows = prod(sizes)
        row = self._rows[amount][self.first] if amount in self._rows else None
        if plain and row is None and rows == self.size and np.array_equal(place, np.arange(rows)):
            return Factor(self.size)
        if rows * self.size > MOST_ENTRIES:
            raise self._asked.refusal(
                f"{rows:,} groups of {' & '.join(self._asked.atoms[i].column for i in self.own)} in {self.size:,} "
                "values that other queries tell apart are too many",
                "use coarser groups",
                keys,
                [amount],
            )
        if plain:
            found = np.zeros((rows, self.size))
            there = np.flatnonzero(place >= 0)
            found[place[there], there] = 1.0 if row is None else row[there]
        else:
            found = np.ones((1, self.size)) if row is None else row[None]
            for k, size, group in zip(keys, sizes, groups, strict=True):
                inside = self._asked.keys[k][1].spread(group, size)
                found = (found[:, None] * inside).reshape(-1, self.size)
        found.flags.writeable = False
        return Factor(self.size, found)

    def column(self, name: str) -> ValueColumn:
        """With a value for every combination of atoms, those that no record has included."""
        sizes = [self._asked.atoms[i].size for i in self.own]
        found = np.full(sizes, -1, dtype=np.int64)
        found[np.ix_(*(self._asked.alive[i] for i in self.own))] = self.value.reshape(self.shape)
        return ValueColumn(name, self.own, found.reshape(-1), self.size)


class _Builder:
    """Tables one after the other, as arrays; factors, keys and kinds of axes are held once."""

    def __init__(self, asked: TableSpecs, values: Sequence[_Values], homes: dict[int, int]) -> None:
        self._asked, self._values = asked, values
        self._key_home = [homes[partition.looked[0]] for _, partition in asked.keys]
        self._amount_homes = [sorted({homes[i] for i in one.looked}) for one in asked.amounts]
        tied = ({homes[i] for i in one.tied} for one in asked.amounts)
        self._tied = [tuple(sorted(own)) if len(own) > 1 else () for own in tied]
        self._factors: list[list[Factor]] = [[] for _ in values]
        self._joint: dict[tuple[int, ...], int] = {}  # sets of columns, and the number of the axis that each is
        self._known: dict[tuple[int, tuple[int, ...], int | None], int] = {}
        self._kinds: dict[tuple[int, ...], int] = {}
        own = [self._axes_of(table) for table in asked.tables]
        kinds = list(self._kinds)
        self._orders = [tuple(k for _, _, kind in axes for k in kinds[kind]) for axes in own]
        self._lengths = [len(axes) for axes in own]
        # Of every axis the column, the factor and the kind.
        self._axes = np.array([axis for axes in own for axis in axes], dtype=np.int64).reshape(-1, 3).T.copy()

    def _axes_of(self, table: TableSpec) -> list[tuple[int, int, int]]:
        homes = [] if table.amount is None else self._amount_homes[table.amount]
        own: dict[int, tuple[int, ...]] = dict.fromkeys(homes, ())
        for k in table.keys:
            own[self._key_home[k]] = (*own.get(self._key_home[k], ()), k)
        kinds, joint = self._kinds, () if table.amount is None else self._tied[table.amount]
        first = [] if not joint else [(self._axis(joint), tuple(k for c in joint for k in own[c]))]
        axes = [*first, *((c, keys) for c, keys in own.items() if c not in joint)]
        return [
            (
                c,
                self._factor(c, keys, table.amount if c in homes or c >= len(self._values) else None),
                kinds.setdefault(keys, len(kinds)),
            )
            for c, keys in sorted(axes, key=lambda axis: joint[0] if axis in first else axis[0])
        ]

    def _axis(self, joint: tuple[int, ...]) -> int:
        """The number of the axis of these columns together."""
        axis = self._joint.setdefault(joint, len(self._factors))
        if axis == len(self._factors):
            self._factors.append([])
        return axis

    def _joint_factor(self, columns: tuple[int, ...], keys: tuple[int, ...], amount: int) -> Factor:
        """The queries of a table on columns that its amount ties."""
        values = [self._values[c] for c in columns]
        by_column = [tuple(k for k in keys if self._key_home[k] == c) for c in columns]
        parts = [own.factor(by, amount) for own, by in zip(values, by_column, strict=True)]
        cells = prod(own.size for own in values)
        if cells > MOST_VALUES or prod(part.rows for part in parts) * cells > MOST_ENTRIES:
            named = ", ".join(self._asked.atoms[i].column for own in values for i in own.own)
            raise self._asked.refusal(
                f"the columns {named} are tied together and have {cells:,} combinations of values that are told apart, "
                "too many for their groups",
                "compare fewer values in them, or use coarser groups",
                keys,
                [amount],
            )
        one = self._asked.amounts[amount]
        at: dict[int, Indices] = {}
        for place, own in enumerate(values):
            along = [-1 if other == place else 1 for other in range(len(values))]
            every = np.unravel_index(own.first, own.shape)
            at |= {i: here.reshape(along) for i, here in zip(own.own, every, strict=True)}
        tied = one.whole[tuple(at[i] for i in one.tied)].reshape(-1)
        made: Dense = np.ones((1, 1))
        for part in parts:
            made = np.asarray(np.kron(made, part.matrix), dtype=np.float64)
        made = np.ascontiguousarray(made * tied)
        made.flags.writeable = False
        return Factor(cells, made)

    def _factor(self, column: int, keys: tuple[int, ...], amount: int | None) -> int:
        known = column, keys, amount
        if known not in self._known:
            if column < len(self._values):
                made = self._values[column].factor(keys, amount)
            else:
                assert amount is not None
                made = self._joint_factor(next(own for own, c in self._joint.items() if c == column), keys, amount)
            listed = self._factors[column]
            same = next((n for n, other in enumerate(listed) if made.asks_as(other)), len(listed))
            listed += [made] * (same == len(listed))
            self._known[known] = same
        return self._known[known]

    def runs(self, batch: KroneckerWorkload) -> tuple[Run, ...]:
        """What is shown, with neighbouring tables together."""
        starts = np.concatenate([[0], np.cumsum(batch.table_sizes())]).astype(np.int64)
        found: list[Run] = []
        for one in self._asked.shown:
            if isinstance(one, Computed):
                keys = self._ordered(one.keys)
                of = one.of.mapped(lambda part, keys=keys: self._part(part, keys, starts))  # type: ignore[misc]
                found.append(Run(name=one.name, keys=keys, of=of))
            elif found and found[-1].tables and found[-1].tables.stop == one.start:
                found[-1] = Run(range(found[-1].tables.start, one.stop))
            else:
                found.append(Run(one))
        return tuple(found)

    def _ordered(self, keys: tuple[int, ...]) -> tuple[int, ...]:
        """Keys in the order in which a table's rows vary: that of their columns."""
        return tuple(sorted(keys, key=lambda k: self._key_home[k]))

    def _part(self, part: RowsOf, keys: tuple[int, ...], starts: Indices) -> Part:
        """Where the rows of a table lie that are a part of the answers with these keys."""
        own = self._orders[part.table]
        stride = dict(zip(own, strides_of([len(self._asked.keys[k][0].titles) for k in own]), strict=True))
        extra = next((k for k in own if k not in keys), None)
        first = 0 if extra is None or part.row is None else part.row * stride[extra]
        return Part(int(starts[part.table]) + first, tuple(stride.get(k, 0) for k in keys))

    def products(self, named: tuple[str, ...], *, plain: bool) -> KroneckerWorkload:
        """The batch; `plain` where tables are called by the names of their columns."""
        return KroneckerWorkload(
            tuple(own.size for own in self._values),
            tuple(map(tuple, self._factors)),
            np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int64),
            self._axes[0],
            self._axes[1],
            np.ones(len(self._lengths)),
            None if plain else distinct(table.name for table in self._asked.tables),
            named,
            tuple(self._joint),
        )

    def legend(self, asked: str) -> Legend:
        """What the tables' rows are called."""
        return Legend(tuple(key for key, _ in self._asked.keys), tuple(self._kinds), self._axes[2], asked)


DIGITS = 12
"""To which weights are told apart."""


def query_of_answer(batch: Batch, asked: AskedTables) -> Indices:
    """For every linear answer of the tables of some SQL the number of the query that it is.

    A query may be the answer of several tables: tables are shared as a whole, queries one by one.
    """
    found = np.full(int(asked.starts[-1]), -1, dtype=np.int64)
    answers = iter(batch.asked)
    for parts in _in_order(batch, asked):
        for numbers in zip(*(part.tolist() for part in parts), strict=True):
            found[list(numbers)] = list(parts_of(next(answers).of))
    return found


def _in_order(batch: Batch, asked: AskedTables) -> Iterator[list[Indices]]:
    """For every item and set of groups the numbers of its parts, each for all rows in the order of the statement."""
    legend, workload = asked.legend, asked.workload
    units: Iterator[tuple[tuple[int, ...], list[Part]]] = (
        (run.keys, list(run.of.parts)) if run.of is not None else (legend.numbers_of(workload, t), [asked.part(t)])
        for run in asked.runs
        for t in (run.tables if run.of is None else (0,))
    )
    for selected in batch.selections:
        for _ in selected.counted:
            for own, (keys, parts) in zip(selected.grouping.sets, units, strict=False):
                shape = [len(legend.keys[k].titles) for k in keys]
                headings = [legend.keys[k].heading for k in keys]
                order = [headings.index(key.name) for key in selected.grouping.keys if key.name in own]
                yield [part.numbers(tuple(shape)).reshape(shape).transpose(order).reshape(-1) for part in parts]


def weigh_answers(workload: KroneckerWorkload, weights: Dense) -> tuple[KroneckerWorkload, list[tuple[int, int]]]:
    """The tables with these weights of their answers, in pieces where these differ within one.

    Returns: the tables, and for every answer its table there and its place in it.
    """
    terms: list[dict[int, Dense]] = []
    places: list[tuple[int, int]] = []
    names, own_weights, start = [], [], 0
    for t, table in enumerate(workload.tables):
        own = weights[start : (start := start + table.queries)].reshape(table.shape)
        at, factors = np.zeros((*table.shape, 2), dtype=np.int64), workload.factors_of(t)
        for rows in _alike(own, [np.arange(n) for n in table.shape]):
            here, shape = np.ix_(*rows), tuple(map(len, rows))
            at[here] = np.stack([np.full(shape, len(terms)), np.arange(prod(shape)).reshape(shape)], axis=-1)
            terms.append({axis: factors[axis].matrix[place] for axis, place in zip(factors, rows, strict=True)})
            names.append(table.name)
            own_weights.append(float(own[here].flat[0]))
        places += ((int(table_at), int(place)) for table_at, place in at.reshape(-1, 2))
    if len(terms) == len(workload.tables):
        return replace(workload, weights=np.array(own_weights)), places
    return workload.asking(terms, distinct(names), np.array(own_weights)), places


def _alike(weights: Dense, rows: list[Indices]) -> Iterator[list[Indices]]:
    """The rows of every axis of pieces that have one weight each."""
    for axis in range(weights.ndim):
        lines = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
        rounded = np.array([[float(f"{one:.{DIGITS}g}") for one in line] for line in lines])
        kinds, kind = np.unique(rounded, axis=0, return_inverse=True)
        if len(kinds) > 1:
            for own in (np.flatnonzero(kind.reshape(-1) == k) for k in range(len(kinds))):
                yield from _alike(np.take(weights, own, axis), [*rows[:axis], rows[axis][own], *rows[axis + 1 :]])
            return
    yield rows
