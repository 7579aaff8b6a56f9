"""A statement as a syntax tree of which every node and every part is known. Anything else is refused here."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from sqlglot import Dialect, Token, exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from batchdp.domain import Column, Database, Domain, Listed
from batchdp.domain.columns import fold
from batchdp.domain.lookups import Lookup
from batchdp.errors import QueryError
from batchdp.sql.flatten import flattened
from batchdp.sql.refusals import Node, Statement, advice_on_node, advice_on_part, advice_on_statement
from batchdp.sql.script import EXAMPLE, RefusalError, Script, shown
from batchdp.sql.sources import LookedUp, PersonCount, resolved

MOST_SHOWN = 8
MOST_REFUSED = 100
"""Statements that are read differently by others and looked for one by one."""
MOST_COMPARED = 2000
"""Names that a misspelt one is compared with, which takes a while."""


class Declared:
    """A domain, made quick to look up: a batch may hold very many names and constants."""

    def __init__(self, domain: Domain, relation: str = "", lookups: Mapping[str, Lookup] | None = None) -> None:
        self.domain, columns = domain, domain.columns.items()
        self.lookups = domain.lookups if lookups is None else lookups
        self.names = {fold(name): name for name in domain.columns}
        self.groupings = {fold(one): (name, one) for name, column in columns for one in column.groupings or ()}
        self.functions: dict[Node, Any] = {}
        """What functions of columns were worked out to be, by how they are written."""
        several = domain.tables if isinstance(domain, Database) else {}
        self.tables = {fold(name): Declared(own, name, self.lookups) for name, own in several.items()}
        """Where there are several, each by itself."""
        self.relation = relation
        self.values = {name: frozenset(column.values) for name, column in columns if isinstance(column, Listed)}


@dataclass(frozen=True)
class Scope:
    """A statement, the declared columns, and the name that the statement calls the table."""

    statement: Statement
    declared: Declared
    table: str
    keys: Any = None
    """The `Grouping`, once it is known."""

    @property
    def domain(self) -> Domain:
        """The domain of the table."""
        return self.declared.domain

    def refusal(self, node: Node, problem: str, remedy: str) -> RefusalError:
        """The error for a node."""
        return self.statement.refusal(node, problem, remedy)

    def taking(self) -> AbstractContextManager[None]:
        """What is refused within is said later, with everything else that is wrong with the text."""
        return self.statement.script.refusals.taking()

    def knows(self, node: Node) -> bool:
        """Whether a name is that of a declared column or grouping."""
        return fold(node.name) in self.declared.names or fold(node.name) in self.declared.groupings

    def grouping(self, node: Node) -> tuple[str, str] | None:
        """The column and the grouping of it that a node names, if it names a grouping."""
        self._check_table(node)
        return self.declared.groupings.get(fold(node.name))

    def column(self, node: Node) -> tuple[str, Column]:
        """The declared column that a node names."""
        self._check_table(node)
        name = self.declared.names.get(fold(node.name))
        if name is None and fold(node.name) in self.declared.groupings:
            of, grouping = self.declared.groupings[fold(node.name)]
            remedy = f"GROUP BY {grouping}, or compare {of} itself"
            raise self.refusal(node, f"{grouping} is a grouping of {of}", remedy)
        if name is None:
            remedy = f"declared are {listed(list(self.domain.columns), fold(node.name))}"
            if node.this.args.get("quoted"):
                remedy = f"texts go in single quotes; {remedy}"
            raise self.refusal(node, "a column that is not declared", remedy)
        return name, self.domain.columns[name]

    def _check_table(self, node: Node) -> None:
        table = node.args.get("table")
        if table is not None and fold(table.name) != fold(self.table):
            raise self.refusal(table, "not the table of this query", f"write {self.table}.{node.name}, or {node.name}")


def scope_of(statement: Statement, declared: Declared) -> Scope:
    """The scope of a statement, whose table has to be a declared one, or is made of some."""
    if statement.relation is not None:
        own = statement.relation
        return Scope(statement, Declared(own.domain, own.name, declared.lookups), own.name)
    known = list(declared.domain.tables) if isinstance(declared.domain, Database) else [declared.domain.table]
    remedy = f"write FROM {known[0]}" if len(known) == 1 else f"declared are {listed(known)}"
    source = statement.tree.args.get("from_") or statement.tree.args.get("from")
    if source is None:
        raise statement.refusal_at("SELECT", "a query without a table", f"add FROM {known[0]}")
    table = source.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise statement.refusal(source, "not the declared table", remedy)
    if fold(table.name) not in map(fold, known):
        raise statement.refusal(table.this, "a table that is not declared", remedy)
    declared = declared.tables.get(fold(table.name), declared)
    return Scope(statement, declared, table.alias or table.name)


def listed(names: list[str], near: str = "") -> str:
    """A few of the names, and the closest one if there is any."""
    few = ", ".join(shown(name) for name in names[:MOST_SHOWN])
    more = "" if len(names) <= MOST_SHOWN else f" and {len(names) - MOST_SHOWN} more"
    by_folded = {fold(name): name for name in names[:MOST_COMPARED]}
    close = get_close_matches(fold(near), list(by_folded), 1) if near and len(near) < 100 else []
    return f"{few}{more}" + (f"; did you mean {shown(by_folded[close[0]])}?" if close else "")


def unwrapped(node: Node) -> Node:
    """The node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


