"""Accuracies that are wanted, by statement or query: a dictionary in Python, a file of TOML on the command line.

    at_most = 1.0                                # the most budget, ε or ρ; may be left out

    [accuracy]
    total = 5                                    # a standard error
    by_month = { margin = 25 }                   # half the width of a 95 % interval
    "by_month[month=1]" = { margin = 10, confidence = 0.9 }
    "*" = { standard_error = 100 }               # every query that is not named

A query's own line goes before its statement's, and that before "*".
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batchdp.archive import read_text
from batchdp.errors import AccuracyError, BatchDPError, QueryError
from batchdp.mechanism.law import MOST_CONFIDENCE
from batchdp.privacy import MOST
from batchdp.queries.query import Item, Query
from batchdp.text import sanitise

SUGGESTED = 3
"""Names that a wrong one may have meant."""
MOST_COMPARED = 2000
"""Names that a wrong one is compared with."""


@dataclass(frozen=True)
class Statement(Item):
    """Queries that count alike: an item of a SELECT with those of its groups, by position."""

    queries: tuple[int, ...] = ()


def statements_of(queries: Sequence[Query]) -> tuple[Statement, ...]:
    """The statements of a batch, in order; grouping sets of one statement belong to it."""
    found: dict[tuple[int, str], tuple[Item, list[int]]] = {}
    for q, query in enumerate(queries):
        own = Item(query.name) if query.item is None else query.item
        for item in (own, *query.also):
            found.setdefault((item.select, item.name), (item, []))[1].append(q)
    return tuple(statement_of(item, own) for item, own in found.values())


def statement_of(item: Item, own: Iterable[int]) -> Statement:
    """An item with the positions of its queries."""
    return Statement(**asdict(item), queries=tuple(own))


def describe_parts(added: Iterable[tuple[str, str]]) -> str:
    """What statements add up whose names do not say it, from both; nothing where there are none."""
    found = dict.fromkeys(f"{name} adds up {adds}" for name, adds in added if adds)
    return f"{'; '.join(found)}: a sum from the middle of its column's range." if found else ""


def named(
    name: str,
    names: Sequence[str],
    statements: Sequence[Statement],
    *,
    argument: str,
    error: type[BatchDPError] = QueryError,
    with_parts: bool = False,
) -> tuple[int, ...]:
    """The positions of the queries of this name: those of a statement, or a single one; an unknown name is refused.

    A derived answer stands for its parts, where these are meant.
    """
    parts = [one for one in statements if name and one.of == name]
    own = [one for one in statements if one.name == name or (with_parts and one in parts)]
    places = [q for one in own for q in one.queries]
    if not places and name in names:
        places = [names.index(name)]
    if not places and parts:
        listed = " and ".join(dict.fromkeys(sanitise(one.name) for one in parts))
        raise error(
            f"{argument}: {sanitise(name)!r} is computed from other answers, and how accurate it is depends on them; "
            f"name its parts, {listed}"
        )
    if not places:
        raise error(unknown(name, names, statements, argument=argument))
    return tuple(dict.fromkeys(places))


def unknown(name: str, names: Sequence[str], statements: Sequence[Statement], *, argument: str) -> str:
    """What to say of a name that is in no batch: the ones that it may have meant."""
    all_names = (*dict.fromkeys(statement.name for statement in statements), *names)
    known = {one.casefold(): one for one in all_names[:MOST_COMPARED]}
    near = [known[one] for one in get_close_matches(name.casefold(), known, SUGGESTED, 0.5)]
    listed = " or ".join(map(repr, map(sanitise, near or all_names[:SUGGESTED])))
    return f"{argument}: {sanitise(name)!r} is neither a statement nor a query of the batch; did you mean {listed}?"


LARGEST_FILE = 10_000_000
"""Bytes."""
MOST_NAMES = 100_000
LEAST, LARGEST = 1e-9, 1e15
"""Of an accuracy: what no count could need, and what no count could be worth."""
REST = "*"
"""Every query that is not named otherwise."""
EXAMPLE = "[accuracy] ⏎ total = 5 ⏎ by_month = { margin = 25, confidence = 0.95 }"


class Criterion(BaseModel):
    """How accurate an answer must be: a standard error, or half the width of an interval."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    standard_error: float | None = Field(default=None, ge=LEAST, le=LARGEST)
    margin: float | None = Field(default=None, ge=LEAST, le=LARGEST)
    confidence: float = Field(default=0.95, gt=0, le=MOST_CONFIDENCE)
    """Of the interval."""

    @model_validator(mode="before")
    @classmethod
    def _number(cls, given: Any) -> Any:
        """A number alone is a standard error."""
        if isinstance(given, int | float) and not isinstance(given, bool):
            return {"standard_error": given}
        return dict(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _check_one(self) -> Criterion:
        if (self.standard_error is None) == (self.margin is None):
            raise ValueError("give either standard_error or margin")
        if self.margin is None and "confidence" in self.model_fields_set:
            raise ValueError("confidence belongs to margin; a standard error has none")
        return self

    @property
    def goal(self) -> float:
        """The standard error or the margin, whichever it is."""
        found = self.standard_error if self.margin is None else self.margin
        assert found is not None
        return found

    def __str__(self) -> str:
        if self.margin is None:
            return f"a standard error of {self.goal:g}"
        return f"±{self.goal:g} at {100 * self.confidence:g} %"

    def as_written(self) -> float | dict[str, float]:
        """As it stands in a file."""
        return self.goal if self.margin is None else {"margin": self.margin, "confidence": self.confidence}


@dataclass(frozen=True)
class Wanted:
    """One criterion, the name that it was asked under, and the queries that it is about."""

    name: str
    criterion: Criterion
    queries: tuple[int, ...]


class Criteria(BaseModel):
    """Accuracies by the names of statements and queries, and the most budget that they may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    accuracy: dict[str, Criterion] = Field(min_length=1, max_length=MOST_NAMES)
    at_most: float | None = Field(default=None, gt=0, le=MOST, strict=True)
    """ε or ρ."""

    def wanted(self, names: Sequence[str], statements: Sequence[Statement]) -> tuple[Wanted, ...]:
        """What is wanted of which queries; every query at most once, and unknown names are refused."""
        whole = {statement.name for statement in statements}
        order = sorted(self.accuracy, key=lambda name: (name == REST, name in whole))
        left, found = set(range(len(names))), {}
        for name in order:
            own = (
                range(len(names))
                if name == REST
                else named(name, names, statements, argument="accuracy", error=AccuracyError)
            )
            kept = tuple(q for q in own if q in left)
            left -= set(kept)
            found[name] = Wanted(name, self.accuracy[name], kept)
        return tuple(found[name] for name in self.accuracy if found[name].queries)

    def as_dict(self) -> dict[str, Any]:
        """The criteria as files have them."""
        limit = {} if self.at_most is None else {"at_most": self.at_most}
        return {**limit, "accuracy": {name: one.as_written() for name, one in self.accuracy.items()}}


def as_criteria(
    given: Criteria | Mapping[str, Any] | str | os.PathLike[str], *, at_most: float | None = None
) -> Criteria:
    """The criteria themselves, from the path of a file, or from accuracies by name; `at_most` replaces theirs."""
    if isinstance(given, str | os.PathLike):
        given = load_criteria(given)
    if isinstance(given, Criteria):
        if at_most is None:
            return given
        given = given.accuracy
    if not isinstance(given, Mapping):
        raise AccuracyError(
            f"accuracy is a {type(given).__name__}; give a dictionary such as {{'total': 5, 'by_month': "
            "{'margin': 25, 'confidence': 0.95}}, or the path of a file"
        )
    return read_criteria({"accuracy": dict(given), **({} if at_most is None else {"at_most": at_most})}, "plan_for")


def load_criteria(path: str | os.PathLike[str]) -> Criteria:
    """The criteria in a file of TOML."""
    text = read_text(path, "the accuracies ", LARGEST_FILE, "name statements instead of queries", AccuracyError)
    try:
        return read_criteria(tomllib.loads(text), str(path))
    except AccuracyError:
        raise
    except (ValueError, RecursionError) as error:
        raise AccuracyError(f"{path} is not TOML: {error}; it should look like: {EXAMPLE}") from error


def read_criteria(content: Any, source: str = "accuracy") -> Criteria:
    """The criteria in what a file holds; `source` names it in errors."""
    try:
        return Criteria.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "file"
        known = "accuracy, at_most" if len(first["loc"]) == 1 else ", ".join(Criterion.model_fields)
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = f"unknown key; known here: {known}"
        more = "" if error.error_count() == 1 else f" (and {error.error_count() - 1} more)"
        raise AccuracyError(sanitise(f"{source}: {place}: {message}{more}; for example: {EXAMPLE}", keep="⏎")) from None
    except RecursionError as error:
        raise AccuracyError(f"{source} is nested too deeply; it should look like: {EXAMPLE}") from error
