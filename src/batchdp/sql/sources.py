"""FROM: which relation a statement counts. Joins are on the unit, or bring the columns of a public lookup.

What is left of the statement reads one table: names of tables are gone from its columns, those of a lookup are
functions of a declared column, and COUNT(DISTINCT unit) is a node of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sqlglot import exp

from batchdp.domain import Database, Domain, Integers, Listed
from batchdp.domain.columns import fold, label
from batchdp.domain.lookups import Lookup
from batchdp.domain.relations import Aggregate, DeclaredTable, Joined, Relation, joined, per_person
from batchdp.errors import DomainError
from batchdp.queries.query import Amount, Choice, Constant
from batchdp.sql.flatten import is_grouped
from batchdp.sql.refusals import Node, Statement
from batchdp.sql.script import RefusalError

OTHERS = "one person's row could meet rows of others, so that one person could change what others add"
ON_UNIT = "join on the privacy unit, like USING ({unit}), or on the key of a lookup that the domain declares"
MOST_SIDES = 10


class PersonCount(exp.Count):
    """COUNT(DISTINCT unit)."""


class LookedUp(exp.Lower):
    """What a lookup has for the value of a declared column; its name is the lookup's and the column's."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "name": True}


@dataclass
class Side:
    """A table of FROM: what it is called there, and what its columns are called in what is counted."""

    alias: str
    relation: Relation | None
    """None for a lookup."""
    unit: str = ""
    names: dict[str, Node] = field(default_factory=dict)
    """By folded name what stands for a column."""
    nullable: bool = False
    """Whether its rows may be missing, on the right of a LEFT JOIN."""


def resolved(statement: Statement, domain: Domain) -> Statement:
    """The statement over one table, with the relation that this is where it is not a declared one."""
    tree = statement.tree
    source = tree.args.get("from_") if isinstance(tree, exp.Select) else None
    if source is None:
        return statement
    joins = tree.args.get("joins") or []
    if len(joins) >= MOST_SIDES:
        raise statement.refusal(source, f"more than {MOST_SIDES} tables", "join fewer")
    first = _side(statement, source.this, domain)
    if first is None:  # which is refused when the table is looked up
        return statement
    sides, relation, conditions = [first], first.relation, []
    if relation is None:
        raise statement.refusal(source, "a lookup before any table", f"write FROM table JOIN {first.alias} ON …")
    for join in joins:
        more = _side(statement, join.this, domain)
        if more is None:
            raise statement.refusal(join.this, "a table that is not declared", "declare it, or leave it out")
        outer = _is_outer(statement, join, domain)
        if more.relation is None:
            conditions += _look_up(statement, join, sides, more, relation.domain, domain, outer=outer)
        else:
            relation = _join(statement, join, sides, more, relation, outer=outer)
        sides.append(more)
    if len({one.alias for one in sides}) < len(sides):
        raise statement.refusal(source, "two tables of one name", "give each its own name with AS")
    tree.set("joins", None)
    made = None if isinstance(relation, DeclaredTable) else relation
    if joins or made is not None:
        identifier = exp.Identifier(this=relation.name, quoted=True)
        tree.set("from_", exp.From(this=exp.Table(this=identifier)))
    _rewrite(statement, tree, sides, every=bool(joins) or made is not None)
    if conditions:
        where = tree.args.get("where")
        every = [*conditions, *([] if where is None else [exp.Paren(this=where.this)])]
        tree.set("where", exp.Where(this=exp.and_(*every, copy=False, wrap=False)))
    return replace(statement, tree=tree, relation=made)


def _side(statement: Statement, node: Node, domain: Domain) -> Side | None:
    """What stands in FROM or behind JOIN; None for what is no declared name."""
    if isinstance(node, exp.Subquery) and is_grouped(node.this):
        return _of_persons(statement, node, domain)
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or node.args.get("db"):
        return None
    alias = fold(node.alias or node.name)
    tables = domain.tables if isinstance(domain, Database) else {domain.table: domain}
    own = next((name for name in tables if fold(name) == fold(node.name)), None)
    if own is not None:
        return _of_relation(alias, DeclaredTable(tables[own], own))
    name = next((name for name in domain.lookups if fold(name) == fold(node.name)), None)
    if name is None:
        return None
    lookup = domain.lookups[name]
    return Side(alias, None, "", {fold(one): exp.Identifier(this=f"{name}.{one}") for one in lookup.columns})


