"""The parts of derived answers as queries of the batch: those that are asked anyway are shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from batchdp.derived.expressions import Asked, Combination, Crossing
from batchdp.domain.columns import label
from batchdp.queries import Amount, Choice, Item, Query, Scaled, Total, ValueOf
from batchdp.queries.groups import restricted
from batchdp.queries.statements import in_name
from batchdp.sql.batch import Batch, comparable

if TYPE_CHECKING:
    from batchdp.sql.selections import Counted, Selection

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
