"""What statements demand, or all tables of a domain: tables, what they are grouped by, and what they add up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from math import comb, prod
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from batchdp import errors
from batchdp.domain import Dates, Domain, Listed
from batchdp.errors import QueryError
from batchdp.linalg.matrix import Indices
from batchdp.queries.expressions import DERIVED, Combination, Crossing, Moments
from batchdp.queries.query import (
    MISSING,
    OTHER,
    Amount,
    Choice,
    Condition,
    Constant,
    Group,
    Item,
    Missing,
    OneOf,
    Over,
    Query,
    Within,
    restricted,
)
from batchdp.sql.script import RefusalError, Refusals, comparable
from batchdp.sql.selections import BELOW, edge_titles, parts_in
from batchdp.workloads.encode.atoms import Atoms, ListedAtoms, Part, parts_of, split_by
from batchdp.workloads.encode.tables import MOST_TOGETHER, Key, Rows, extra_titles, rows_of
from batchdp.workloads.kronecker import MOST_TABLES

if TYPE_CHECKING:
    from batchdp.sql.groupings import Key as Grouped
    from batchdp.sql.refusals import Node, Statement
    from batchdp.sql.selections import Counted, Selection


MOST_GROUPS = 20_000
"""Of a column: each is a branch of the count."""
SHOWN = 5

Orders = tuple[int, ...]
"""How many columns the tables have, in ascending order."""


def checked_orders(marginals: int | Iterable[int], domain: Domain) -> Orders:
    """How many columns tables have: all numbers up to one that is given, or those in a list."""
    if isinstance(marginals, Iterable) and not isinstance(marginals, str | bytes):
        orders = [errors.check_whole("marginals", k, 0, QueryError) for k in marginals]
        if not orders:
            raise QueryError("marginals is empty; give a number of columns, or several")
        if len(set(orders)) < len(orders):
            raise QueryError(f"marginals={marginals!r} has a number more than once; give every number once")
    else:
        most = errors.check_whole("marginals", marginals, 0, QueryError)
        orders = list(range(min(most, len(domain.columns) + 1) + 1))
    if max(orders) > len(domain.columns):
        raise QueryError(f"marginals are for a domain of {len(domain.columns)} columns; give at most that many")
    tables = sum(comb(len(domain.columns), k) for k in orders)
    if tables > MOST_TABLES:
        raise QueryError(f"marginals={marginals!r} makes {tables:,} tables, more than {MOST_TABLES:,}; lower it")
    if max(orders) > 0:
        _check_groups(domain)
    return tuple(sorted(orders))


def _check_groups(domain: Domain) -> None:
    """Refuse columns without groups, by name."""
    without = [
        name for name, column in domain.columns.items() if not 0 < len(column.grouped(name) or ()) <= MOST_GROUPS
    ]
    if not without:
        return
    name, column = without[0], domain.columns[without[0]]
    named = ", ".join(without[:SHOWN]) + (f" and {len(without) - SHOWN} more" if len(without) > SHOWN else "")
    if isinstance(column, Listed):
        remedy = f"declare fewer values under [columns.{name}]"
    else:
        first = f'"{column.dates[0]}"' if isinstance(column, Dates) else column.ends()[0]
        remedy = f"declare lower edges, like bins = [{first}, …] under [columns.{name}]"
    raise QueryError(
        f"marginals need every column to have groups, {MOST_GROUPS:,} at most; {named} "
        f"{'has' if len(without) == 1 else 'have'} none, or more: {remedy}, or leave the column out of the domain"
    )


@dataclass(frozen=True, eq=False)
class Partition:
    """The group of every combination of atoms of some columns, the last column fastest; −1 for none."""

    looked: tuple[int, ...]
    """Columns of atoms."""
    group: Indices
    running: bool = False
    """Whether a record is in all rows from its group on: those of running totals, which end before the last group."""

    def spread(self, groups: Indices, rows: int) -> NDArray[np.bool_]:
        """Which rows records of these groups are in: row × record."""
        own = np.arange(rows)[:, None]
        return (groups >= 0) & (groups <= own) if self.running else groups == own


def alive_of(atoms: Atoms) -> Indices:
    """The atoms that a record can have; of true and false, nothing else is left."""
    alive = atoms.possible.copy()
    if isinstance(atoms, ListedAtoms) and atoms.kind == "boolean" and sum(map(len, atoms.groups)) == 2:
        alive[len(atoms.groups)] = False
    return np.flatnonzero(alive).astype(np.int64)


def of_column(number: int, found: TableSpecs, groups: Sequence[OneOf | Within]) -> Partition:
    """By groups of one column of atoms, no two of which share a value."""
    group = np.full(found.atoms[number].size, -1, dtype=np.int64)
    for g, one in enumerate(groups):
        group[found.atoms[number].atoms_in(one)] = g
    return Partition((number,), group[found.alive[number]])


def of_cases(
    cases: Sequence[tuple[Condition, int]], rest: int, atoms: Sequence[Atoms], alive: Sequence[Indices]
) -> Partition:
    """By the first of the conditions that is true, each with the number of its group; `rest` where none is."""
    amount: Amount = Constant(float(rest + 1))
    for holds, group in reversed(cases):
        amount = Choice(holds, Constant(float(group + 1)), amount)
    one = rows_of(Query("CASE", amount), atoms, alive)
    if prod(len(alive[i]) for i in one.looked) > MOST_TOGETHER:
        raise QueryError(
            f"a CASE looks at {len(one.looked)} columns with more than {MOST_TOGETHER:,} combinations, too many "
            "in a batch of so many answers; use fewer columns in it, or ask for it in a batch of its own"
        )
    whole = one.on(one.looked, [len(alive[i]) for i in one.looked])
    return Partition(one.looked, np.rint(whole).astype(np.int64).reshape(-1) - 1)


_ONE, _NOTHING = Constant(1.0), Constant(0.0)


@dataclass(frozen=True)
class TableSpec:
    """One table: its name, and the numbers of its keys and of what its records add (None where each adds 1)."""

    name: str
    keys: tuple[int, ...]
    amount: int | None = None


@dataclass(frozen=True)
class RowsOf:
    """A part of a derived answer: a table, and which of the rows of its last key, if that is not the item's own."""

    table: int
    row: int | None = None


