"""The text of the queries, cut into words and symbols, with errors that show the place."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import nan
from typing import TYPE_CHECKING

from batchdp.archive import read_text
from batchdp.domain import Domain
from batchdp.domain.columns import fold, skeleton
from batchdp.domain.relations import Relation
from batchdp.errors import QueryError
from batchdp.queries.expressions import Asked
from batchdp.queries.query import LARGEST_WEIGHT, LEAST_WEIGHT, Query
from batchdp.queries.views import View

if TYPE_CHECKING:
    from batchdp.sql.selections import Selection


MOST_CHARACTERS = 1_000_000
DEEPEST = 20
"""Parentheses and CASEs inside one another. The parser of sqlglot gives up at 33."""
LONGEST_SNIPPET = 60
MOST_REFUSALS = 200
"""That are said at once."""

EXAMPLE = "a query looks like SELECT COUNT(*) AS adults FROM patients WHERE age >= 18"

_LEXEME = re.compile(
    r"""
      (?P<blank>[ \t\r\n\f\v]+ | --[^\r\n]* | /\*(?!\+)(?:(?!\*/|/\*).)*\*/)
    | (?P<hint>/\*\+(?:(?!\*/|/\*).)*\*/)
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol><>|!=|<=|>=|::|\|\||/(?!\*)|[-+*=<>(),.;])
    """,
    re.VERBOSE | re.DOTALL,
)

_ODD = {
    "'": ("a text that is not closed", "end it with '"),
    '"': ("a quoted name that is not closed, or empty", 'write it as "name"'),
    "/*": ("a comment that is not closed, or nested", "end it with */, with no /* inside"),
    "/*+": ("a hint that is not closed, or nested", "write it as SELECT /*+ weight(3) */ COUNT(*) …"),
    **dict.fromkeys("?:@", ("a parameter", "write the constant itself")),
    "$": ("a parameter or dollar-quoted text", "write the constant itself"),
    "`": ("a name in back quotes", 'use double quotes, like "name"'),
    "%": ("the operator %", "declare a column for it, with values or integers"),
    "^": ("the operator ^", "write the number itself"),
    "|": ("the operator |", "join conditions with OR, and compare whole values"),
    "&": ("the operator &", "join conditions with AND"),
    "!": ("the operator !", "write NOT, or <> for unequal"),
    "[": ("a bracket", "a list is written IN ('a', 'b')"),
    "{": ("a brace", EXAMPLE),
    "\\": ("a backslash", EXAMPLE),
    **dict.fromkeys("“”‘’", ("a typographic quote", "texts go in plain '…'")),
}
"""What is wrong with text that begins like this."""

_WEIGHT = re.compile(r"/\*\+\s*weight\s*\(\s*(?P<number>[0-9.eE+-]{1,30})\s*\)\s*\*/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word, number, text, quoted name or symbol, and where it stands."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Behind its last character."""
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """In upper case, for keywords and symbols; nothing for texts and quoted names."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""


class RefusalError(QueryError):
    """The error for a stretch of the text."""

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


class Refusals:
    """What is refused so far, to be said at once."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}

    def add(self, *refusals: RefusalError) -> None:
        """One more, or several; with very many it is enough."""
        self._found |= {str(refusal): refusal.place for refusal in refusals}
        if len(self._found) >= MOST_REFUSALS:
            self.check()

    @contextmanager
    def taking(self) -> Iterator[None]:
        """What is refused within is kept, and the rest of it left."""
        try:
            yield
        except RefusalError as refusal:
            self.add(refusal)

    def __bool__(self) -> bool:
        return bool(self._found)

    def check(self) -> None:
        """Raise one error for all, in the order of the text, if there is any."""
        if self._found:
            raise QueryError(*sorted(self._found, key=lambda message: self._found[message]))


