"""GROUP BY: what is grouped by, into which public groups, in which sets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product
from math import prod

from sqlglot import exp

from batchdp.domain import Column, Dates, Integers, Listed, Numbers
from batchdp.domain.columns import MOST_VALUES, check_name, check_text, fold, label, plain_name
from batchdp.errors import QueryError
from batchdp.queries.query import ALL, MISSING, OTHER, Condition, Group, Missing, Negation, union
from batchdp.sql.conditions import branches, check_branches
from batchdp.sql.functions import function, is_function, kind_of, refused_at
from batchdp.sql.refusals import Node, Statement
from batchdp.sql.regions import groups_of, label_of
from batchdp.sql.sources import LookedUp
from batchdp.sql.syntax import Scope, unwrapped

MOST_QUERIES = 10_000
"""That are taken one by one; of more, each statement must be a table of products."""


@dataclass(frozen=True)
class Key:
    """What is grouped by: a column, a grouping of one, or a CASE; its name and its public groups."""

    name: str
    node: Node
    """The CASE, to find it among the items; a column otherwise."""
    size: int
    """How many groups there are, which may be too many to make."""
    make: Callable[[], tuple[Group, ...]]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """In the declared order."""
        return self.make()

    @cached_property
    def everything(self) -> Group:
        """The records that are in any of them."""
        return union(self.groups)


@dataclass(frozen=True)
class Grouping:
    """The keys of a GROUP BY, and the sets of them that rows are made for: one set without ROLLUP and the like."""

    keys: tuple[Key, ...]
    sets: tuple[frozenset[str], ...]

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(prod(key.size for key in self.keys if key.name in one) for one in self.sets)

    def rows(self) -> Iterator[tuple[tuple[Key, Group | None], ...]]:
        """One group per key, in the declared order; None for keys that a row is not grouped by."""
        for one in self.sets:
            yield from product(
                *([(key, g) for g in key.groups] if key.name in one else [(key, None)] for key in self.keys)
            )


def grouping(scope: Scope) -> Grouping:
    """What a statement groups by; one empty set if nothing."""
    group = scope.statement.tree.args.get("group")
    if group is None:
        return Grouping((), (frozenset(),))
    if not group.expressions:
        raise scope.statement.refusal_at("GROUP", "GROUP BY nothing", "name the columns")
    keys: dict[str, Key] = {}
    sets = [frozenset[str]()]
    for element in group.expressions:
        more = _sets(scope, element, keys)
        if len(sets) * len(more) > MOST_QUERIES:
            raise too_many(scope.statement, len(sets) * len(more))
        sets = [one | other for one in sets for other in more]
    if len(set(sets)) < len(sets):
        remedy = "ask for every set once; another aggregate of it is another item"
        raise scope.statement.refusal_at("GROUP", "the same set of columns twice", remedy)
    found = Grouping(tuple(keys.values()), tuple(sets))
    for key in found.keys:
        if len(sets) > 1 and any(group.title == ALL for group in key.groups):
            remedy = "ask for the totals in a query of their own"
            problem = f"{key.name} has a group called {ALL}, which is what totals are called"
            raise scope.refusal(key.node, problem, remedy)
    return found


def too_many(statement: Statement, size: int) -> QueryError:
    """The error for a batch of this size."""
    remedy = f"at most {MOST_QUERIES} are taken one by one; group by fewer columns or coarser bins"
    return statement.refusal_at("GROUP", f"{size} queries in all", remedy)


def _sets(scope: Scope, node: Node, keys: dict[str, Key]) -> list[frozenset[str]]:
    """The sets that an element of GROUP BY stands for; its keys are added to those found so far."""
    match node:
        case exp.Paren():
            return _sets(scope, node.this, keys)
        case exp.Tuple():
            return [_together(scope, node.expressions, keys)]
        case exp.GroupingSets():
            return [one for element in node.expressions for one in _sets(scope, element, keys)]
        case exp.Rollup() | exp.Cube():
            parts = [_together(scope, [element], keys) for element in node.expressions]
            if not parts:
                raise scope.refusal(node, "a level without columns", "name them: GROUP BY ROLLUP (a, b)")
            if isinstance(node, exp.Rollup):
                return [frozenset().union(*parts[:end]) for end in range(len(parts), -1, -1)]
            if 2 ** len(parts) > MOST_QUERIES:
                raise too_many(scope.statement, 2 ** len(parts))
            return [frozenset().union(*compress(parts, each)) for each in product((True, False), repeat=len(parts))]
        case _:
            return [_together(scope, [node], keys)]


def _together(scope: Scope, nodes: list[Node], keys: dict[str, Key]) -> frozenset[str]:
    """Keys that are grouped by together."""
    names: list[str] = []
    for node in nodes:
        if isinstance(node, exp.Tuple | exp.Paren):
            names += _together(scope, node.expressions if isinstance(node, exp.Tuple) else [node.this], keys)
            continue
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise scope.refusal(node, "sets of columns inside ROLLUP or CUBE", "use GROUPING SETS around them")
        key = _key(scope, node)
        if not isinstance(key.node, exp.Column) and keys.get(key.name, key).node != key.node:
            problem = f"the name {key.name} is taken by another CASE or function"
            raise scope.refusal(node, problem, "give each its own name with AS")
        names.append(keys.setdefault(key.name, key).name)
    return frozenset(names)


def _key(scope: Scope, node: Node) -> Key:
    """What a GROUP BY item means: by name, alias or position. A column or grouping goes before an alias."""
    inner = _meant(scope, node)
    if isinstance(inner, exp.Case):
        return _labelled(scope, inner)
    if is_function(inner) and any(inner.find_all(exp.Column)):
        return _computed(scope, inner)
    if not isinstance(inner, exp.Column):
        raise scope.refusal(node, "GROUP BY something that is not a column", "GROUP BY a declared column")
    named = scope.grouping(inner)
    if named is not None:
        of, name = named
        return _of_column(scope.domain.columns[of], of, name, inner)
    name, column = scope.column(inner)
    _check_has_groups(scope, name, column, node)
    return _of_column(column, name, None, inner)


def _of_column(column: Column, name: str, grouping: str | None, node: Node) -> Key:
    extra = _kept(column)

    def make() -> tuple[Group, ...]:
        found = [Group(title, ((holds, True),)) for title, holds in column.grouped(name, grouping) or ()]
        beside: dict[str, Condition] = {OTHER: Negation(union(found).cases[0][0]), MISSING: Missing(name)}
        for title in extra:
            called = f"({title})"
            while any(group.title == called for group in found):
                called = f"({called})"
            found.append(Group(called, ((beside[title], True),)))
        return tuple(found)

    return Key(grouping or name, node, _size(column, grouping) + len(extra), make)


def _kept(column: Column) -> tuple[str, ...]:
    """What there is beside the declared groups, where it is to have groups too."""
    if column.groups is None or column.other == "drop":
        return ()
    whole = isinstance(column, Listed) and column.kind == "boolean" and len(column.values) == 2
    whole = whole or (isinstance(column, Numbers) and column.outside is not None)
    return (MISSING,) if whole else (OTHER, MISSING)


def _size(column: Column, grouping: str | None) -> int:
    """How many groups there are, without making them."""
    if grouping is not None:
        return len((column.groupings or {})[grouping])
    if isinstance(column, Listed):
        return len(column.values)
    if column.bins is not None:
        return len(column.bins)
    return column.integers[1] - column.integers[0] + 1 if isinstance(column, Integers) else 0


def _meant(scope: Scope, node: Node) -> Node:
    inner = unwrapped(node)
    items = scope.statement.tree.expressions
    if isinstance(inner, exp.Literal) and not inner.is_string:
        text = str(inner.this)
        if not (text.isdecimal() and len(text) < 6 and 1 <= int(text) <= len(items)):
            raise scope.refusal(node, "not the position of an item", f"positions go from 1 to {len(items)}")
        inner = item_of(items[int(text) - 1])
        if not _is_groupable(inner):
            raise scope.refusal(node, "the position of an item that is not a column", "GROUP BY a declared column")
    elif isinstance(inner, exp.Column) and not scope.knows(inner) and inner.args.get("table") is None:
        meant = [item for item in items if isinstance(item, exp.Alias) and fold(item.alias) == fold(inner.name)]
        if meant and not _is_groupable(item_of(meant[0])):
            raise scope.refusal(node, "an alias of something that is not a column", "GROUP BY a declared column")
        inner = item_of(meant[0]) if meant else inner
    return inner


def _is_groupable(node: Node) -> bool:
    """Whether an item may be what is grouped by: a column, a CASE, or a function of a column."""
    if isinstance(node, exp.Column | exp.Case):
        return True
    return is_function(node) and any(node.find_all(exp.Column)) and not any(node.find_all(exp.AggFunc))


def item_of(item: Node) -> Node:
    """An item of a SELECT without its alias and parentheses."""
    return unwrapped(item.this if isinstance(item, exp.Alias) else item)


def _labelled(scope: Scope, case: Node) -> Key:
    """The groups of a CASE: its labels, in the order in which they first appear; the same label is one group."""
    alias = next((i for i in scope.statement.tree.expressions if isinstance(i, exp.Alias) and item_of(i) == case), None)
    if alias is None:
        remedy = "name it: SELECT CASE … END AS band, COUNT(*) … GROUP BY band"
        raise scope.refusal(case, "GROUP BY a CASE without a name", remedy)
    if scope.knows(alias.args["alias"]):
        remedy = "call the CASE something else"
        raise scope.refusal(alias.args["alias"], "the name of a declared column or grouping", remedy)
    name = alias_name(scope, alias)
    check_branches(scope, case)
    labelled = [(holds, _label(scope, result)) for holds, result in branches(scope, case)]
    default = case.args.get("default")
    rest = None if default is None else _label(scope, default)
    titles = dict.fromkeys(title for title in (*(one for _, one in labelled), rest) if title is not None)
    if not titles:
        raise scope.refusal(case, "a CASE without labels", "write THEN 'label'")
    groups = tuple(
        Group(title, tuple((holds, title == one) for holds, one in labelled), rest == title) for title in titles
    )
    return Key(name, case, len(groups), lambda: groups)


def _computed(scope: Scope, node: Node) -> Key:
    """The groups of a function: its results, each with the declared values that have it."""
    alias = next((i for i in scope.statement.tree.expressions if isinstance(i, exp.Alias) and item_of(i) == node), None)
    if alias is not None and scope.knows(alias.args["alias"]):
        remedy = "call the function something else"
        raise scope.refusal(alias.args["alias"], "the name of a declared column or grouping", remedy)
    plain = str(node.args["name"].this).partition(".")[2] if isinstance(node, LookedUp) else plain_name(node.sql())
    name = plain if alias is None else alias_name(scope, alias)
    own = function(scope, node)
    if kind_of(own) is bool:
        raise scope.refusal(node, "GROUP BY a condition", "write CASE WHEN … THEN 'label' ELSE 'label' END")
    with refused_at(scope, node):
        groups = tuple(Group(label_of(one), ((holds, True),)) for one, holds in groups_of(own).items())
    for group in groups:
        try:
            check_text(group.title)
        except ValueError as error:
            raise scope.refusal(node, f"a group that cannot be used: {error}", "label it with CASE") from None
    if len(groups) > MOST_VALUES:
        raise scope.refusal(node, f"{len(groups):,} groups", f"at most {MOST_VALUES:,} are allowed")
    return Key(name, node, len(groups), lambda: groups)


def _label(scope: Scope, node: Node) -> str | None:
    """What a group of a CASE is called; None for NULL, which is no group."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Null):
        return None
    if isinstance(inner, exp.Boolean):
        return label(bool(inner.this))
    if not isinstance(inner, exp.Literal):
        raise scope.refusal(node, "a label that is not a constant", "write THEN 'label'")
    try:
        return check_text(str(inner.this))
    except ValueError as error:
        raise scope.refusal(node, f"a label that cannot be used: {error}", "use plain letters") from None


def alias_name(scope: Scope, item: Node) -> str:
    """The name behind AS."""
    alias = item.args["alias"]
    try:
        return check_name(alias.name)
    except ValueError as error:
        raise scope.refusal(alias, f"a name that cannot be used: {error}", "use plain letters") from None


def _check_has_groups(scope: Scope, name: str, column: Column, node: Node) -> None:
    if isinstance(column, Listed) or column.bins is not None:
        return
    if isinstance(column, Integers) and _size(column, None) <= MOST_VALUES:
        return
    if column.groupings:
        raise scope.refusal(node, f"{name} itself has no groups", f"GROUP BY {next(iter(column.groupings))}")
    first = f'"{column.dates[0]}"' if isinstance(column, Dates) else column.ends()[0]
    remedy = f"declare lower edges in the domain, like bins = [{first}, …] under [columns.{name}]"
    raise scope.refusal(node, f"{name} has no groups", remedy)