@dataclass(frozen=True)
class Computed:
    """A derived item over one set of keys."""

    name: str
    keys: tuple[int, ...]
    of: Combination[RowsOf] | Crossing[RowsOf] | Moments[RowsOf]


@dataclass(eq=False)
class TableSpecs:
    """All tables that are asked, over atoms; keys and amounts are held once.

    The statements' own tables come first, then those of the domain, and last the parts of derived answers.
    """

    atoms: tuple[Atoms, ...]
    alive: tuple[Indices, ...]
    keys: list[tuple[Key, Partition]] = field(default_factory=list)
    amounts: list[Rows] = field(default_factory=list)
    tables: list[TableSpec] = field(default_factory=list)
    shown: list[range | Computed] = field(default_factory=list)
    """In the order of the statements: tables as they are, or what is computed from tables."""
    items: dict[tuple[int, str], tuple[Item, list[int]]] = field(default_factory=dict)
    """Of the statements, each with its tables."""
    asked_by: dict[tuple[Literal["key", "amount"], int], tuple[Statement, Node]] = field(default_factory=dict)
    """Which statement asked first for a key or an amount, and where."""
    _keys: dict[tuple[Key, tuple[int, ...], bytes, bool], int] = field(default_factory=dict)
    _amounts: dict[Amount, int | None] = field(default_factory=dict)

    def key(self, key: Key, partition: Partition) -> int:
        """The number of a key, the same for the same."""
        if not partition.looked:  # a CASE that looks at no column stands on the first
            partition = Partition((0,), np.repeat(partition.group, len(self.alive[0])))
        same = key, partition.looked, partition.group.tobytes(), partition.running
        number = self._keys.setdefault(same, len(self.keys))
        self.keys += [(key, partition)] * (number == len(self.keys))
        return number

    def amount(self, name: str, amount: Amount) -> int | None:
        """The number of what a query adds, the same for the same; None where that is 1."""
        if amount in self._amounts:
            return self._amounts[amount]
        found = rows_of(Query(name, amount), self.atoms, self.alive)
        if not found.looked and float(found.whole) == 1:
            self._amounts[amount] = None
            return None
        if not found.looked:  # a constant needs a column to stand on
            found = Rows({0: np.full(len(self.alive[0]), float(found.whole))}, (0,), (), found.whole)
        self._amounts[amount] = len(self.amounts)
        self.amounts.append(found)
        return self._amounts[amount]

    def table(self, name: str, keys: tuple[int, ...], amount: int | None = None) -> int:
        """The number of one more table."""
        self.tables.append(TableSpec(name, keys, amount))
        return len(self.tables) - 1

    def part(self, name: str, keys: tuple[int, ...], amount: int | None) -> int:
        """The number of a table with these keys and this amount, which there may be already."""
        known = self._parts.get((keys, amount))
        if known is None:
            known = self._parts[keys, amount] = self.table(name, keys, amount)
        return known

    def refusal(
        self, problem: str, remedy: str, keys: Iterable[int] = (), amounts: Iterable[int | None] = ()
    ) -> QueryError:
        """The error for the first of these that a statement asks for."""
        asked = [*(("amount", a) for a in amounts if a is not None), *(("key", k) for k in keys)]
        place = next((self.asked_by[one] for one in asked if one in self.asked_by), None)
        return QueryError(f"{problem}; {remedy}") if place is None else place[0].refusal(place[1], problem, remedy)

    @cached_property
    def place(self) -> dict[str, int]:
        """The number of every column of atoms, by its name."""
        return {one.column: i for i, one in enumerate(self.atoms)}

    @cached_property
    def _parts(self) -> dict[tuple[tuple[int, ...], int | None], int]:
        """The tables that parts can be; made where there are parts, since there may be millions of tables."""
        return {(own.keys, own.amount): t for t, own in reversed([*enumerate(self.tables)])}

    def item(self, item: Item, table: int) -> None:
        """Note that a table belongs to an item."""
        self.items.setdefault((item.select, item.name), (item, []))[1].append(table)