def _of_relation(alias: str, relation: Relation) -> Side:
    names = {fold(one): _column(one) for one in relation.domain.columns}
    for column in relation.domain.columns.values():
        names |= {fold(one): _column(one) for one in column.groupings or ()}
    return Side(alias, relation, relation.domain.privacy.unit or "", names)


def _column(name: str) -> Node:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _is_outer(statement: Statement, join: Node, domain: Domain) -> bool:
    """Whether a join keeps rows without a partner; refused unless it is INNER or LEFT, and says on what."""
    args = {name: str(value).upper() for name, value in join.args.items() if isinstance(value, str) and value}
    words = " ".join(args.get(name, "") for name in ("method", "side", "kind")).split()
    remedy = ON_UNIT.format(unit=domain.privacy.unit or "unit")
    if not join.args.get("using") and not join.args.get("on"):
        raise statement.refusal(join.this, f"a cross join: {OTHERS}", remedy)
    if words not in ([], ["INNER"], ["LEFT"], ["LEFT", "OUTER"]):
        said = " ".join(words)
        raise statement.refusal(join.this, f"a {said} JOIN is not supported", "write JOIN or LEFT JOIN")
    return "LEFT" in words


def _keys(statement: Statement, join: Node) -> tuple[Node, Node] | None:
    """The two columns that a join compares, or one name for both; None for anything else."""
    using, on = join.args.get("using"), join.args.get("on")
    if using:
        return (using[0], using[0]) if len(using) == 1 else None
    while isinstance(on, exp.Paren):
        on = on.this
    if isinstance(on, exp.EQ) and isinstance(on.this, exp.Column) and isinstance(on.expression, exp.Column):
        return on.this, on.expression
    return None


def _is_unit(side: Side, node: Node) -> bool:
    """Whether a name, perhaps with a table's, is that of the side's unit."""
    table = node.args.get("table")
    named = table is None or fold(table.name) == side.alias
    return named and bool(side.unit) and fold(node.name) == fold(side.unit)


def _join(
    statement: Statement, join: Node, sides: list[Side], more: Side, relation: Relation, *, outer: bool
) -> Joined:
    """Both joined on the unit; refused if that is not what the join compares."""
    assert more.relation is not None
    keys = _keys(statement, join)
    unit = relation.domain.privacy.unit
    if unit is None:
        remedy = "say whose rows they are, with unit under [privacy]"
        raise statement.refusal(join.this, f"a join without a privacy unit: {OTHERS}", remedy)
    ways = [] if keys is None else [keys, keys[::-1]]
    earlier = [one for one in sides if one.relation is not None and not one.nullable]
    if not any(_is_unit(more, right) and any(_is_unit(one, left) for one in earlier) for left, right in ways):
        late = [one for one in sides if one.relation is not None and one.nullable]
        if any(_is_unit(more, right) and any(_is_unit(one, left) for one in late) for left, right in ways):
            remedy = "compare with the unit of the first table"
            raise statement.refusal(join.this, "a join on a unit that a LEFT JOIN may have left out", remedy)
        raise statement.refusal(join.this, f"a join on anything but the unit: {OTHERS}", ON_UNIT.format(unit=unit))
    if set(relation.tables) & set(more.relation.tables):
        remedy = "count from a subquery that is grouped by the unit, which sees all rows of a person at once"
        raise statement.refusal(join.this, "a table joined with itself", remedy)
    try:
        found = joined(relation, more.relation, outer=outer)
    except DomainError as error:
        raise statement.refusal(join.this, str(error), "lower the caps of the tables") from None
    columns = more.relation.domain.columns
    more.names = {}
    for here, there in found.right_columns:
        both = zip(found.domain.columns[here].groupings or (), columns[there].groupings or (), strict=True)
        more.names |= {fold(there): _column(here)} | {fold(old): _column(new) for new, old in both}
    more.nullable = outer
    return found


