"""Refusals with their place in the text and a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from batchdp.domain.relations import Relation
from batchdp.sql.script import EXAMPLE, RefusalError, Script, nesting

_OPENERS: dict[type, tuple[str, ...]] = {
    exp.Not: ("NOT",),
    exp.Neg: ("-",),
    exp.Paren: ("(",),
    exp.Tuple: ("(",),
    exp.Case: ("WHEN", "CASE"),
    exp.Cast: ("(", "CAST", "DATE"),
    exp.Interval: ("INTERVAL",),
    exp.Query: ("DISTINCT", "SELECT", "("),
}
"""What a node begins with, before its first name or constant."""

Node = Any
"""A node of sqlglot's syntax trees, whose parts are typed loosely."""


@dataclass(frozen=True)
class Statement:
    """A SELECT that holds nothing unknown, its number from 1, and the text that it stands in."""

    tree: Node
    number: int
    script: Script
    first: int
    """The number of its first lexeme."""
    last: int
    """The number behind its last lexeme."""
    relation: Relation | None = None
    """What it counts, where that is not a declared table."""
    refused: frozenset[int] = frozenset()
    """The nodes that are not understood, by their id; what holds one of them is not looked at."""

    @property
    def weight(self) -> float:
        """How much it matters, by its hint."""
        return self.script.weights.get(self.script.lexemes[self.first].start, 1.0)

    def understands(self, node: Node) -> bool:
        """Whether nothing in a node was refused before."""
        return not self.refused or all(id(part) not in self.refused for part in node.walk())

    def refusal(self, node: Node, problem: str, remedy: str) -> RefusalError:
        """The error for a node."""
        start, end = self._stretch(node)
        if isinstance(node, (exp.Boolean, exp.Null)):
            for lexeme in self.script.lexemes[self.script.index(start) : self.script.index(end - 1) + 1]:
                if lexeme.word == node.sql().upper():
                    start, end = lexeme.start, lexeme.end
        return self.script.refusal(start, end, problem, remedy)

    def refusal_at(self, words: str, problem: str, remedy: str, node: Node = None) -> RefusalError:
        """The error for the first of these keywords; for the node or the statement if none is there."""
        lexemes = self.script.lexemes
        i = next((i for i in range(self.first, self.last) if lexemes[i].word in words.split()), None)
        if i is None:
            return self.refusal(self.tree if node is None else node, problem, remedy)
        end, depth = i, 0
        while end + 1 < self.last and depth + nesting(lexemes[end + 1].word) >= 0:
            end += 1
            depth += nesting(lexemes[end].word)
        return self.script.refusal(lexemes[i].start, lexemes[end].end, problem, remedy)

    def _stretch(self, node: Node) -> tuple[int, int]:
        """From the first to the last character of a node. Only names, constants and functions know their place."""
        places: list[dict[str, int]] = []
        while node is not None and not places:
            places = [part.meta for part in node.walk() if "start" in part.meta]
            found, node = node, node.parent
        lexemes = self.script.lexemes
        if not places:
            return lexemes[self.first].start, lexemes[self.last - 1].end
        low = self.script.index(min(place["start"] for place in places))
        high = self.script.index(max(place["end"] for place in places))
        if isinstance(found, exp.Func) and "start" in found.meta and lexemes[min(high + 1, self.last - 1)].text == "(":
            high += 1
        low = self._opened(found, low)
        if any(isinstance(part, (exp.Null, exp.Boolean)) for part in found.walk()):
            words = [lexeme.word for lexeme in lexemes[high : min(high + 4, self.last)]]
            high += max((i for i, word in enumerate(words) if word in ("NULL", "TRUE", "FALSE")), default=0)
        low, high = self._balanced(low, high)
        return lexemes[low].start, lexemes[high].end

    def _opened(self, node: Node, low: int) -> int:
        """The lexeme that the node begins with, which stands before the first one that knows its place."""
        words = self.script.lexemes
        while isinstance(node, exp.Extract) and low > self.first and words[low].word != "EXTRACT":
            low -= 1
        openers = next((opening for kind, opening in _OPENERS.items() if isinstance(node, kind)), ())
        while low > self.first and words[low - 1].word in openers:
            low -= 1
            if len(openers) == 1:
                break
        return low

    def _balanced(self, low: int, high: int) -> tuple[int, int]:
        """The stretch with every parenthesis and CASE that it opens or closes."""
        steps = [nesting(lexeme.word) for lexeme in self.script.lexemes[self.first : self.last]]
        depth = lowest = 0
        for step in steps[low - self.first : high - self.first + 1]:
            depth += step
            lowest = min(lowest, depth)
        missing, left_open = -lowest, depth - lowest
        while missing > 0 and low > self.first:
            low -= 1
            missing -= steps[low - self.first]
        while left_open > 0 and high + 1 < self.last:
            high += 1
            left_open += steps[high - self.first]
        return low, high