class Script:
    """A text of SQL under a name, and its lexemes."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        if len(text) > MOST_CHARACTERS:
            raise QueryError(
                f"{name} holds {len(text)} characters, more than {MOST_CHARACTERS}; split it into several batches"
            )
        self.weights: dict[int, float] = {}
        """By the place of the SELECT that has a hint behind it."""
        self._blanks: list[tuple[int, int]] = []
        self.refusals = Refusals()
        """What is wrong with the statements so far; a statement that cannot be cut into words is left out."""
        self.lexemes = tuple(self._cut())

    def refusal(self, start: int, end: int, problem: str, remedy: str) -> RefusalError:
        """The error for this stretch of text."""
        line, column = self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)
        said = f"{problem} ({shown(self.text[start:end])}); {remedy}"
        return RefusalError(f"{self.name} line {line}, column {column}: {said}", start)

    def leave_out(self, place: int) -> None:
        """Go on without the statement at a place, which is refused."""
        ends = [one.start for one in self.lexemes if one.text == ";"]
        first = max((end + 1 for end in ends if end < place), default=0)
        last = min((end for end in ends if end >= place), default=len(self.text))
        self.lexemes = tuple(one for one in self.lexemes if not first <= one.start < last)
        self._blanks.append((first, last))
        self.__dict__.pop("plain", None)

    def statements(self) -> list[tuple[int, int]]:
        """The first and the last lexeme (excluded) of every statement that is not empty."""
        ends = [i for i, lexeme in enumerate(self.lexemes) if lexeme.text == ";"] + [len(self.lexemes)]
        starts = [0, *(end + 1 for end in ends)]
        return [(start, end) for start, end in zip(starts, ends, strict=False) if start < end]

    def index(self, place: int) -> int:
        """The number of the lexeme at or before a place in the text."""
        return max(bisect_right(self.lexemes, place, key=lambda lexeme: lexeme.start) - 1, 0)

    @cached_property
    def plain(self) -> str:
        """With blanks in the place of hints and of what is left out: what sqlglot is to read."""
        pieces, place = [], 0
        for start, end in sorted(self._blanks):
            if end > place:
                pieces += [self.text[place:start], " " * (end - max(start, place))]
                place = end
        return "".join([*pieces, self.text[place:]])

    def _cut(self) -> Iterator[Lexeme]:
        """The lexemes of all statements that can be cut into some, the semicolons between them included."""
        place = 0
        while place < len(self.text):
            start = place
            own: list[Lexeme] = []
            try:
                while place < len(self.text):
                    match = _LEXEME.match(self.text, place)
                    if match is None:
                        raise self._odd(place)
                    lexeme, place = self._taken(match, own[-1] if own else None), match.end()
                    own += [] if lexeme is None else [lexeme]
                    if lexeme is not None and lexeme.text == ";":
                        break
                self._check_nesting(own)
                yield from own
            except RefusalError as refusal:
                self.refusals.add(refusal)
                place = place if own and own[-1].text == ";" else self._end(place)
                self._blanks.append((start, place))

    def _end(self, place: int) -> int:
        """Behind the statement at a place; the end of the text where a text or comment there is not closed."""
        while place < len(self.text):
            match = _LEXEME.match(self.text, place)
            if match is None and self.text[place] in "'\"/":
                return len(self.text)
            place = place + 1 if match is None else match.end()
            if match is not None and match.group() == ";":
                break
        return place

    def _taken(self, match: re.Match[str], before: Lexeme | None) -> Lexeme | None:
        """A match as a lexeme; None for blanks and hints."""
        kind = str(match.lastgroup)
        if kind == "hint":
            self._take_hint(match, before)
        if kind in ("hint", "blank"):
            return None
        lexeme = Lexeme(kind, match.group(), match.start())
        if before is not None:
            self._check_neighbours(before, lexeme)
        return lexeme

    def _take_hint(self, hint: re.Match[str], before: Lexeme | None) -> None:
        """The weight in a hint; any other hint, and one in any other place, is refused."""
        found = _WEIGHT.fullmatch(hint.group())
        try:
            weight = nan if found is None else float(found["number"])
        except ValueError:
            weight = nan
        if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
            problem = "a hint that is not known, or a weight that cannot be used"
            remedy = f"write /*+ weight(3) */, with a number from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
        elif before is None or before.word != "SELECT" or before.start in self.weights:
            problem, remedy = "a hint in a place where it means nothing", "write it once, right behind SELECT"
        else:
            self.weights[before.start] = weight
            self._blanks.append(hint.span())
            return
        raise self.refusal(hint.start(), hint.end(), problem, remedy)

    def _odd(self, place: int) -> RefusalError:
        beginning = next((odd for odd in ("/*+", "/*") if self.text.startswith(odd, place)), self.text[place])
        problem, remedy = _ODD.get(beginning, (f"the character U+{ord(beginning[0]):04X}", "leave it out"))
        return self.refusal(place, place + 20, problem, remedy)

    def _check_neighbours(self, before: Lexeme, lexeme: Lexeme) -> None:
        """Refuse what engines read differently: 1_000, 0x1F, E'…', ==, a dot that joins no names, a comma too many."""
        if before.text == "." and lexeme.kind not in ("word", "quoted"):
            problem, remedy = "a dot with no name behind it", "write table.column, and numbers like 0.5"
        elif before.text == "," and lexeme.word in ("FROM", ",", ")", ";"):
            problem, remedy = "a comma with nothing behind it", "leave it out"
        elif before.end < lexeme.start:
            return
        elif before.kind == "number" and lexeme.kind in ("word", "number", "quoted", "text"):
            problem, remedy = "a number that runs into a word", "write numbers like 1000, 0.5 or 1e3"
        elif lexeme.kind == "text" and before.word in ("B", "E", "N", "R", "U", "X", "BR", "RB"):
            problem, remedy = "a text with a prefix", "write it in plain quotes, like 'NY'"
        elif before.kind == lexeme.kind == "symbol" and before.text in "*/=<>" and lexeme.text in "*/=<>":
            problem, remedy = f"the operator {before.text}{lexeme.text}", "compare with =, <>, <, <=, > or >="
        else:
            return
        raise self.refusal(before.start, lexeme.end, problem, remedy)

    def _check_nesting(self, lexemes: Sequence[Lexeme]) -> None:
        depth = prefixes = 0
        for lexeme in lexemes:
            word = lexeme.word
            depth = max(depth + nesting(word), 0)
            prefixes = prefixes + 1 if word in ("NOT", "-", "+") else 0
            if depth > DEEPEST or prefixes > 3:
                remedy = f"at most {DEEPEST} parentheses and CASEs inside one another, and 3 signs or NOTs in a row"
                raise self.refusal(lexeme.start, lexeme.end + 20, "nested too deeply", remedy)


def nesting(word: str) -> int:
    """How much deeper the text is behind this word."""
    return (word in ("(", "CASE")) - (word in (")", "END"))


def shown(text: str) -> str:
    """A text in one short line that is safe to print."""
    short = " ".join(text[: 10 * LONGEST_SNIPPET].split())
    if len(short) > LONGEST_SNIPPET or len(text) > 10 * LONGEST_SNIPPET:
        short = short[: LONGEST_SNIPPET - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


@dataclass(frozen=True)
class Batch:
    """Linear queries, and what was asked for: some of them as they are, or something computed from several."""

    queries: tuple[Query, ...]
    asked: tuple[Asked[int], ...]
    selections: tuple[Selection, ...] = field(default=(), repr=False, compare=False)
    """The statements that ask for them."""
    relations: tuple[Relation, ...] = field(default=(), repr=False, compare=False)
    """What they count that is no declared table."""

    @property
    def views(self) -> tuple[View, ...]:
        """What statements show of their answers, where that is not all."""
        return views_of(self.selections)


def views_of(selections: Sequence[Selection]) -> tuple[View, ...]:
    """Of the statements that have one."""
    return tuple(selected.view for selected in selections if selected.view is not None)


def load_text(path: str | os.PathLike[str]) -> str:
    """The text of a file of SQL."""
    return read_text(path, "the queries ", 4 * MOST_CHARACTERS, "split it into several batches", QueryError)


def read_queries(sql: str, domain: Domain, *, source: str = "queries") -> tuple[Query, ...]:
    """The queries in a text of SELECT statements over the declared table; `source` names the text in errors.

    Nothing is executed. Everything that is not known to be a linear query over declared columns is refused with a
    QueryError that shows the place.
    """
    return batch_of(read_selections(sql, domain, source=source)).queries


def read_selections(sql: str, domain: Domain, *, source: str = "queries") -> tuple[Selection, ...]:
    """What every statement asks for, with no object for each of its groups."""
    if not isinstance(sql, str):
        raise QueryError(f"sql is a {type(sql).__name__}; give a text of SELECT statements")
    script = Script(sql, source)
    # sqlglot takes a while to import, and nothing else needs it.
    from batchdp.sql.selections import selection
    from batchdp.sql.syntax import Declared, parsed

    declared, found = Declared(domain), []
    for statement in parsed(script, domain):
        with script.refusals.taking():
            found.append(selection(statement, declared))
    script.refusals.check()
    return tuple(found)


def batch_of(selections: Sequence[Selection], known: Sequence[Relation] = ()) -> Batch:
    """The queries that are asked, the parts of derived answers that are not among them, and all answers in order.

    Args:
        selections: the statements.
        known: relations that have their names already, which come first.
    """
    from batchdp.sql.groupings import MOST_QUERIES, too_many
    from batchdp.sql.selections import Parts

    size = 0
    for selected in selections:
        size += selected.size
        if size > MOST_QUERIES:
            raise too_many(selected.statement, size)
    parts, refusals = Parts(known), Refusals()
    for selected in selections:
        for item in selected.counted:
            with refusals.taking():
                parts.add_plain(selected, item)
    refusals.check()
    return parts.batch(selections)


def is_many(selections: Sequence[Selection]) -> bool:
    """Whether these are more queries than are taken one by one."""
    from batchdp.sql.groupings import MOST_QUERIES

    return sum(selected.size for selected in selections) > MOST_QUERIES


def comparable(name: str) -> str:
    """The form under which two names of queries are the same."""
    return fold(skeleton(name))