AGGREGATES = (exp.Sum, exp.Avg, exp.Median, exp.PercentileCont)
MOMENTS: dict[type, tuple[str, bool]] = {
    exp.Variance: ("variance", True),
    exp.VariancePop: ("variance", False),
    exp.Stddev: ("deviation", True),
    exp.StddevSamp: ("deviation", True),
    exp.StddevPop: ("deviation", False),
    exp.CovarSamp: ("covariance", True),
    exp.CovarPop: ("covariance", False),
    exp.Corr: ("correlation", False),
}
"""What each is, and whether one less than the count is divided by."""
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)
FUNCTIONS = (
    *(
        exp.Lower,
        exp.Upper,
        exp.Length,
        exp.Substring,
        exp.DPipe,
        exp.Coalesce,
        exp.Abs,
        exp.Floor,
        exp.Ceil,
        exp.Round,
    ),
    *(exp.Extract, exp.DateTrunc, exp.Year, exp.Quarter, exp.Month, exp.Week, exp.Day, exp.DayOfMonth, exp.DayOfWeek),
    *(exp.DayOfYear, LookedUp),
)
"""Of a column's declared values."""
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is)
PARTS: dict[type, frozenset[str]] = {
    kind: frozenset(parts.split())
    for parts, kinds in {
        "": (exp.Null, exp.Star),
        "this": (
            *(exp.From, exp.TableAlias, exp.Where, exp.Boolean, exp.Paren, exp.Neg, exp.Not, exp.Var, *AGGREGATES),
            *(exp.Having, PersonCount),
            *FUNCTIONS,
        ),
        "this expression": (
            *ARITHMETIC,
            *COMPARISONS,
            exp.And,
            exp.Or,
            exp.Is,
            exp.Nullif,
            exp.Filter,
            exp.WithinGroup,
            exp.Escape,
            *MOMENTS,
            exp.Extract,
            exp.NullSafeEQ,
            exp.NullSafeNEQ,
        ),
        "this expression safe": (exp.DPipe,),
        "this expression negate": (exp.Like, exp.ILike),
        "this decimals": (exp.Floor, exp.Ceil, exp.Round),
        "this start length": (exp.Substring,),
        "this partition_by over": (exp.Window,),
        "this unit": (exp.DateTrunc, exp.Interval),
        "expressions": (exp.Group, exp.Order),
        "expressions from from_ where group order limit offset having": (exp.Select,),
        "expression": (exp.Limit, exp.Offset),
        "direction count limit_options": (exp.Fetch,),
        "rows": (exp.LimitOptions,),
        "this alias": (exp.Table, exp.Alias),
        "this table": (exp.Column,),
        "this quoted": (exp.Identifier,),
        "this is_string": (exp.Literal,),
        "this big_int": (exp.Count,),
        "this desc nulls_first": (exp.Ordered,),
        "this name": (LookedUp,),
        "this quantile": (exp.ApproxQuantile, exp.Quantile),
        "this ifs default": (exp.Case,),
        "this true": (exp.If,),
        "this to": (exp.Cast,),
        "this nested": (exp.DataType,),
        "this low high symmetric": (exp.Between,),
        "this expressions": (exp.In, exp.Coalesce),
    }.items()
    for kind in kinds
}
"""Every kind of node that is understood, and the parts that it may have."""
SETS = (exp.Tuple, exp.GroupingSets, exp.Rollup, exp.Cube)
"""Understood in GROUP BY, and nowhere else."""


def parsed(script: Script, domain: Domain) -> Iterator[Statement]:
    """The statements of a script; what each holds that is not understood is among the script's refusals."""
    if not script.statements():
        script.refusals.check()
        raise QueryError(f"{script.name} holds no query; {EXAMPLE}")
    for first, last in reversed(script.statements()):
        if script.lexemes[first].word not in ("SELECT", "WITH"):
            problem, remedy = advice_on_statement(script.lexemes[first].word)
            start = script.lexemes[first].start
            script.refusals.add(script.refusal(start, script.lexemes[last - 1].end, problem, remedy))
            script.leave_out(start)
    dialect = Dialect.get_or_raise(None)
    # The default dialect: its tokens are those of standard SQL, and it does not rewrite what it reads.
    parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
    with _silence():
        tokens = _tokens(dialect, script)
    at = 0
    for number, (first, last) in enumerate(script.statements(), 1):
        start, end = script.lexemes[first].start, script.lexemes[last - 1].end
        while tokens[at].start < start:
            at += 1
        until = at
        while until < len(tokens) and tokens[until].start < end:
            until += 1
        with script.refusals.taking(), _silence():
            tree = _tree(parser, tokens[at:until], script, first, last)
            statement = Statement(tree, number, script, first, last)
            statement = checked(resolved(replace(statement, tree=flattened(statement)), domain))
            if isinstance(tree, exp.Select):
                yield statement
        at = until


