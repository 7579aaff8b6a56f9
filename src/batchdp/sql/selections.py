"""One SELECT as queries: its items, its condition and its groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from batchdp.domain.columns import label
from batchdp.queries.expressions import Asked, Combination, Crossing
from batchdp.queries.query import (
    ALL,
    Amount,
    Choice,
    Condition,
    Group,
    Item,
    Query,
    Scaled,
    Total,
    ValueOf,
    in_name,
    restricted,
)
from batchdp.sql.amounts import measured
from batchdp.sql.conditions import condition
from batchdp.sql.groupings import Grouping, alias_name, grouping, item_of
from batchdp.sql.refusals import Node, Statement
from batchdp.sql.script import Batch, comparable
from batchdp.sql.syntax import Declared, Scope, scope_of

BELOW = "below"
"""What the running totals of a quantile are called."""


class Parts:
    """Queries that are found so far, by what records add to them."""

    def __init__(self) -> None:
        self._queries: list[Query] = []
        self._places: dict[Amount, int] = {}
        self._names: set[str] = set()
        self._plain: dict[str, int] = {}

    def add_plain(self, selected: Selection, item: Counted) -> None:
        """The queries of an item that is no derived one."""
        plain = None if isinstance(item.amount, Combination | Crossing) else item.amount
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
                self._plain[name] = self._add(Query(name, restricted(plain, groups, selected.where), own))

    def batch(self, selections: Sequence[Selection]) -> Batch:
        """All queries, and what every item asks of them, in the order of the statements."""
        asked = [one for selected in selections for item in selected.counted for one in self._asked(selected, item)]
        return Batch(tuple(self._queries), tuple(asked), tuple(selections))

    def _asked(self, selected: Selection, item: Counted) -> Iterator[Asked[int]]:
        expression, parts = item.amount, parts_in(selected, item)
        for titles, groups in selected.rows():
            name = _named(item.name, titles)
            if not isinstance(expression, Combination | Crossing):
                yield Asked(name, self._plain[name])
                continue
            places: dict[Amount, int] = {}
            for amount, (own, cut) in parts.items():
                name_of_part = _named(own.name, [*titles, *([cut] if cut else [])])
                places[amount] = self._part(name_of_part, restricted(amount, groups, selected.where), own)
            yield Asked(name, expression.mapped(places.__getitem__))

    def _part(self, name: str, amount: Amount, item: Item) -> int:
        """The query that adds this up: one that there is, or a new one that nobody asked for."""
        place = self._places.get(amount)
        if place is None:
            while comparable(name) in self._names:
                name += "_"
            self._names.add(comparable(name))
            return self._add(Query(name, amount, item, asked=False))
        known = self._queries[place]
        if item not in (known.item, *known.also):
            self._queries[place] = replace(known, also=(*known.also, item))
        return place

    def _add(self, query: Query) -> int:
        place = len(self._queries)
        self._queries.append(query)
        self._places.setdefault(query.amount, place)
        return place


def parts_in(selected: Selection, item: Counted) -> dict[Amount, tuple[Item, str]]:
    """What every part of an item of a SELECT is called, and what tells it apart within its group, if it takes that.

    An item that is no derived one is its own part.
    """
    own = Item(item.name, selected.statement.number, selected.statement.weight)
    if not isinstance(item.amount, Combination | Crossing):
        return {item.amount: (own, "")}
    called = _called(item.amount)
    share = 1 / len({kind for kind, _ in called.values()})
    return {
        amount: (replace(own, name=f"{item.name}.{kind}", of=item.name, share=share, adds=_adds(amount)), cut)
        for amount, (kind, cut) in called.items()
    }


def _adds(amount: Amount) -> str:
    """What a sum from the middle of a column's range adds up, as that of an average is; nothing of any other."""
    match amount:
        case Choice(then=then):
            return _adds(then)
        case Total((ValueOf(name), Scaled(factor, ValueOf(same, counted=True)))) if name == same:
            return f"{name} {'−' if factor < 0 else '+'} {abs(factor):,.15g}"
    return ""


def _called(expression: Combination[Amount] | Crossing[Amount]) -> dict[Amount, tuple[str, str]]:
    """The different parts of an expression: what each is, and what tells it apart."""
    if isinstance(expression, Crossing):
        cuts = [f"{BELOW}={in_name(edge)}" for edge in edge_titles(expression)]
        below = {amount: (BELOW, cut) for amount, cut in zip(expression.below, cuts, strict=True)}
        return {**below, expression.total: ("total", "")}
    found: dict[Amount, tuple[str, str]] = {}
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
    amount: Amount | Combination[Amount] | Crossing[Amount]

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """What each record adds to the queries that a group takes: one, or the parts of a derived answer."""
        own = self.amount
        return tuple(dict.fromkeys(own.parts)) if isinstance(own, Combination | Crossing) else (own,)


@dataclass(frozen=True)
class Selection:
    """What a SELECT asks for: items, the condition on all of them, and what they are grouped by."""

    statement: Statement
    counted: tuple[Counted, ...]
    where: Condition | None
    grouping: Grouping

    @property
    def size(self) -> int:
        """How many queries these are."""
        return sum(len(item.amounts) for item in self.counted) * self.grouping.size

    def rows(self) -> Iterator[tuple[list[str], list[Group]]]:
        """What the name of every row of groups says of each key, in the declared order, and the groups; empty ones
        belong to it."""
        for row in self.grouping.rows():
            titles = [f"{key.name}={ALL if group is None else in_name(group.title)}" for key, group in row]
            yield titles, [group for _, group in row if group is not None]


def selection(statement: Statement, declared: Declared) -> Selection:
    """What a statement asks for."""
    scope = scope_of(statement, declared)
    where = statement.tree.args.get("where")
    holds = None if where is None else condition(scope, where.this)
    grouped = grouping(scope)
    counted: list[Counted] = []
    unnamed = 0
    for item in statement.tree.expressions:
        inner = item_of(item)
        if _is_key(scope, inner, grouped):
            continue
        amount = measured(scope, inner)
        if isinstance(item, exp.Alias):
            name = alias_name(scope, item)
        else:
            unnamed += 1
            name = f"query_{statement.number}" + (f"_{unnamed}" if unnamed > 1 else "")
        counted.append(Counted(name, item, amount))
    if not counted:
        raise statement.refusal_at("SELECT", "no count or sum is asked for", "add COUNT(*) to the SELECT")
    return Selection(statement, tuple(counted), holds, grouped)


def _is_key(scope: Scope, node: Node, grouped: Grouping) -> bool:
    """Whether an item only shows what is grouped by; a column that is not grouped by is refused."""
    if isinstance(node, exp.Case):
        return any(key.node == node for key in grouped.keys)
    if not isinstance(node, exp.Column) or not grouped.keys:
        return False
    named = scope.grouping(node)
    name = named[1] if named is not None else scope.column(node)[0]
    if name not in (key.name for key in grouped.keys):
        raise scope.refusal(node, "a column that is neither counted nor grouped by", f"add {name} to GROUP BY")
    return True
