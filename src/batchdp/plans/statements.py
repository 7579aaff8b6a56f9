"""What people call a statement: an item of a SELECT with all of its groups; and finding queries by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from batchdp.errors import BatchDPError, QueryError
from batchdp.queries import Item, Query
from batchdp.terminal import sanitise

SUGGESTED = 3
"""Names that a wrong one may have meant."""
MOST_COMPARED = 2000
"""Names that a wrong one is compared with."""


@dataclass(frozen=True)
class Statement:
    """Queries that count alike: those of one item of a SELECT, by position."""

    name: str
    queries: tuple[int, ...]
    weight: float = 1.0
    """By a hint in the SQL."""
    of: str = ""
    """The derived answers that these are a part of."""
    share: float = 1.0
    """Of what counts alike: all parts of a derived answer are one statement together."""
    adds: str = ""
    """What it adds up, where its name does not say that."""


def statements_of(queries: Sequence[Query]) -> tuple[Statement, ...]:
    """The statements of a batch, in order; grouping sets of one statement belong to it."""
    found: dict[tuple[int, str], tuple[Item, list[int]]] = {}
    for q, query in enumerate(queries):
        own = Item(query.name) if query.item is None else query.item
        for item in (own, *query.also):
            found.setdefault((item.select, item.name), (item, []))[1].append(q)
    return tuple(statement_of(item, own) for item, own in found.values())


def statement_of(item: Item, own: Iterable[int]) -> Statement:
    """An item with the positions of its queries."""
    return Statement(item.name, tuple(own), item.weight, item.of, item.share, item.adds)


def describe_parts(added: Iterable[tuple[str, str]]) -> str:
    """What statements add up whose names do not say it, from both; nothing where there are none."""
    found = dict.fromkeys(f"{name} adds up {adds}" for name, adds in added if adds)
    return f"{'; '.join(found)}: a sum from the middle of its column's range." if found else ""


def named(
    name: str,
    names: Sequence[str],
    statements: Sequence[Statement],
    *,
    argument: str,
    error: type[BatchDPError] = QueryError,
    with_parts: bool = False,
) -> tuple[int, ...]:
    """The positions of the queries of this name: those of a statement, or a single one; an unknown name is refused.

    A derived answer stands for its parts, where these are meant.
    """
    parts = [one for one in statements if name and one.of == name]
    own = [one for one in statements if one.name == name or (with_parts and one in parts)]
    places = [q for one in own for q in one.queries]
    if not places and name in names:
        places = [names.index(name)]
    if not places and parts:
        listed = " and ".join(dict.fromkeys(sanitise(one.name) for one in parts))
        raise error(
            f"{argument}: {sanitise(name)!r} is computed from other answers, and how accurate it is depends on them; "
            f"name its parts, {listed}"
        )
    if not places:
        raise error(unknown(name, names, statements, argument=argument))
    return tuple(dict.fromkeys(places))


def unknown(name: str, names: Sequence[str], statements: Sequence[Statement], *, argument: str) -> str:
    """What to say of a name that is in no batch: the ones that it may have meant."""
    all_names = (*dict.fromkeys(statement.name for statement in statements), *names)
    known = {one.casefold(): one for one in all_names[:MOST_COMPARED]}
    near = [known[one] for one in get_close_matches(name.casefold(), known, SUGGESTED, 0.5)]
    listed = " or ".join(map(repr, map(sanitise, near or all_names[:SUGGESTED])))
    return f"{argument}: {sanitise(name)!r} is neither a statement nor a query of the batch; did you mean {listed}?"
