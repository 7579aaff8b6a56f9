"""A domain file and a query file to start from, drafted from the names and types of columns, and from a codebook."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from batchdp.domain.described import Described
from batchdp.domain.domain import MOST_COLUMNS, read_domain
from batchdp.domain.names import LONGEST, folded, skeleton
from batchdp.domain.sketch import ends, key, likely, quoted, section, short
from batchdp.errors import DomainError
from batchdp.terminal import harmless

MOST_ASKED = 3
"""Columns that the drafted queries use; queries for the next few are there as comments."""
MOST_SHOWN = 20

EXAMPLE = (
    Described("patient_id", "whole"),
    Described("state", "text"),
    Described("age", "number"),
    Described("children", "whole"),
    Described("visited", "date"),
)
PERSON = re.compile(
    r"(person|patient|user|customer|client|member|subject|participant|student|pupil|employee|citizen|household|voter|"
    r"respondent|driver|guest)(_?(id|no|nr|number|key|uuid|guid|code))?",
    re.IGNORECASE,
)
"""Names of columns that say whose record it is."""

HEAD = """\
# What is public about the table. batchdp believes this file and never looks at the data to fill it in,
# so write what you know without the data: from a codebook, a form or the law.

table = {table:<25}# the name that the queries use

[privacy]
{unit}
neighbours = "add-remove"        # or "replace": the number of people is public
max_rows = 10_000_000            # a public cap on the number of rows

# Columns that queries may use. Delete those that none uses. Every column is one of
#   values = ["a", "b"]          a few values: texts, whole numbers, or true and false
#   range = [0, 120]             any number between the two, both included; bins = [0, 18, 65] for GROUP BY
#   integers = [0, 12]           whole numbers, each by itself; SUM is allowed
#   dates = ["2020-01-01", "2025-12-31"]
# Anything else in the data counts as "anything else" (other = "keep") or is left out (other = "drop").
"""
NO_UNIT = """\
# unit = "person_id"             # whose privacy: one value = one person; left out, every row is a person
# rows_per_unit = 1              # at most this many rows of one person are counted"""
UNIT = """\
unit = {name:<25} # EDIT: whose privacy: one value = one person; left out, every row is a person
rows_per_unit = 1                # at most this many rows of one person are counted"""
CODEBOOK = """\
# The codebook is {name}. Make sure that what it says was known without these data: values and ends that
# were looked up in them give people away.
"""
RESERVED = frozenset(
    re.findall(
        r"\w+",
        "all alter analyse analyze and any array as asc asymmetric between both by case cast check collate column "
        "connect_by_root constraint count create cross cube current_catalog current_date current_time "
        "current_timestamp current_user date default deferrable desc describe distinct do drop else end except "
        "exists false fetch filter for foreign from full glob grant group having if ilike in index initially "
        "inner insert intersect interval into is join lambda lateral leading left like limit localtime "
        "localtimestamp lock not notnull null offset on only or order outer over partitioned_by pivot "
        "pivot_longer pivot_wider placing primary qualify references regexp returning revoke right rlike rollback "
        "rollup row rows select session_user set show some straight_join sum summarize symmetric table "
        "tablesample then time timestamp to trailing true uncache union unique unpivot update user using values "
        "variadic view when where window with xor",
    )
)
"""Words of SQL; a column or table of such a name is written in quotes."""


@dataclass(frozen=True)
class Draft:
    """Both files."""

    domain: str
    queries: str


def draft(table: str, columns: Iterable[Described] = EXAMPLE, *, codebook: str | None = None) -> Draft:
    """A domain and queries to be edited, which load and can be planned as they are.

    Args:
        table: what the queries call it.
        columns: as the table has them; those that cannot be declared are left out and named in a comment.
        codebook: what the file is called that some of it is from.
    """
    given = list(columns)
    unit = next((column.name for column in given if PERSON.fullmatch(column.name)), None)
    kept, left_out = _sorted_out(given, unit)
    if not kept:
        raise DomainError(f"the table has no column that can be declared: {'; '.join(left_out[:3]) or 'it has none'}")
    return Draft(_domain(table, kept, left_out, unit, codebook), _queries(table, kept))