def demands(selections: Sequence[Selection], orders: Orders | None, domain: Domain) -> TableSpecs:
    """What the statements ask, then all tables of so many columns."""
    whole = orders is not None and max(orders) > 0
    looks = [*looking(selections, domain if whole else None)] or [Missing(next(iter(domain.columns)))]
    atoms = split_by(looks, domain, every_step=True)
    found = TableSpecs(atoms, tuple(map(alive_of, atoms)))
    taken: dict[tuple[str, frozenset[str]], None] = {}
    statements, refusals = [], Refusals()
    for selected in selections:
        with refusals.taking():
            one = _Statement(found, selected, taken)
            statements.append((one, one.tables()))
    refusals.check()
    start = len(found.tables)
    if orders is not None:
        keys = _domain_keys(found, domain) if whole else []
        names = list(domain.columns)
        for columns in (own for k in orders for own in combinations(range(len(names)), k)):
            found.table(" × ".join(names[i] for i in columns) or "total", tuple(keys[i] for i in columns))
    end = len(found.tables)
    for statement, plain in statements:
        with refusals.taking():
            found.shown += statement.answers(plain)
    refusals.check()
    found.shown += [range(start, end)] if end > start else []
    for t in {t for _, own in found.items.values() for t in own if start <= t < end}:  # which a part shares
        found.item(Item(found.tables[t].name), t)
    return found


def looking(selections: Sequence[Selection], domain: Domain | None) -> Iterator[Part]:
    """Everything that looks at a column."""
    for selected in selections:
        for item in selected.counted:
            for amount in item.amounts:
                yield from parts_of(restricted(amount, [], selected.where))
        for key in selected.grouping.keys:
            for holds, _ in (case for group in key.groups for case in group.cases):
                yield from parts_of(holds)
    for name, column in (domain.columns if domain is not None else {}).items():
        for _, holds in column.grouped(name) or ():
            yield holds


def _domain_keys(found: TableSpecs, domain: Domain) -> list[int]:
    """For every column the key with all of its groups, and with what is left of it."""
    keys = []
    for name, column in domain.columns.items():
        groups, i = column.grouped(name) or (), found.place[name]
        declared = of_column(i, found, [holds for _, holds in groups]).group
        missing = found.alive[i] == found.atoms[i].size - 1
        other = (declared < 0) & ~missing
        group = np.select([other, missing], [len(groups), len(groups) + other.any()], declared)
        extra = [OTHER] * bool(other.any()) + [MISSING] * bool(missing.any())
        keys.append(found.key(Key(name, extra_titles([title for title, _ in groups], *extra)), Partition((i,), group)))
    return keys


