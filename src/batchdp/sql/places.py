"""Where in the text a node of the syntax tree stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from batchdp.errors import QueryError
from batchdp.sql.script import Script

_OPENERS: dict[type, tuple[str, ...]] = {
    exp.Not: ("NOT",),
    exp.Neg: ("-",),
    exp.Paren: ("(",),
    exp.Tuple: ("(",),
    exp.Case: ("WHEN", "CASE"),
    exp.Cast: ("(", "CAST", "DATE"),
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

    @property
    def weight(self) -> float:
        """How much it matters, by its hint."""
        return self.script.weights.get(self.first, 1.0)

    def refusal(self, node: Node, problem: str, remedy: str) -> QueryError:
        """The error for a node."""
        start, end = self._stretch(node)
        if isinstance(node, (exp.Boolean, exp.Null)):
            for lexeme in self.script.lexemes[self.script.index(start) : self.script.index(end - 1) + 1]:
                if lexeme.word == node.sql().upper():
                    start, end = lexeme.start, lexeme.end
        return self.script.refusal(start, end, problem, remedy)

    def refusal_at(self, words: str, problem: str, remedy: str, node: Node = None) -> QueryError:
        """The error for the first of these keywords; for the node or the statement if none is there."""
        lexemes = self.script.lexemes
        i = next((i for i in range(self.first, self.last) if lexemes[i].word in words.split()), None)
        if i is None:
            return self.refusal(self.tree if node is None else node, problem, remedy)
        end, depth = i, 0
        while end + 1 < self.last and depth + _step(lexemes[end + 1].word) >= 0:
            end += 1
            depth += _step(lexemes[end].word)
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
        openers = next((opening for kind, opening in _OPENERS.items() if isinstance(node, kind)), ())
        while low > self.first and words[low - 1].word in openers:
            low -= 1
            if len(openers) == 1:
                break
        return low

    def _balanced(self, low: int, high: int) -> tuple[int, int]:
        """The stretch with every parenthesis and CASE that it opens or closes."""
        steps = [_step(lexeme.word) for lexeme in self.script.lexemes[self.first : self.last]]
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


def _step(word: str) -> int:
    """How much deeper the text is behind this word."""
    return (word in ("(", "CASE")) - (word in (")", "END"))
