"""A text of SELECT statements as one batch of named queries."""

from __future__ import annotations

import os
from pathlib import Path

from batchdp.domain import Domain
from batchdp.domain.names import folded, skeleton
from batchdp.errors import QueryError
from batchdp.queries import Query
from batchdp.sql.script import MOST_CHARACTERS, Script


def load_queries(path: str | os.PathLike[str], domain: Domain) -> tuple[Query, ...]:
    """The queries in a file of SQL."""
    return read_queries(load_text(path), domain, source=str(path))


def load_text(path: str | os.PathLike[str]) -> str:
    """The text of a file of SQL."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(4 * MOST_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        raise QueryError(f"cannot read the queries {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > 4 * MOST_CHARACTERS:
        raise QueryError(f"{path} holds more than {MOST_CHARACTERS} characters; split it into several batches")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise QueryError(f"{path} is not a text in UTF-8 ({error.reason} at byte {error.start})") from error


def read_queries(sql: str, domain: Domain, *, source: str = "queries") -> tuple[Query, ...]:
    """The queries in a text of SELECT statements over the declared table; `source` names the text in errors.

    Nothing is executed. Everything that is not known to be a linear query over declared columns is refused with a
    QueryError that shows the place.
    """
    if not isinstance(sql, str):
        raise QueryError(f"sql is a {type(sql).__name__}; give a text of SELECT statements")
    script = Script(sql, source)
    # sqlglot takes a while to import, and nothing else needs it.
    from batchdp.sql.groupings import MOST_QUERIES, too_many
    from batchdp.sql.scope import Declared
    from batchdp.sql.selections import selection
    from batchdp.sql.syntax import parsed

    declared = Declared(domain)
    queries: list[Query] = []
    names: set[str] = set()
    for statement in parsed(script):
        selected = selection(statement, declared)
        if len(queries) + selected.size > MOST_QUERIES:
            raise too_many(statement, len(queries) + selected.size)
        for item, query in selected.queries():
            # Two names may not differ in look-alike letters or case; groups are told apart by their values.
            name = folded(skeleton(item.name)) + query.name.removeprefix(item.name)
            if name in names:
                problem = f"the name {query.name} is taken by another query"
                raise statement.refusal(item.node, problem, "give every query its own name with AS")
            names.add(name)
            queries.append(query)
    return tuple(queries)
