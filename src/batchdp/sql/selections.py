"""One SELECT as queries: its items, its condition and its groups."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from batchdp.queries import Amount, Condition, Item, Query
from batchdp.queries.statements import ALL, in_name
from batchdp.sql.amounts import combination
from batchdp.sql.conditions import condition
from batchdp.sql.groupings import Grouping, alias_name, grouping, item_of, restricted
from batchdp.sql.places import Node, Statement
from batchdp.sql.scope import Declared, Scope, scope_of


@dataclass(frozen=True)
class Counted:
    """An item of a SELECT that is counted or summed: its name, how it was written, and what each record adds."""

    name: str
    node: Node
    amount: Amount


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
        return len(self.counted) * self.grouping.size

    def queries(self) -> list[tuple[Counted, Query]]:
        """One query an item and row of groups, in the declared order; empty groups belong to it."""
        made = []
        for item in self.counted:
            own = Item(item.name, self.statement.number, self.statement.weight)
            for row in self.grouping.rows():
                amount = restricted(item.amount, [group for _, group in row if group is not None], self.where)
                titles = [f"{key.name}={ALL if group is None else in_name(group.title)}" for key, group in row]
                made.append((item, Query(f"{item.name}[{', '.join(titles)}]" if titles else item.name, amount, own)))
        return made


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
        amount = combination(scope, inner)
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