def _sorted_out(given: Sequence[Described], unit: str | None) -> tuple[list[Described], list[str]]:
    """The columns that can be declared, and why the others cannot."""
    kept: list[Described] = []
    left_out = []
    taken = Counter(folded(column.name) for column in given)
    reason: str | None
    for column in given:
        if column.name == unit and len(given) > 1:
            continue
        if column.kind == "other":
            reason = "no kind of column below fits its type; cast it in a view"
        elif taken[folded(column.name)] > 1:
            reason = "several columns have this name, upper or lower case; rename all but one"
        elif len(kept) == MOST_COLUMNS:
            reason = f"more than {MOST_COLUMNS} columns; declare those that you ask about"
        else:
            reason = _problem(column.name) or _unreadable(column)
        if reason is None:
            kept.append(column)
        else:
            left_out.append(f"{short(column.name)}: {reason}")
    return kept, left_out


def _problem(name: str) -> str | None:
    """Why a name cannot be declared."""
    if len(name) > LONGEST:
        return f"its name is longer than {LONGEST} characters; rename it"
    try:
        read_domain(f"table = 't'\n[columns.{key(name)}]\nvalues = [true]\n")
    except DomainError:
        return "its name is blank, or holds characters that cannot be seen or look like others; rename it"
    return None


def _unreadable(column: Described) -> str | None:
    """Why what a codebook says of a column cannot be declared."""
    try:
        read_domain(f"table = 't'\n{section(column, None)}")
    except DomainError as error:
        return f"what the codebook says of it cannot be declared: {harmless(error)}"
    return None


def _domain(
    table: str, columns: Sequence[Described], left_out: Sequence[str], unit: str | None, codebook: str | None
) -> str:
    named = NO_UNIT if unit is None or _problem(unit) else UNIT.format(name=quoted(unit))
    parts = [HEAD.format(table=quoted(table), unit=named)]
    if codebook is not None:
        parts[0] += CODEBOOK.format(name=short(codebook))
    taken = {folded(column.name) for column in columns} | ({folded(unit)} if unit is not None else set())
    parts += [section(column, _grouping(column.name, taken)) for column in columns]
    if left_out:
        more = [f"and {len(left_out) - MOST_SHOWN} more"] * (len(left_out) > MOST_SHOWN)
        parts.append("\n".join(f"# Left out: {line}" for line in [*left_out[:MOST_SHOWN], *more]) + "\n")
    return "\n".join(parts)


def _grouping(name: str, taken: set[str]) -> str | None:
    """A name for a grouping of a column that nothing else has."""
    grouping = f"{name}_groups"
    if folded(grouping) in taken or _problem(grouping):
        return None
    taken.add(folded(grouping))
    return grouping


def _queries(table: str, columns: Sequence[Described]) -> str:
    lines = [
        "-- One SELECT after the other; each count becomes one private answer. COUNT, SUM, WHERE, CASE, FILTER and",
        "-- GROUP BY over declared columns are understood, and sums and multiples of counts.",
        "",
        f"SELECT COUNT(*) AS total FROM {_identifier(table)};",
    ]
    drafted = list(_statements(_identifier(table), columns[:MOST_SHOWN]))
    lines += drafted[:MOST_ASKED] + [f"-- {line}" for line in drafted[MOST_ASKED:]]
    return "\n".join(lines) + "\n"


def _statements(source: str, columns: Iterable[Described]) -> Iterator[str]:
    """One query a column, each under a name of its own."""
    taken = {"total"}
    for column in columns:
        name, kind = _identifier(column.name), "text" if column.values else likely(column)
        since = _since(*ends(column)) if kind == "date" else None
        alias = f"{column.name}_since_{since.year}" if since else f"{'all' if kind == 'whole' else 'by'}_{column.name}"
        if folded(skeleton(alias)) in taken or len(alias) > LONGEST:
            continue
        taken.add(folded(skeleton(alias)))
        named = _identifier(alias)
        if since:
            yield f"SELECT COUNT(*) AS {named} FROM {source} WHERE {name} >= DATE '{since}';"
        elif kind == "whole":
            yield f"SELECT SUM({name}) AS {named} FROM {source};"
        else:
            yield f"SELECT {name}, COUNT(*) AS {named} FROM {source} GROUP BY {name};"


def _since(first: date, last: date) -> date:
    """A day that leaves some to both sides: where the last year but one begins."""
    return max(first, date(max(1, last.year - 1), 1, 1))


def _identifier(name: str) -> str:
    """An SQL identifier, quoted where it has to be."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