def _look_up(
    statement: Statement, join: Node, sides: list[Side], more: Side, own: Domain, domain: Domain, *, outer: bool
) -> list[Node]:
    """The columns of a lookup as functions of a declared column; what INNER asks of that."""
    name = next(name for name in domain.lookups if fold(name) == fold(join.this.name))
    lookup = domain.lookups[name]
    keys = _keys(statement, join)
    for left, right in [] if keys is None else [keys, keys[::-1]]:
        table = right.args.get("table")
        if fold(right.name) != fold(lookup.key) or (table is not None and fold(table.name) != more.alias):
            continue
        if join.args.get("on") and table is None and left.args.get("table") is None:
            continue  # which of both is meant cannot be told
        found = _find(statement, sides, left)
        if isinstance(found, exp.Column) and found.name in own.columns:
            for one in lookup.columns:
                function = LookedUp(this=found.copy(), name=exp.Literal.string(f"{name}.{one}"))
                more.names[fold(one)] = function
            more.names.setdefault(fold(lookup.key), found.copy())
            there = _declared_keys(statement, join, own, found.name, lookup)
            return [] if outer else [exp.In(this=found.copy(), expressions=there)]
    remedy = f"compare {name}.{lookup.key} with a declared column, like ON visits.clinic = {name}.{lookup.key}"
    raise statement.refusal(join.this, f"a lookup joined on anything but its key, {lookup.key}", remedy)


def _declared_keys(statement: Statement, join: Node, own: Domain, name: str, lookup: Lookup) -> list[Node]:
    """The declared values of a column that have a row in a lookup, as constants."""
    column = own.columns[name]
    values: list[Node] = []
    if isinstance(column, Listed):
        for value in column.values:
            if label(value) in lookup.keys:
                one = exp.Literal.number(str(value)) if type(value) is int else exp.Literal.string(str(value))
                values.append(exp.Boolean(this=value) if isinstance(value, bool) else one)
    elif isinstance(column, Integers):
        low, high = column.integers
        numbers = sorted(int(key) for key in lookup.keys if key.removeprefix("-").isdecimal() and str(int(key)) == key)
        positive = [exp.Literal.number(str(abs(number))) for number in numbers if low <= number <= high]
        inside = [number for number in numbers if low <= number <= high]
        values = [exp.Neg(this=one) if number < 0 else one for one, number in zip(positive, inside, strict=True)]
    else:
        remedy = "declare its values, or integers"
        raise statement.refusal(join.this, f"a lookup of {name}, which lists no values", remedy)
    if not values:
        remedy = "keys are written as the declared values are"
        raise statement.refusal(join.this, f"a lookup without a row for any declared value of {name}", remedy)
    return values


def _find(statement: Statement, sides: list[Side], node: Node) -> Node | None:
    """What a name stands for; None if no side has it, or if only its own table could say."""
    table = node.args.get("table")
    if table is not None:
        side = next((one for one in sides if one.alias == fold(table.name)), None)
        if side is None:
            known = ", ".join(one.alias for one in sides)
            raise statement.refusal(table, "not the table of this query", f"write one of {known}")
        return side.names.get(fold(node.name))
    found = [one.names[fold(node.name)] for one in sides if fold(node.name) in one.names]
    if len({one.sql() for one in found}) > 1:
        remedy = f"write {sides[0].alias}.{node.name}"
        raise statement.refusal(node, "a column that several tables have", remedy)
    return found[0] if found else None


def _of_persons(statement: Statement, node: Node, domain: Domain) -> Side:
    """A subquery that is grouped by the unit: one row per person."""
    select = node.this
    held = {part for part, value in select.args.items() if value not in (None, [], False)}
    if extra := held - {"expressions", "from_", "joins", "where", "group"}:
        remedy = "write SELECT unit, COUNT(*) AS n FROM table WHERE … GROUP BY unit"
        raise statement.refusal(select, f"a subquery with {min(extra).upper().strip('_')}", remedy)
    inner = resolved(replace(statement, tree=select, relation=None), domain)
    tables = domain.tables if isinstance(domain, Database) else {domain.table: domain}
    source = inner.tree.args["from_"].this
    own = next((name for name in tables if fold(name) == fold(source.name)), None)
    if inner.relation is None and own is None:
        raise statement.refusal(source, "a table that is not declared", f"declared are {', '.join(tables)}")
    of = inner.relation or DeclaredTable(tables[own or ""], own or "")
    unit = of.domain.privacy.unit
    keys = getattr(inner.tree.args.get("group"), "expressions", [])
    others = {part for part, value in (inner.tree.args.get("group") or exp.Group()).args.items() if value}
    if unit is None or len(keys) != 1 or not _names_unit(keys[0], unit) or others != {"expressions"}:
        problem = f"a subquery that is not grouped by the unit alone: {OTHERS}"
        once = f"GROUP BY {unit}" if unit else "GROUP BY the unit, once the domain declares one"
        raise statement.refusal(select, problem, f"{once}, or only filter: FROM (SELECT columns FROM table WHERE …)")
    columns: dict[str, Aggregate] = {}
    called = ""
    for item in inner.tree.expressions:
        if _names_unit(item.this if isinstance(item, exp.Alias) else item, unit):
            called = item.alias if isinstance(item, exp.Alias) else unit
            continue
        one = _aggregate(of, item)
        if isinstance(item, exp.Alias) and fold(item.alias) == fold(unit):
            raise statement.refusal(item, f"{unit} is the unit's name", "give it another one with AS")
        if one is None or not isinstance(item, exp.Alias) or fold(item.alias) in map(fold, columns):
            remedy = "write COUNT(*), or COUNT, SUM, MIN, MAX or ANY_VALUE of a declared column, each with a name by AS"
            raise statement.refusal(item, "not what is known of a person's rows", remedy)
        columns[item.alias] = one
    where = inner.tree.args.get("where")
    holds = None if where is None else _condition(inner, of, domain, where)
    try:
        found = per_person(of, holds, tuple(columns.items()))
    except (DomainError, ValueError) as error:
        raise statement.refusal(select, str(error), "or leave it out") from None
    side = _of_relation(fold(node.alias or ""), found)
    return replace(side, unit=called)


