"""One SELECT as queries: its items, its condition and its groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from batchdp.derived.expressions import Combination, Crossing
from batchdp.queries import Amount, Condition
from batchdp.queries.groups import Group
from batchdp.queries.statements import ALL, in_name
from batchdp.sql.conditions import condition
from batchdp.sql.derived import measured
from batchdp.sql.groupings import Grouping, alias_name, grouping, item_of
from batchdp.sql.places import Node, Statement
from batchdp.sql.scope import Declared, Scope, scope_of


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
