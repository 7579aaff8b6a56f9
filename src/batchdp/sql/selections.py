"""One SELECT as queries: its items, its condition and its groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from batchdp.domain.columns import label
from batchdp.domain.relations import GROUP, DeclaredTable, Relation
from batchdp.queries.expressions import DERIVED, Asked, Combination, Crossing, Moments
from batchdp.queries.query import (
    ALL,
    Amount,
    Choice,
    Condition,
    Constant,
    Cut,
    Group,
    Item,
    Over,
    Person,
    Query,
    Scaled,
    Total,
    ValueOf,
    Within,
    in_name,
    restricted,
)
from batchdp.queries.views import View
from batchdp.sql.amounts import measured
from batchdp.sql.conditions import condition
from batchdp.sql.groupings import Grouping, alias_name, grouping, item_of
from batchdp.sql.moments import is_moment, moments
from batchdp.sql.persons import Relations
from batchdp.sql.refusals import Node, Statement
from batchdp.sql.script import Batch, comparable
from batchdp.sql.syntax import Declared, Scope, scope_of
from batchdp.sql.views import view

BELOW = "below"
"""What the running totals of a quantile are called."""


class Parts:
    """Queries that are found so far, by what records add to them."""

    def __init__(self, known: Sequence[Relation] = ()) -> None:
        self._queries: list[Query] = []
        self._places: dict[tuple[str, Amount], int] = {}
        self._names: set[str] = set()
        self._plain: dict[str, int] = {}
        self._relations = Relations(known)

    def _query(self, selected: Selection, name: str, adds: Amount, groups: list[Group], own: Item) -> Query:
        """What rows add to one group of an item; of persons, the rows of a relation that has one for each."""
        if not isinstance(adds, Person):
            table = self._relations.table(selected)
            return Query(name, restricted(adds, groups, selected.where), own, table=table)
        relation, number = self._relations.persons(selected, adds, groups)
        amount: Amount = Constant(1.0)
        if len(relation.groups) > 1:
            amount = Choice(Within(GROUP, Cut(number), Cut(number, after=True)), amount, Constant(0.0))
        return Query(name, amount, own, table=relation.name)

    def add_plain(self, selected: Selection, item: Counted) -> None:
        """The queries of an item that is no derived one."""
        plain = None if isinstance(item.amount, DERIVED) else item.amount
        for titles, groups in selected.rows():
            name = _named(item.name, titles)
            # Two names may not differ in look-alike letters or case; groups are told apart by their values.
            same = comparable(item.name) + name.removeprefix(item.name)
            if same in self._names:
                problem = f"the name {name} is taken by another query"
                raise selected.statement.refusal(item.node, problem, "give every query its own name with AS")
            self._names.add(same)
            if plain is not None:
                own, _ = parts_in(selected, item)[plain]
                self._plain[name] = self._add(self._query(selected, name, plain, groups, own))

    def batch(self, selections: Sequence[Selection]) -> Batch:
        """All queries, and what every item asks of them, in the order of the statements."""
        asked = [one for selected in selections for item in selected.counted for one in self._asked(selected, item)]
        return Batch(tuple(self._queries), tuple(asked), tuple(selections), self._relations.found)

    def _asked(self, selected: Selection, item: Counted) -> Iterator[Asked[int]]:
        expression, parts = item.amount, parts_in(selected, item)
        for titles, groups in selected.rows():
            name = _named(item.name, titles)
            if not isinstance(expression, DERIVED):
                yield Asked(name, self._plain[name])
                continue
            places: dict[Amount | Over, int] = {}
            for amount, (own, cut) in parts.items():
                said, within, adds = _reached(selected, amount, titles, groups)
                name_of_part = _named(own.name, [*said, *([cut] if cut else [])])
                query = self._query(selected, name_of_part, adds, within, own)
                places[amount] = self._part(replace(query, asked=False), own)
            yield Asked(name, expression.mapped(places.__getitem__))

    def _part(self, query: Query, item: Item) -> int:
        """The query that adds this up: one that there is, or this one, that nobody asked for."""
        place, name = self._places.get((query.table, query.amount)), query.name
        if place is None:
            while comparable(name) in self._names:
                name += "_"
            self._names.add(comparable(name))
            return self._add(replace(query, name=name))
        known = self._queries[place]
        if item not in (known.item, *known.also):
            self._queries[place] = replace(known, also=(*known.also, item))
        return place

    def _add(self, query: Query) -> int:
        place = len(self._queries)
        self._queries.append(query)
        self._places.setdefault((query.table, query.amount), place)
        return place


def _reached(
    selected: Selection, part: Amount | Over, titles: list[str], groups: list[Group]
) -> tuple[list[str], list[Group], Amount]:
    """A part for one row: what its name says of the groups, these, and what a record in them adds."""
    if not isinstance(part, Over):
        return titles, groups, part
    keys = selected.grouping.keys
    kept = [key.name in part.keys for key in keys]
    within = [group if own else key.everything for key, group, own in zip(keys, groups, kept, strict=True)]
    return [title for title, own in zip(titles, kept, strict=True) if own], within, part.amount


def parts_in(selected: Selection, item: Counted) -> dict[Amount | Over, tuple[Item, str]]:
    """What every part of an item of a SELECT is called, and what tells it apart within its group, if it takes that.

    An item that is no derived one is its own part.
    """
    own = Item(item.name, selected.statement.number, selected.statement.weight)
    if not isinstance(item.amount, DERIVED):
        return {item.amount: (own, "")}
    called = _called(item.amount)
    share = 1 / len({kind for kind, _ in called.values()})
    return {
        amount: (replace(own, name=f"{item.name}.{kind}", of=item.name, share=share, adds=_adds(amount)), cut)
        for amount, (kind, cut) in called.items()
    }


def _adds(amount: Amount | Over) -> str:
    """What a sum from the middle of a column's range adds up, as that of an average is; nothing of any other."""
    match amount:
        case Choice(then=then):
            return _adds(then)
        case Total((ValueOf(name), Scaled(factor, ValueOf(same, counted=True)))) if name == same:
            return f"{name} {'−' if factor < 0 else '+'} {abs(factor):,.15g}"
    return ""


