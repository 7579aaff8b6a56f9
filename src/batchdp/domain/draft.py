"""A domain file and a query file to start from, drafted from the names and types of columns alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from batchdp.domain.domain import MOST_COLUMNS, read_domain
from batchdp.domain.names import LONGEST, folded, skeleton
from batchdp.errors import DomainError

ColumnType = Literal["text", "number", "whole", "date", "boolean", "unknown", "other"]
"""Unknown: a CSV file does not say. Other: no kind of declared column fits, such as a list."""
MOST_ASKED = 3
"""Columns that the drafted queries use; queries for the next few are there as comments."""
MOST_SHOWN = 20

EXAMPLE: tuple[tuple[str, ColumnType], ...] = (
    ("patient_id", "whole"),
    ("state", "text"),
    ("age", "number"),
    ("children", "whole"),
    ("visited", "date"),
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
KINDS: dict[ColumnType, str] = {
    "text": 'values = ["A", "B"]              # EDIT: the values that can occur',
    "number": "range = [0, 100]                 # EDIT: the lowest and the highest value\n"
    "bins = [0, 25, 50, 75]           # EDIT: lower edges of the groups of GROUP BY",
    "whole": "integers = [0, 10]               # EDIT: the lowest and the highest value",
    "date": 'dates = ["2020-01-01", "2025-12-31"]   # EDIT: the first and the last day',
    "boolean": "values = [true, false]",
    "unknown": 'values = ["A", "B"]              # EDIT: the values that can occur, or range, integers, dates',
}


@dataclass(frozen=True)
class Draft:
    """Both files."""

    domain: str
    queries: str


def draft(table: str, columns: Iterable[tuple[str, ColumnType]] = EXAMPLE) -> Draft:
    """A domain and queries to be edited, which load and can be planned as they are.

    Args:
        table: what the queries call it.
        columns: names as the table has them, and their types; those that cannot be declared are left out and named in
            a comment.
    """
    given = list(columns)
    unit = next((name for name, _ in given if PERSON.fullmatch(name)), None)
    kept, left_out = _sorted_out(given, unit)
    if not kept:
        raise DomainError(f"the table has no column that can be declared: {'; '.join(left_out[:3]) or 'it has none'}")
    return Draft(_domain(table, kept, left_out, unit), _queries(table, kept))


def _sorted_out(
    given: Sequence[tuple[str, ColumnType]], unit: str | None
) -> tuple[list[tuple[str, ColumnType]], list[str]]:
    """The columns that can be declared, and why the others cannot."""
    kept: list[tuple[str, ColumnType]] = []
    left_out = []
    taken = Counter(folded(name) for name, _ in given)
    reason: str | None
    for name, kind in given:
        if name == unit and len(given) > 1:
            continue
        if kind == "other":
            reason = "no kind of column below fits its type; cast it in a view"
        elif taken[folded(name)] > 1:
            reason = "several columns have this name, upper or lower case; rename all but one"
        elif len(kept) == MOST_COLUMNS:
            reason = f"more than {MOST_COLUMNS} columns; declare those that you ask about"
        else:
            reason = _problem(name)
        if reason is None:
            kept.append((name, kind))
        else:
            left_out.append(f"{_visible(name)}: {reason}")
    return kept, left_out


def _problem(name: str) -> str | None:
    """Why a name cannot be declared."""
    if len(name) > LONGEST:
        return f"its name is longer than {LONGEST} characters; rename it"
    try:
        read_domain(f"table = 't'\n[columns.{_key(name)}]\nvalues = [true]\n")
    except DomainError:
        return "its name is blank, or holds characters that cannot be seen or look like others; rename it"
    return None


def _domain(table: str, columns: Iterable[tuple[str, ColumnType]], left_out: Sequence[str], unit: str | None) -> str:
    named = NO_UNIT if unit is None or _problem(unit) else UNIT.format(name=_quoted(unit))
    parts = [HEAD.format(table=_quoted(table), unit=named)]
    parts += [f"[columns.{_key(name)}]\n{KINDS[_likely(name, kind)]}\n" for name, kind in columns]
    if left_out:
        more = [f"and {len(left_out) - MOST_SHOWN} more"] * (len(left_out) > MOST_SHOWN)
        parts.append("\n".join(f"# Left out: {line}" for line in [*left_out[:MOST_SHOWN], *more]) + "\n")
    return "\n".join(parts)


def _queries(table: str, columns: Sequence[tuple[str, ColumnType]]) -> str:
    lines = [
        "-- One SELECT after the other; each count becomes one private answer. COUNT, SUM, WHERE, CASE, FILTER and",
        "-- GROUP BY over declared columns are understood, and sums and multiples of counts.",
        "",
        f"SELECT COUNT(*) AS total FROM {_identifier(table)};",
    ]
    drafted = list(_statements(_identifier(table), columns[:MOST_SHOWN]))
    lines += drafted[:MOST_ASKED] + [f"-- {line}" for line in drafted[MOST_ASKED:]]
    return "\n".join(lines) + "\n"


def _statements(source: str, columns: Iterable[tuple[str, ColumnType]]) -> Iterator[str]:
    """One query a column, each under a name of its own."""
    taken = {"total"}
    for name, given in columns:
        column, kind = _identifier(name), _likely(name, given)
        alias = {"whole": "all_{}", "date": "{}_since_2024"}.get(kind, "by_{}").format(name)
        if folded(skeleton(alias)) in taken or len(alias) > LONGEST:
            continue
        taken.add(folded(skeleton(alias)))
        named = _identifier(alias)
        if kind == "whole":
            yield f"SELECT SUM({column}) AS {named} FROM {source};"
        elif kind == "date":
            yield f"SELECT COUNT(*) AS {named} FROM {source} WHERE {column} >= DATE '2024-01-01';"
        else:
            yield f"SELECT {column}, COUNT(*) AS {named} FROM {source} GROUP BY {column};"


def _likely(name: str, kind: ColumnType) -> ColumnType:
    """A CSV file has no types, but its names may tell: an age is a number, a date a date."""
    if kind != "unknown":
        return kind
    words = re.split(r"[\W_]+", name.lower())
    return "number" if "age" in words else "date" if {"date", "day", "birthday"} & set(words) else kind


def _visible(name: str) -> str:
    """A name in one short line of a comment, whatever is in it."""
    short = name if len(name) <= 60 else name[:59] + "…"
    return "'" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short) + "'"


def _key(name: str) -> str:
    """A bare TOML key where that is possible."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _identifier(name: str) -> str:
    """An SQL identifier, quoted where it has to be."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
