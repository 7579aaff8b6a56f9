"""Subqueries in FROM and WITH that only filter and rename, written into the statement that reads them."""

from __future__ import annotations

from sqlglot import exp

from batchdp.domain.columns import fold
from batchdp.sql.refusals import Node, Statement, advice_on_part

FILTER = "write FROM (SELECT columns FROM table WHERE …), which filters and renames; GROUP BY outside of it"
MOST_DEEP = 20


def flattened(statement: Statement) -> Node:
    """The tree of a statement with one table in FROM, where subqueries and WITH allow that."""
    tree = statement.tree
    if not isinstance(tree, exp.Select):
        return tree
    _check_tables(statement, tree)
    known: dict[str, Node] = {}
    for one in getattr(tree.args.get("with_"), "expressions", []):
        inner = one.this
        made = _within(statement, inner, dict(known), 0) if is_grouped(inner) else _read(statement, inner, dict(known))
        known[fold(one.alias)] = made
    tree.set("with_", None)
    return _within(statement, tree, known, 0)


def _check_tables(statement: Statement, tree: Node) -> None:
    """Refuse what is said of a table or subquery in FROM beyond its name: it would be lost where others are joined."""
    for node in tree.find_all(exp.Table, exp.Subquery, exp.CTE):
        if not isinstance(node.parent, exp.From | exp.Join | exp.With):
            continue
        alias = node.args.get("alias")
        if getattr(alias, "columns", []):
            raise statement.refusal(alias, "a table whose columns are renamed", "rename them in SELECT, with AS")
        for part in node.args.keys() - {"this", "alias", "db", "catalog", "materialized"}:
            if node.args[part]:
                problem, remedy, words = advice_on_part(type(node).__name__, part)
                raise statement.refusal_at(words, problem, remedy, node)


def _read(statement: Statement, select: Node, known: dict[str, Node]) -> Node:
    """A subquery in its own right; refused unless it only filters and renames."""
    if isinstance(select, exp.Subquery):
        select = select.this
    allowed = {"expressions", "from_", "where"}
    held = {part for part, value in select.args.items() if value not in (None, [], False)}
    if not isinstance(select, exp.Select) or not held <= allowed or any(select.find_all(exp.AggFunc, exp.Window)):
        raise statement.refusal(select, "a subquery that does more than filter and rename", FILTER)
    # By the names that they have before anything is written into them.
    named = [
        exp.Alias(this=item.copy(), alias=item.this.copy())
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Identifier)
        else item
        for item in select.expressions
    ]
    select.set("expressions", named)
    return _within(statement, select, known, 0)


def _within(statement: Statement, select: Node, known: dict[str, Node], depth: int) -> Node:
    """A SELECT whose table is a subquery or a name of WITH, with that written into it."""
    source = select.args.get("from_")
    if source is None:
        return select
    joins = select.args.get("joins") or []
    for one in (source, *joins):
        _place(statement, one, known, joined=bool(joins))
    table = source.this
    if joins or (isinstance(table, exp.Subquery) and is_grouped(table.this)):
        return select
    inner = None
    if isinstance(table, exp.Subquery):
        inner = _read(statement, table.this, known)
    elif isinstance(table, exp.Table) and fold(table.name) in known and not table.args.get("db"):
        inner = known[fold(table.name)]
    if inner is None:
        return select
    if depth > MOST_DEEP:
        raise statement.refusal(table, "subqueries inside one another", "write fewer")
    called = fold(table.alias or table.name)
    names, everything = _names(statement, inner)
    select.set("from_", inner.args["from_"].copy())
    for column in list(select.find_all(exp.Column)):
        if _is_own_alias(select, column):
            continue
        if column.table and fold(column.table) != called:
            raise statement.refusal(column, "not the table of this query", f"write {column.name}")
        meant = names.get(fold(column.name))
        if meant is not None:
            column.replace(meant.copy())
        elif not everything:
            remedy = f"select it there, with {column.name} or *"
            raise statement.refusal(column, "a column that the subquery does not select", remedy)
        else:
            column.set("table", None)
    held = [inner.expressions if isinstance(item, exp.Star) else [item] for item in select.expressions]
    select.set("expressions", [item.copy() for items in held for item in items])
    both = [one.args["where"].this.copy() for one in (inner, select) if one.args.get("where") is not None]
    if both:
        joined = (
            both[0] if len(both) == 1 else exp.And(this=exp.Paren(this=both[0]), expression=exp.Paren(this=both[1]))
        )
        select.set("where", exp.Where(this=joined))
    return _within(statement, select, {}, depth + 1)


def is_grouped(select: Node) -> bool:
    """Whether a subquery has rows of its own, made of groups or of several tables: it is read where it stands."""
    return isinstance(select, exp.Select) and bool(select.args.get("group") or select.args.get("joins"))


def _place(statement: Statement, one: Node, known: dict[str, Node], *, joined: bool) -> None:
    """Put what a name of WITH stands for in its place, where that is not written into the statement."""
    table = one.this
    if isinstance(table, exp.Table) and fold(table.name) in known and not table.args.get("db"):
        meant = known[fold(table.name)]
        if joined or is_grouped(meant):
            alias = exp.TableAlias(this=exp.to_identifier(table.alias or table.name))
            one.set("this", exp.Subquery(this=meant.copy(), alias=alias))
    elif isinstance(table, exp.Subquery) and is_grouped(table.this):
        table.set("this", _within(statement, table.this, known, 0))


def _names(statement: Statement, inner: Node) -> tuple[dict[str, Node], bool]:
    """What every name of a subquery stands for, and whether all columns of its table go by their own names too."""
    names: dict[str, Node] = {}
    everything = False
    for item in inner.expressions:
        if isinstance(item, exp.Star):
            everything = True
        elif isinstance(item, exp.Alias):
            names[fold(item.alias)] = item.this if isinstance(item.this, exp.Column) else exp.Paren(this=item.this)
        else:
            raise statement.refusal(item, "an item of a subquery without a name", "give it a name with AS")
    return names, everything


def _is_own_alias(select: Node, column: Node) -> bool:
    """Whether a name in GROUP BY, HAVING or ORDER BY is an alias of the statement itself."""
    aliases = {fold(item.alias) for item in select.expressions if isinstance(item, exp.Alias)}
    inside = column.find_ancestor(exp.Group, exp.Having, exp.Order)
    return inside is not None and fold(column.name) in aliases