def _called(expression: Combination[Any] | Crossing[Any] | Moments[Any]) -> dict[Any, tuple[str, str]]:
    """The different parts of an expression: what each is, and what tells it apart."""
    if isinstance(expression, Crossing):
        cuts = [f"{BELOW}={in_name(edge)}" for edge in edge_titles(expression)]
        below = {amount: (BELOW, cut) for amount, cut in zip(expression.below, cuts, strict=True)}
        return {**below, expression.total: ("total", "")}
    if isinstance(expression, Moments):
        named = ["count", *(f"sum_{i}" for i, _ in enumerate(expression.sums, 1))]
        named += [f"product_{i}" for i, _ in enumerate(expression.products, 1)]
        return {part: (kind, "") for part, kind in reversed(list(zip(expression.parts, named, strict=True)))}
    found: dict[Any, tuple[str, str]] = {}
    sides = [("plain", expression.plain)]
    for i, ratio in enumerate(expression.ratios, 1):
        number = f"_{i}" if len(expression.ratios) > 1 else ""
        sides += [(f"numerator{number}", ratio.numerator), (f"denominator{number}", ratio.denominator)]
    for kind, side in sides:
        for place, amount in enumerate(side.parts, 1):
            found.setdefault(amount, (f"{kind}_{place}" if len(side.terms) > 1 else kind, ""))
    return found


def edge_titles(of: Crossing[Amount]) -> tuple[str, ...]:
    """What the edges between the bins of a quantile are called: the first values that are not below them."""
    half = 0.0 if of.step is None else of.step / 2
    values = [edge + half for edge in of.edges[1:-1]]
    return tuple(label(int(value) if value == int(value) else round(value, 12)) for value in values)


def _named(name: str, titles: list[str]) -> str:
    return f"{name}[{', '.join(titles)}]" if titles else name


