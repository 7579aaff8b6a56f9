"""A domain file and a query file to start from, of several tables with rows of the same persons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from batchdp.domain.columns import fold
from batchdp.domain.draft import (
    ABOUT_QUERIES,
    COLUMNS,
    PERSON,
    Described,
    Draft,
    draft_columns,
    draft_counts,
    is_own,
    quote,
    sort_out,
    toml_key,
)
from batchdp.errors import DomainError

HEAD_OF_SEVERAL = (
    """\
# What is public about the tables. batchdp believes this file and never looks at the data to fill it in,
# so write what you know without the data: from a codebook, a form or the law.

[privacy]
unit = {unit:<25} # EDIT: whose privacy, in every table: one value = one person
neighbours = "add-remove"        # or "replace": the number of people is public

"""
    + COLUMNS
)
OF_SEVERAL = """\
[tables.{key}]
unit = {unit:<25} # {said}
rows_per_unit = 1                # EDIT: at most this many rows of one person are counted
max_rows = 10_000_000            # a public cap on the number of rows
"""


def draft_several(tables: Sequence[tuple[str, Iterable[Described]]]) -> Draft:
    """A domain of several tables with rows of the same persons, and queries, to be edited as those of one."""
    own = {name: list(columns) for name, columns in tables}
    if len({fold(name) for name in own}) < len(tables):
        raise DomainError("two of the tables have the same name; give views of other names")
    ids = {name: [one.name for one in columns if is_own(one)] for name, columns in own.items()}
    often = Counter(fold(one) for named in ids.values() for one in named)
    # What one row of a table has, such as visit_id, is no person; what all tables have may be.
    persons = {
        name: [one for one in named if PERSON.fullmatch(one) or often[fold(one)] == len(own)]
        for name, named in ids.items()
    }
    every = [one for named in persons.values() for one in named]
    unit = max(every, key=lambda one: often[fold(one)], default="person_id")
    parts, queries = [HEAD_OF_SEVERAL.format(unit=quote(unit))], list(ABOUT_QUERIES)
    for name, columns in own.items():
        same = next((one for one in persons[name] if fold(one) == fold(unit)), None)
        called = same or next(iter(persons[name]), unit)
        said = "what this table calls the person"
        said = said if same else f"EDIT: {said}"
        kept, left_out = sort_out(columns, called)
        if not kept:
            raise DomainError(f"{name} has no column that can be declared; leave it out, or give a view of it")
        key = toml_key(name)
        parts.append(OF_SEVERAL.format(key=key, unit=quote(called), said=said))
        parts += draft_columns(kept, left_out, called, within=f"tables.{key}.")
        queries += ["", *draft_counts(name, kept, f"{name}_")]
    return Draft("\n".join(parts), "\n".join(queries) + "\n")
