"""Where in the text a node of the syntax tree stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from batchdp.errors import QueryError
from batchdp.sql.script import Script

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

    def refusal(self, node: Node, problem: str, remedy: str) -> QueryError:
        """The error for a node."""
        return self.script.refusal(*self._stretch(node), problem, remedy)

    def refusal_at(self, word: str, problem: str, remedy: str) -> QueryError:
        """The error for a keyword; for the statement if it is not there."""
        lexemes = self.script.lexemes
        here = (i for i in range(self.first, self.last) if lexemes[i].word == word)
        i = next(here, self.first)
        return self.script.refusal(lexemes[i].start, lexemes[self.last - 1].end, problem, remedy)

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
        openers = {exp.Not: "NOT", exp.Neg: "-", exp.Paren: "("}.get(type(found))
        if isinstance(found, exp.Func) and "start" in found.meta and lexemes[min(high + 1, self.last - 1)].text == "(":
            high += 1
        if openers is not None and low > self.first and lexemes[low - 1].word == openers:
            low -= 1
        if isinstance(found, exp.Case):
            while low > self.first and lexemes[low].word != "CASE":
                low -= 1
        if isinstance(found, exp.Cast):
            while low > self.first and lexemes[low - 1].word in ("(", "CAST", "DATE", "TRY_CAST"):
                low -= 1
        if any(isinstance(part, (exp.Null, exp.Boolean)) for part in found.walk()):
            words = [lexeme.word for lexeme in lexemes[high : min(high + 4, self.last)]]
            high += max((i for i, word in enumerate(words) if word in ("NULL", "TRUE", "FALSE")), default=0)
        low, high = self._balanced(low, high)
        return lexemes[low].start, lexemes[high].end

    def _balanced(self, low: int, high: int) -> tuple[int, int]:
        """The stretch with every parenthesis and CASE that it opens or closes."""
        words = [lexeme.word for lexeme in self.script.lexemes[self.first : self.last]]
        depth = lowest = 0
        for word in words[low - self.first : high - self.first + 1]:
            depth += (word in ("(", "CASE")) - (word in (")", "END"))
            lowest = min(lowest, depth)
        missing, open_ = -lowest, depth - lowest
        while missing > 0 and low > self.first:
            low -= 1
            missing += (words[low - self.first] in (")", "END")) - (words[low - self.first] in ("(", "CASE"))
        while open_ > 0 and high + 1 < self.last:
            high += 1
            open_ += (words[high - self.first] in ("(", "CASE")) - (words[high - self.first] in (")", "END"))
        return low, high