@dataclass(frozen=True)
class Counted:
    """An item of a SELECT that is counted or summed: its name, how it was written, and what each record adds.

    A derived one is an expression of several amounts.
    """

    name: str
    node: Node
    amount: Amount | Combination[Amount | Over] | Crossing[Amount] | Moments[Amount]

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """What each record adds to the queries that a group takes: one, or the parts of a derived answer."""
        own = self.amount
        if not isinstance(own, DERIVED):
            return (own,)
        return tuple(dict.fromkeys(part.amount if isinstance(part, Over) else part for part in own.parts))


@dataclass(frozen=True)
class Selection:
    """What a SELECT asks for: items, the condition on all of them, and what they are grouped by."""

    statement: Statement
    counted: tuple[Counted, ...]
    where: Condition | None
    grouping: Grouping
    view: View | None = None
    """What is shown of its answers, if that is not all."""
    table: str = ""
    """Whose rows it counts, where a domain has several tables."""

    relation: Relation = field(kw_only=True)
    """The same as what it is."""

    @property
    def size(self) -> int:
        """How many queries these are."""
        return sum(len(item.amounts) for item in self.counted) * self.grouping.size

    @property
    def counts_persons(self) -> bool:
        """Whether any of its items does."""
        return any(isinstance(amount, Person) for item in self.counted for amount in item.amounts)

    def rows(self) -> Iterator[tuple[list[str], list[Group]]]:
        """What the name of every row of groups says of each key, in the declared order, and the groups; empty ones
        belong to it."""
        for row in self.grouping.rows():
            titles = [f"{key.name}={ALL if group is None else in_name(group.title)}" for key, group in row]
            yield titles, [group for _, group in row if group is not None]


def selection(statement: Statement, declared: Declared) -> Selection:
    """What a statement asks for; what is refused of it is among the script's refusals."""
    scope = scope_of(statement, declared)
    where = statement.tree.args.get("where")
    holds, grouped = None, Grouping((), (frozenset(),))
    with scope.taking():
        if where is not None and statement.understands(where):
            holds = condition(scope, where.this)
    grouped_well = False
    with scope.taking():
        group = statement.tree.args.get("group")
        if group is None or statement.understands(group):
            grouped, grouped_well = grouping(scope), True
            scope = replace(scope, keys=grouped)
    counted: list[Counted] = []
    unnamed = 0
    for item in statement.tree.expressions if grouped_well else ():
        with scope.taking():
            inner = item_of(item)
            if not statement.understands(item) or _is_key(scope, inner, grouped):
                continue
            if isinstance(item, exp.Alias):
                name = alias_name(scope, item)
            else:
                unnamed += 1
                name = f"query_{statement.number}" + (f"_{unnamed}" if unnamed > 1 else "")
            amount = moments(scope, inner) if is_moment(inner) else measured(scope, inner)
            counted.append(Counted(name, item, amount))
    if not counted and not statement.script.refusals:
        raise statement.refusal_at("SELECT", "no count or sum is asked for", "add COUNT(*) to the SELECT")
    shown = None
    with scope.taking():
        parts = [tree for name in ("order", "having", "limit", "offset") if (tree := statement.tree.args.get(name))]
        if grouped_well and all(map(statement.understands, parts)):
            shown = view(scope, counted, grouped)
    table = scope.declared.relation
    relation = statement.relation or DeclaredTable(scope.domain, table or scope.domain.table)
    return Selection(statement, tuple(counted), holds, grouped, shown, table, relation=relation)


def _is_key(scope: Scope, node: Node, grouped: Grouping) -> bool:
    """Whether an item only shows what is grouped by; a column that is not grouped by is refused."""
    if any(key.node == node for key in grouped.keys if not isinstance(key.node, exp.Column)):
        return True
    if not isinstance(node, exp.Column) or not grouped.keys:
        return False
    named = scope.grouping(node)
    name = named[1] if named is not None else scope.column(node)[0]
    if name not in (key.name for key in grouped.keys):
        raise scope.refusal(node, "a column that is neither counted nor grouped by", f"add {name} to GROUP BY")
    return True