_NEAR = "one record may decide it; near it is PERCENTILE_CONT({}) WITHIN GROUP (ORDER BY column)"
_ROWS = (
    "one record may add a value; COUNT(*) counts rows, COUNT(DISTINCT unit) persons, and GROUP BY a declared column "
    "counts each of its values"
)
_PLAIN = "compare a column with constants: =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL"
_FUNCTIONS = (
    "COUNT, SUM, AVG and MEDIAN are; and of a column LIKE, LOWER, UPPER, SUBSTR, LENGTH, ||, COALESCE, ABS, FLOOR, "
    "CEIL, ROUND, EXTRACT and DATE_TRUNC"
)
_SUM_OF_CASE = "write SUM(CASE WHEN … THEN 1 ELSE 0 END), or COUNT(*) FILTER (WHERE …)"
_DAYS = "compare the column with days, like visited >= DATE '2024-01-01'"
_LIST = "list the values: column IN ('a', 'b')"
_CONSTANT = "write the constant itself"
_DECLARED = "write the condition on the columns of the declared table"
_JOINING = ("Union", "Except", "Intersect")
_ONE_TABLE = (
    "every query reads one declared table: in a join one person could change other people's rows; join before counting"
)

_NODES = {
    **{name: (name.upper(), "write the queries one after another, separated by ;") for name in _JOINING},
    "Subquery": ("a subquery", _DECLARED),
    "Exists": ("EXISTS", _DECLARED),
    "Join": ("a join", _ONE_TABLE),
    "Lateral": ("LATERAL", _ONE_TABLE),
    "Min": ("MIN", _NEAR.format(0.01)),
    "Max": ("MAX", _NEAR.format(0.99)),
    "PercentileDisc": ("PERCENTILE_DISC", "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column)"),
    "Distinct": ("DISTINCT", _ROWS),
    "CountIf": ("COUNT_IF", "write COUNT(*) FILTER (WHERE …)"),
    "If": ("IF", _SUM_OF_CASE),
    **{name: (name.upper(), _LIST) for name in ("Glob", "Any", "All")},
    "SimilarTo": ("SIMILAR TO", _LIST),
    **dict.fromkeys(("RegexpLike", "RegexpILike"), ("a regular expression", _LIST)),
    **dict.fromkeys(("Placeholder", "Parameter"), ("a parameter", _CONSTANT)),
    "CurrentDate": ("CURRENT_DATE", "write the day itself, like DATE '2024-01-31'"),
    "CurrentTimestamp": ("the current time", "write the day itself, like DATE '2024-01-31'"),
    "Date": ("the function DATE", "write DATE '2024-01-31'"),
    "TryCast": ("TRY_CAST", "write DATE '2024-01-31'"),
    "Tuple": ("a tuple", "compare one column at a time, joined by AND"),
    "Concat": ("a text in pieces", "write one text"),
    "Collate": ("COLLATE", "texts are compared as they are"),
    "AtTimeZone": ("AT TIME ZONE", _DAYS),
    "Dot": ("a name of several parts", "write column or table.column"),
    **{name: (name.upper(), "it belongs to GROUP BY") for name in ("Rollup", "Cube")},
    "GroupingSets": ("GROUPING SETS", "they belong to GROUP BY"),
    "Xor": ("XOR", "write it with AND, OR and NOT"),
}
"""By the name of sqlglot's class: what it is called, and what to write instead."""