def _names_unit(node: Node, unit: str) -> bool:
    return isinstance(node, exp.Column) and fold(node.name) == fold(unit)


def _aggregate(of: Relation, item: Node) -> Aggregate | None:
    """What an item of a subquery says of a person's rows; None for anything else."""
    node = item.this if isinstance(item, exp.Alias) else item
    kinds: dict[type, Any] = {
        **{exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.AnyValue: "any"}
    }
    held = {part for part, value in node.args.items() if value not in (None, [], False)} - {"big_int"}
    if type(node) not in kinds or held != {"this"}:
        return None
    inner = node.this
    if type(node) is exp.Count and isinstance(inner, exp.Star | exp.Literal):
        return Aggregate("count")
    name = of.domain.column(inner.name) if isinstance(inner, exp.Column) else None
    return None if name is None else Aggregate(kinds[type(node)], name)


def _condition(inner: Statement, of: Relation, domain: Domain, where: Node) -> Amount | None:
    """1 for rows that fulfil the condition of a subquery; what is not understood of it is among the refusals."""
    # What reads conditions reads statements, and these begin here.
    from batchdp.sql.conditions import condition
    from batchdp.sql.syntax import Declared, Scope, checked

    table = inner.tree.args["from_"].this
    tree = exp.Select(expressions=[exp.Star()], from_=inner.tree.args["from_"].copy(), where=where.copy())
    found = checked(replace(inner, tree=tree))
    if not found.understands(found.tree):
        return None
    scope = Scope(found, Declared(of.domain, of.name, domain.lookups), table.alias or table.name)
    return Choice(condition(scope, found.tree.args["where"].this), Constant(1.0), Constant(0.0))


def _rewrite(statement: Statement, tree: Node, sides: list[Side], *, every: bool) -> None:
    """Every column by its name in what is counted, and persons as what they are."""
    for node in list(tree.find_all(exp.Count)):
        inner = node.this
        one = inner.expressions[0] if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1 else None
        if isinstance(one, exp.Column) and not inner.args.get("on"):
            whose = [side for side in sides if _is_unit(side, one)]
            if whose and all(side.nullable for side in whose):
                remedy = "count the unit of the first table, or write JOIN"
                raise statement.refusal(one, "persons that a LEFT JOIN may have left out", remedy)
            if whose:
                node.replace(PersonCount(this=exp.Column(this=one.this)))
    if not every:
        return
    for column in list(tree.find_all(exp.Column)):
        if isinstance(column.parent, PersonCount):
            continue
        found = _find(statement, sides, column)
        if found is None and any(_is_unit(one, column) and not one.nullable for one in sides):
            first = sides[0].relation
            found = _column((first.domain.privacy.unit if first is not None else None) or column.name)
        if found is None and column.args.get("table") is not None:
            raise _undeclared(statement, sides, column)
        if found is not None:
            meant = found.copy()
            for identifier in meant.find_all(exp.Identifier):
                identifier.meta.update(column.this.meta)
            column.replace(meant)


def _undeclared(statement: Statement, sides: list[Side], column: Node) -> RefusalError:
    side = next(one for one in sides if one.alias == fold(column.table))
    known = ", ".join(list(side.names)[:8])
    return statement.refusal(column, "a column that is not declared", f"declared are {known}")