def _tokens(dialect: Dialect, script: Script) -> list[Token]:
    """What sqlglot reads; statements that it reads differently are refused and left out, up to some."""
    for _ in range(MOST_REFUSED):
        try:
            return _agreed(dialect, script)
        except RefusalError as refusal:
            script.refusals.add(refusal)
            script.leave_out(refusal.place)
    script.refusals.check()
    return []


def _agreed(dialect: Dialect, script: Script) -> list[Token]:
    """What sqlglot reads, checked to be what is written: nothing skipped, and only keywords taken together."""
    try:
        tokens = dialect.tokenize(script.plain)
    except SqlglotError as error:
        raise QueryError(f"{script.name} cannot be read; {EXAMPLE}") from error
    lexemes = script.lexemes
    i = 0
    for token in tokens:
        if token.text == "." and i < len(lexemes) and lexemes[i].kind == "number" and lexemes[i].start == token.start:
            continue  # sqlglot takes .5 for a dot and a number
        first = i
        while i < len(lexemes) and lexemes[i].start <= token.end:
            i += 1
        group = lexemes[first:i]
        begins = bool(group) and token.start == group[0].start + (group[0].text[0] == "." and group[0].kind == "number")
        together = len(group) == 1 or all(lexeme.kind == "word" for lexeme in group)
        if not (begins and together and group[-1].end == token.end + 1):
            raise script.refusal(token.start, token.end + 1, "not standard SQL", EXAMPLE)
    if i < len(lexemes):
        raise script.refusal(lexemes[i].start, lexemes[i].end, "not standard SQL", EXAMPLE)
    return tokens


def _tree(parser: Any, tokens: list[Token], script: Script, first: int, last: int) -> Node:
    lexemes = script.lexemes
    whole = lexemes[first].start, lexemes[last - 1].end
    try:
        trees = parser.parse(tokens, script.plain)
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        # sqlglot gives the column behind the token that it stumbled over.
        at = _place(script.text, detail.get("line"), detail.get("col"))
        i = first if at is None else min(max(script.index(at), first), last - 1)
        said = str(detail.get("description") or "")
        problem = "not SQL that can be read"
        if said.startswith("Expecting "):
            problem = f"not SQL: expecting {said.removeprefix('Expecting ')}"
        raise script.refusal(lexemes[i].start, lexemes[min(i + 6, last) - 1].end, problem, EXAMPLE) from None
    except RecursionError:
        remedy = "write it with fewer parentheses, or as several queries"
        raise script.refusal(*whole, "nested too deeply", remedy) from None
    except SqlglotError as error:
        raise script.refusal(*whole, "not SQL that can be read", EXAMPLE) from error
    if len(trees) != 1 or trees[0] is None:
        raise script.refusal(*whole, "not one query", EXAMPLE)
    return trees[0]


def _place(text: str, line: int | None, column: int | None) -> int | None:
    if line is None or column is None:
        return None
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return max(start + column - 1, 0)


def checked(statement: Statement) -> Statement:
    """The statement with everything in it that is not understood noted, and refused."""
    refused: dict[int, RefusalError] = {}

    def refuse(node: Node, advice: tuple[str, str, str]) -> None:
        problem, remedy, words = advice
        refused.setdefault(id(node), statement.refusal_at(words, problem, remedy, node))

    for node in statement.tree.walk(prune=lambda node: id(node) in refused):
        if id(node) in refused:
            continue
        known = PARTS.get(type(node))
        within = isinstance(node.parent, (exp.Group, exp.Paren, *SETS)) and node.find_ancestor(exp.Group)
        if isinstance(node, SETS) and within:
            known = frozenset({"expressions"})
        if known is None:
            refuse(node, advice_on_node(node))
            continue
        for part, value in node.args.items():
            if part not in known and value is not None and value is not False and value != []:
                advice = advice_on_part(type(node).__name__, part)
                for each in value if isinstance(value, list) else [value]:
                    refuse(each if isinstance(each, exp.Expression) and node is statement.tree else node, advice)
    statement.script.refusals.add(*refused.values())
    return replace(statement, refused=frozenset(refused))


@contextmanager
def _silence() -> Iterator[None]:
    """Keep sqlglot's log to itself: it quotes the text, and its warnings come back as errors here."""
    log = logging.getLogger("sqlglot")

    def nothing(record: logging.LogRecord) -> bool:  # one each, so that several threads do not take another's away
        return False

    log.addFilter(nothing)
    try:
        yield
    finally:
        log.removeFilter(nothing)