_PARTS = {
    **dict.fromkeys(("with", "with_"), ("WITH", "write WITH name AS (SELECT columns FROM table WHERE …)", "WITH")),
    "joins": ("a second table", _ONE_TABLE, "FROM"),
    "laterals": ("LATERAL", _ONE_TABLE, "LATERAL"),
    "distinct": ("DISTINCT", _ROWS, "DISTINCT"),
    "qualify": ("QUALIFY", "write HAVING with a condition on answers", "QUALIFY"),
    "windows": ("WINDOW", "GROUP BY gives one count per group", "WINDOW"),
    "into": ("INTO", "queries only read", "INTO"),
    "locks": ("a lock", "queries only read; leave it out", "FOR"),
    "sample": ("a sample", "count all rows: privacy is spent on the answers, not on the rows read", "TABLESAMPLE"),
    "pivots": ("PIVOT", "GROUP BY gives one count per group", "PIVOT"),
    "db": ("a table of another schema", "write the declared table's name alone", ""),
    "catalog": ("a table of another catalog", "write the declared table's name alone", ""),
    "query": ("a subquery", _DECLARED, ""),
    "all": ("GROUP BY ALL", "name the columns", "GROUP"),
    **{name: (f"WITH {(word := name.upper())}", f"write GROUP BY {word} (a, b)", word) for name in ("rollup", "cube")},
    "totals": ("WITH TOTALS", "write GROUP BY ROLLUP (a, b)", "TOTALS"),
}
"""By the name of the part: what it is called, what to write instead, and the keyword to point at."""

_STATEMENTS = {
    "FROM": ("FROM before SELECT", EXAMPLE),
    "(": ("a statement in parentheses", "begin with SELECT"),
    "EXPLAIN": ("EXPLAIN", "the plan shows what a batch costs; begin with SELECT"),
}


def advice_on_node(node: Any) -> tuple[str, str, str]:
    """What is wrong with a node that is not understood, the remedy, and the keyword to point at, if any."""
    name = type(node).__name__
    if name in _NODES:
        what, remedy = _NODES[name]
        # Operators are shown with both sides, functions know their place, and other keywords are looked for.
        word = "" if isinstance(node, exp.Binary) or "start" in node.meta else what
        return f"{what} is not supported", remedy, word.split()[0] if word.isupper() else ""
    if isinstance(node, exp.Query):
        return "a subquery is not supported", _DECLARED, ""
    if isinstance(node, exp.Func):
        return "a function is not supported", _FUNCTIONS, ""
    if isinstance(node, exp.Binary):
        return "this operator is not supported", _PLAIN, ""
    return "this is not supported", EXAMPLE, ""


def advice_on_part(kind: str, part: str) -> tuple[str, str, str]:
    """What is wrong with a part that is not understood, the remedy, and the keyword to point at."""
    if part in _PARTS:
        what, remedy, word = _PARTS[part]
        return f"{what} is not supported", remedy, word
    if (kind, part) == ("Count", "expressions"):
        return "COUNT of several columns is not supported", "write COUNT(*) FILTER (WHERE …)", ""
    if (kind, part) == ("If", "false"):
        return "IF is not supported", _SUM_OF_CASE, "IF"
    if (kind, part) == ("In", "field"):
        return "IN without a list is not supported", _LIST, ""
    return f"{part.strip('_').replace('_', ' ').upper()} is not supported", EXAMPLE, ""


def advice_on_statement(word: str) -> tuple[str, str]:
    """What is wrong with a statement that begins with this word, and the remedy."""
    if word in _STATEMENTS:
        what, remedy = _STATEMENTS[word]
        return f"{what} is not supported", remedy
    return "only SELECT is supported", EXAMPLE