class _Statement:
    """A SELECT: its items times its grouping sets, a table each, or computed from tables."""

    def __init__(self, found: TableSpecs, selected: Selection, taken: dict[tuple[str, frozenset[str]], None]) -> None:
        self._found, self._selected = found, selected
        numbers = {key.name: self._key(key) for key in selected.grouping.keys}
        own = [[name for name in numbers if name in one] for one in selected.grouping.sets]
        self._sets = [
            (f" by {', '.join(names)}" if len(own) > 1 and names else "", tuple(numbers[name] for name in names))
            for names in own
        ]
        for item in selected.counted:
            for one in selected.grouping.sets:
                same = comparable(item.name), one
                if same in taken:
                    problem = f"the name {item.name} is taken by another query of the same groups"
                    raise selected.statement.refusal(item.node, problem, "give every query its own name with AS")
                taken[same] = None

    def _key(self, key: Grouped) -> int:
        with _placed(self._selected.statement, key.node):
            number = _sql_key(self._found, key)
        self._found.asked_by.setdefault(("key", number), (self._selected.statement, key.node))
        return number

    def tables(self) -> dict[int, range]:
        """Ask for the tables of items that are no derived ones; the numbers of these, by item."""
        found = {}
        for number, item in enumerate(self._selected.counted):
            if isinstance(item.amount, DERIVED):
                continue
            start = len(self._found.tables)
            for by, keys in self._sets:
                table = self._found.table(item.name + by, keys, self._amount(item, item.name, item.amount))
                self._found.item(parts_in(self._selected, item)[item.amount][0], table)
            found[number] = range(start, len(self._found.tables))
        return found

    def answers(self, plain: dict[int, range]) -> Iterator[range | Computed]:
        """What is shown of every item, and over every set of keys where it is computed."""
        for number, item in enumerate(self._selected.counted):
            if isinstance(item.amount, DERIVED):
                for by, keys in self._sets:
                    yield Computed(item.name + by, keys, item.amount.mapped(self._parts(item, by, keys).__getitem__))
            else:
                yield plain[number]

    def _parts(self, item: Counted, by: str, keys: tuple[int, ...]) -> dict[Amount | Over, RowsOf]:
        """The tables of a derived item's parts, which are asked for."""
        parts: dict[Amount | Over, RowsOf] = {}
        for amount, (own, cut) in parts_in(self._selected, item).items():
            if amount in parts:
                continue
            if cut and isinstance(item.amount, Crossing):
                key, counted = self._running(item.amount)
                table = self._found.part(own.name + by, (*keys, key), self._amount(item, own.name, counted))
                parts |= {one: RowsOf(table, row) for row, one in enumerate(item.amount.below)}
            else:
                table = self._found.part(own.name + by, *self._over(item, own.name, amount, keys))
                parts[amount] = RowsOf(table)
            self._found.item(own, table)
        return parts

    def _over(
        self, item: Counted, name: str, part: Amount | Over, keys: tuple[int, ...]
    ) -> tuple[tuple[int, ...], int | None]:
        """What the table of a part is grouped by, and what it adds up."""
        if not isinstance(part, Over):
            return keys, self._amount(item, name, part)
        own = self._selected.grouping.keys  # in one set, so these are the keys
        within = [key.everything for key in own if key.name not in part.keys]
        kept = tuple(number for key, number in zip(own, keys, strict=True) if key.name in part.keys)
        return kept, self._amount(item, name, part.amount, within)

    def _running(self, of: Crossing[Amount]) -> tuple[int, Amount]:
        """The key of a quantile's running totals, and what a record adds to those that it is in."""
        reached = [_reached(amount) for amount in (*of.below, of.total)]
        first, counted = reached[0]
        cuts = [first.low, *(within.high for within, _ in reached)]
        bins = [Within(first.column, low, high) for low, high in pairwise(cuts)]
        running = replace(of_column(self._found.place[first.column], self._found, bins), running=True)
        return self._found.key(Key(BELOW, edge_titles(of)), running), counted

    def _amount(self, item: Counted, name: str, amount: Amount, within: Sequence[Group] = ()) -> int | None:
        with _placed(self._selected.statement, item.node):
            number = self._found.amount(name, restricted(amount, list(within), self._selected.where))
        if number is not None:
            self._found.asked_by.setdefault(("amount", number), (self._selected.statement, item.node))
        return number


@contextmanager
def _placed(statement: Statement, node: Node) -> Iterator[None]:
    """What is refused within is said of this node."""
    try:
        yield
    except RefusalError:
        raise
    except QueryError as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise statement.refusal(node, problem, remedy) from None


def _reached(amount: Amount) -> tuple[Within, Amount]:
    """A running total as the values that it reaches over, and what else a record must fulfil to be counted."""
    match amount:
        case Choice(Within() as within, Constant(1.0), Constant(0.0)):
            return within, _ONE
        case Choice(holds, Choice(Within() as within, Constant(1.0), Constant(0.0)), Constant(0.0)):
            return within, Choice(holds, _ONE, _NOTHING)
    raise TypeError("a quantile that is none of a column's running totals")


def _sql_key(found: TableSpecs, key: Grouped) -> int:
    groups = key.groups
    titled = Key(key.name, tuple(group.title for group in groups))
    holding = [group.condition for group in groups if isinstance(group.condition, OneOf | Within)]
    if len(holding) == len(groups) and len({holds.column for holds in holding}) == 1:
        return found.key(titled, of_column(found.place[holding[0].column], found, holding))
    if all(group.condition is not None for group in groups):
        cases = [(group.cases[0][0], g) for g, group in enumerate(groups)]
    else:
        cases = [
            (holds, next((g for g, group in enumerate(groups) if group.cases[j][1]), -1))
            for j, (holds, _) in enumerate(groups[0].cases)
        ]
    rest = next((g for g, group in enumerate(groups) if group.rest), -1)
    return found.key(titled, of_cases(cases, rest, found.atoms, found.alive))
