"""One SELECT as queries: its items, its condition and its groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from sqlglot import exp

from batchdp.domain import Column, Dates, Integers, Listed
from batchdp.domain.columns import MOST_VALUES
from batchdp.domain.names import checked_name, folded
from batchdp.errors import QueryError
from batchdp.queries import All, Amount, Choice, Condition, Constant, Query
from batchdp.sql.amounts import combination
from batchdp.sql.conditions import condition
from batchdp.sql.places import Node, Statement
from batchdp.sql.scope import Declared, Scope, opened, unwrapped

MOST_QUERIES = 10_000
"""In a batch."""


@dataclass(frozen=True)
class Counted:
    """An item of a SELECT that is counted or summed: its name, how it was written, and what each record adds."""

    name: str
    node: Node
    amount: Amount


Groups = tuple[tuple[str, Condition], ...]
"""The public groups of a column: what each is called, and what its records fulfil."""


@dataclass(frozen=True)
class Selection:
    """What a SELECT asks for: items, the condition on all of them, and the groups of every GROUP BY column."""

    statement: Statement
    counted: tuple[Counted, ...]
    where: Condition | None
    groups: dict[str, Groups]

    @property
    def size(self) -> int:
        """How many queries these are."""
        return len(self.counted) * prod(len(groups) for groups in self.groups.values())

    def queries(self) -> list[tuple[Counted, Query]]:
        """One query an item and combination of groups, in the declared order; empty groups belong to it."""
        made = []
        for item in self.counted:
            for combined in product(*self.groups.values()):
                conditions = [holds for _, holds in combined] + ([] if self.where is None else [self.where])
                where = conditions[0] if len(conditions) == 1 else All(tuple(conditions))
                amount = Choice(where, item.amount, Constant(0.0)) if conditions else item.amount
                titles = [f"{column}={title}" for column, (title, _) in zip(self.groups, combined, strict=True)]
                made.append((item, Query(f"{item.name}[{', '.join(titles)}]" if titles else item.name, amount)))
        return made


def selection(statement: Statement, declared: Declared) -> Selection:
    """What a statement asks for."""
    scope = opened(statement, declared)
    where = statement.tree.args.get("where")
    holds = None if where is None else condition(scope, where.this)
    grouped = _grouped(scope)
    counted: list[Counted] = []
    unnamed = 0
    for item in statement.tree.expressions:
        inner = unwrapped(item.this if isinstance(item, exp.Alias) else item)
        if grouped and isinstance(inner, exp.Column):
            _check_is_grouped(scope, inner, grouped)
            continue
        amount = combination(scope, inner)
        if isinstance(item, exp.Alias):
            name = _alias(scope, item)
        else:
            unnamed += 1
            name = f"query_{statement.number}" + (f"_{unnamed}" if unnamed > 1 else "")
        counted.append(Counted(name, item, amount))
    if not counted:
        raise statement.refusal_at("SELECT", "no count or sum is asked for", "add COUNT(*) to the SELECT")
    return Selection(statement, tuple(counted), holds, grouped)


def _grouped(scope: Scope) -> dict[str, Groups]:
    """The groups of every column in GROUP BY: by name, by alias or by position."""
    group = scope.statement.tree.args.get("group")
    if group is None:
        return {}
    if not group.expressions:
        raise scope.statement.refusal_at("GROUP", "GROUP BY nothing", "name the columns")
    targets = {_target(scope, node): node for node in group.expressions}
    for name, node in targets.items():
        _check_has_groups(scope, name, node)
    size = prod(_size(scope.domain.columns[name]) for name in targets)
    if size > MOST_QUERIES:
        raise too_many(scope.statement, size)
    return {name: scope.domain.columns[name].groups(name) or () for name in targets}


def too_many(statement: Statement, size: int) -> QueryError:
    """The error for a batch of this size."""
    remedy = f"at most {MOST_QUERIES} are answered together; group by fewer columns or coarser bins"
    return statement.refusal_at("GROUP", f"{size} queries in all", remedy)


def _size(column: Column) -> int:
    """How many groups there are, without making them."""
    if isinstance(column, Listed):
        return len(column.values)
    if column.bins is not None:
        return len(column.bins)
    return column.integers[1] - column.integers[0] + 1 if isinstance(column, Integers) else 0


def _target(scope: Scope, node: Node) -> str:
    """The declared column that a GROUP BY item means. A column goes before an alias, as in standard SQL."""
    inner = unwrapped(node)
    items = scope.statement.tree.expressions
    if isinstance(inner, exp.Literal) and not inner.is_string:
        text = str(inner.this)
        if not (text.isdecimal() and len(text) < 6 and 1 <= int(text) <= len(items)):
            raise scope.refusal(node, "not the position of an item", f"positions go from 1 to {len(items)}")
        inner = _item(items[int(text) - 1])
        if not isinstance(inner, exp.Column):
            raise scope.refusal(node, "the position of an item that is no column", "GROUP BY a declared column")
    elif (
        isinstance(inner, exp.Column)
        and folded(inner.name) not in scope.declared.names
        and inner.args.get("table") is None
    ):
        meant = [item for item in items if isinstance(item, exp.Alias) and folded(item.alias) == folded(inner.name)]
        if meant and not isinstance(_item(meant[0]), exp.Column):
            raise scope.refusal(node, "an alias of something that is no column", "GROUP BY a declared column")
        inner = _item(meant[0]) if meant else inner
    if not isinstance(inner, exp.Column):
        raise scope.refusal(node, "GROUP BY something that is no column", "GROUP BY a declared column")
    return scope.column(inner)[0]


def _item(item: Node) -> Node:
    return unwrapped(item.this if isinstance(item, exp.Alias) else item)


def _check_has_groups(scope: Scope, name: str, node: Node) -> None:
    column = scope.domain.columns[name]
    if isinstance(column, Listed) or column.bins is not None:
        return
    if isinstance(column, Integers) and _size(column) <= MOST_VALUES:
        return
    first = f'"{column.dates[0]}"' if isinstance(column, Dates) else column.ends()[0]
    remedy = f"declare lower edges in the domain, like bins = [{first}, …] under [columns.{name}]"
    raise scope.refusal(node, f"{name} has no groups", remedy)


def _check_is_grouped(scope: Scope, node: Node, grouped: dict[str, Groups]) -> None:
    name, _ = scope.column(node)
    if name not in grouped:
        raise scope.refusal(node, "a column that is neither counted nor grouped by", f"add {name} to GROUP BY")


def _alias(scope: Scope, item: Node) -> str:
    alias = item.args["alias"]
    try:
        return checked_name(alias.name)
    except ValueError as error:
        raise scope.refusal(alias, f"a name that cannot be used: {error}", "use plain letters") from None
