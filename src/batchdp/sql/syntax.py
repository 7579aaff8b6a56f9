"""A statement as a syntax tree of which every node and every part is known. Anything else is refused here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlglot import Dialect, Token, exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from batchdp.domain import Column, Domain, Listed
from batchdp.domain.columns import fold
from batchdp.errors import QueryError
from batchdp.sql.refusals import Node, Statement, advice_on_node, advice_on_part, advice_on_statement
from batchdp.sql.script import EXAMPLE, Script, shown

MOST_SHOWN = 8
MOST_COMPARED = 2000
"""Names that a misspelt one is compared with, which takes a while."""


class Declared:
    """A domain, made quick to look up: a batch may hold very many names and constants."""

    def __init__(self, domain: Domain) -> None:
        self.domain, columns = domain, domain.columns.items()
        self.names = {fold(name): name for name in domain.columns}
        self.groupings = {fold(one): (name, one) for name, column in columns for one in column.groupings or ()}
        self.values = {name: frozenset(column.values) for name, column in columns if isinstance(column, Listed)}


@dataclass(frozen=True)
class Scope:
    """A statement, the declared columns, and the name that the statement calls the table."""

    statement: Statement
    declared: Declared
    table: str

    @property
    def domain(self) -> Domain:
        """The domain of the table."""
        return self.declared.domain

    def refusal(self, node: Node, problem: str, remedy: str) -> QueryError:
        """The error for a node."""
        return self.statement.refusal(node, problem, remedy)

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
                remedy = f"texts stand in single quotes; {remedy}"
            raise self.refusal(node, "a column that is not declared", remedy)
        return name, self.domain.columns[name]

    def _check_table(self, node: Node) -> None:
        table = node.args.get("table")
        if table is not None and fold(table.name) != fold(self.table):
            raise self.refusal(table, "not the table of this query", f"write {self.table}.{node.name}, or {node.name}")


def scope_of(statement: Statement, declared: Declared) -> Scope:
    """The scope of a statement, whose table has to be the declared one."""
    domain = declared.domain
    source = statement.tree.args.get("from_") or statement.tree.args.get("from")
    if source is None:
        raise statement.refusal_at("SELECT", "a query without a table", f"add FROM {domain.table}")
    table = source.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise statement.refusal(source, "not the declared table", f"write FROM {domain.table}")
    if fold(table.name) != fold(domain.table):
        raise statement.refusal(table.this, "a table that is not declared", f"write FROM {domain.table}")
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
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is)
PARTS: dict[type, frozenset[str]] = {
    kind: frozenset(parts.split())
    for parts, kinds in {
        "": (exp.Null, exp.Star),
        "this": (exp.From, exp.TableAlias, exp.Where, exp.Boolean, exp.Paren, exp.Neg, exp.Not, *AGGREGATES),
        "this expression": (
            *ARITHMETIC,
            *COMPARISONS,
            exp.And,
            exp.Or,
            exp.Is,
            exp.Nullif,
            exp.Filter,
            exp.WithinGroup,
        ),
        "expressions": (exp.Group, exp.Order),
        "expressions from from_ where group": (exp.Select,),
        "this alias": (exp.Table, exp.Alias),
        "this table": (exp.Column,),
        "this quoted": (exp.Identifier,),
        "this is_string": (exp.Literal,),
        "this big_int": (exp.Count,),
        "this desc nulls_first": (exp.Ordered,),
        "this quantile": (exp.ApproxQuantile, exp.Quantile),
        "this ifs default": (exp.Case,),
        "this true": (exp.If,),
        "this to": (exp.Cast,),
        "this nested": (exp.DataType,),
        "this low high": (exp.Between,),
        "this expressions": (exp.In,),
    }.items()
    for kind in kinds
}
"""Every kind of node that is understood, and the parts that it may have."""
SETS = (exp.Tuple, exp.GroupingSets, exp.Rollup, exp.Cube)
"""Understood in GROUP BY, and nowhere else."""


def parsed(script: Script) -> Iterator[Statement]:
    """The statements of a script, each checked to hold nothing but what is understood."""
    stretches = script.statements()
    if not stretches:
        raise QueryError(f"{script.name} holds no query; {EXAMPLE}")
    for first, last in stretches:
        if script.lexemes[first].word != "SELECT":
            problem, remedy = advice_on_statement(script.lexemes[first].word)
            raise script.refusal(script.lexemes[first].start, script.lexemes[last - 1].end, problem, remedy)
    dialect = Dialect.get_or_raise(None)
    # The default dialect: its tokens are those of standard SQL, and it does not rewrite what it reads.
    parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
    with _silence():
        tokens = _tokens(dialect, script)
    at = 0
    for number, (first, last) in enumerate(stretches, 1):
        start, end = script.lexemes[first].start, script.lexemes[last - 1].end
        while tokens[at].start < start:
            at += 1
        until = at
        while until < len(tokens) and tokens[until].start < end:
            until += 1
        with _silence():
            tree = _tree(parser, tokens[at:until], script, first, last)
        at = until
        statement = Statement(tree, number, script, first, last)
        _check_parts(statement)
        yield statement


def _tokens(dialect: Dialect, script: Script) -> list[Token]:
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


def _check_parts(statement: Statement) -> None:
    for node in statement.tree.walk():
        known = PARTS.get(type(node))
        within = isinstance(node.parent, (exp.Group, exp.Paren, *SETS)) and node.find_ancestor(exp.Group)
        if isinstance(node, SETS) and within:
            known = frozenset({"expressions"})
        if known is None:
            problem, remedy, words = advice_on_node(node)
            raise statement.refusal_at(words, problem, remedy, node)
        for part, value in node.args.items():
            if part not in known and value is not None and value is not False and value != []:
                problem, remedy, words = advice_on_part(type(node).__name__, part)
                raise statement.refusal_at(words, problem, remedy, node)


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
