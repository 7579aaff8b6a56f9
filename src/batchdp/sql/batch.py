"""A text of SELECT statements as one batch of named queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchdp.derived.expressions import Asked
from batchdp.domain import Domain
from batchdp.domain.names import fold, skeleton
from batchdp.errors import QueryError
from batchdp.queries import Query
from batchdp.regular import read_text
from batchdp.sql.script import MOST_CHARACTERS, Script

if TYPE_CHECKING:
    from batchdp.sql.selections import Selection


@dataclass(frozen=True)
class Batch:
    """Linear queries, and what was asked for: some of them as they are, or something computed from several."""

    queries: tuple[Query, ...]
    asked: tuple[Asked[int], ...]
    selections: tuple[Selection, ...] = field(default=(), repr=False, compare=False)
    """The statements that ask for them."""


def load_queries(path: str | os.PathLike[str], domain: Domain) -> tuple[Query, ...]:
    """The queries in a file of SQL."""
    return read_queries(load_text(path), domain, source=str(path))


def load_text(path: str | os.PathLike[str]) -> str:
    """The text of a file of SQL."""
    return read_text(path, "the queries ", 4 * MOST_CHARACTERS, "split it into several batches", QueryError)


def read_queries(sql: str, domain: Domain, *, source: str = "queries") -> tuple[Query, ...]:
    """The queries in a text of SELECT statements over the declared table; `source` names the text in errors.

    Nothing is executed. Everything that is not known to be a linear query over declared columns is refused with a
    QueryError that shows the place.
    """
    return queries_of(read_selections(sql, domain, source=source))


def read_selections(sql: str, domain: Domain, *, source: str = "queries") -> tuple[Selection, ...]:
    """What every statement asks for, with no object for each of its groups."""
    if not isinstance(sql, str):
        raise QueryError(f"sql is a {type(sql).__name__}; give a text of SELECT statements")
    script = Script(sql, source)
    # sqlglot takes a while to import, and nothing else needs it.
    from batchdp.sql.scope import Declared
    from batchdp.sql.selections import selection
    from batchdp.sql.syntax import parsed

    declared = Declared(domain)
    return tuple(selection(statement, declared) for statement in parsed(script))


def read_batch(sql: str, domain: Domain, *, source: str = "queries") -> Batch:
    """The same with what is computed from the queries."""
    return batch_of(read_selections(sql, domain, source=source))


def queries_of(selections: Sequence[Selection]) -> tuple[Query, ...]:
    """One query an item and row of groups, and the parts of derived ones; refused where these are too many."""
    return batch_of(selections).queries


def batch_of(selections: Sequence[Selection]) -> Batch:
    """The queries that are asked, the parts of derived answers that are not among them, and all answers in order."""
    from batchdp.sql.groupings import MOST_QUERIES, too_many
    from batchdp.sql.parting import Parts

    size = 0
    for selected in selections:
        size += selected.size
        if size > MOST_QUERIES:
            raise too_many(selected.statement, size)
    parts = Parts()
    for selected in selections:
        for item in selected.counted:
            parts.add_plain(selected, item)
    return parts.batch(selections)


def is_many(selections: Sequence[Selection]) -> bool:
    """Whether these are more queries than are taken one by one."""
    from batchdp.sql.groupings import MOST_QUERIES

    return sum(selected.size for selected in selections) > MOST_QUERIES


def comparable(name: str) -> str:
    """The form under which two names of queries are the same."""
    return fold(skeleton(name))
