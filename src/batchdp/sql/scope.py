"""What the names in a statement stand for."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp

from batchdp.domain import Column, Domain, Listed
from batchdp.domain.names import fold
from batchdp.errors import QueryError
from batchdp.sql.places import Node, Statement
from batchdp.sql.script import shown

MOST_SHOWN = 8
MOST_COMPARED = 2000
"""Names that a misspelt one is compared with, which takes a while."""


class Declared:
    """A domain, made quick to look up: a batch may hold very many names and constants."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.names = {fold(name): name for name in domain.columns}
        self.groupings = {
            fold(grouping): (name, grouping)
            for name, column in domain.columns.items()
            for grouping in column.groupings or ()
        }
        self.values = {
            name: frozenset(column.values) for name, column in domain.columns.items() if isinstance(column, Listed)
        }


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
            raise self.refusal(
                node, f"{grouping} is a grouping of {of}", f"GROUP BY {grouping}, or compare {of} itself"
            )
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
