"""A domain file and a query file to start from, drafted from the names and types of columns, and from a codebook."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

from batchdp.domain.columns import LONGEST, fold, skeleton
from batchdp.domain.domain import MOST_COLUMNS, read_domain
from batchdp.errors import DomainError
from batchdp.text import sanitise, shorten

# ── what is known about a column ──

ColumnType = Literal["text", "number", "whole", "date", "boolean", "unknown", "other"]
"""Unknown: a CSV file does not say. Other: no kind of declared column fits, such as a list."""

End = int | float | date


@dataclass(frozen=True)
class Described:
    """A column by its name and type. The rest is a codebook's or the schema's; nothing is looked up in the data."""

    name: str
    kind: ColumnType
    values: tuple[bool | int | str, ...] = ()
    """All that can occur; none if they are not known."""
    low: End | None = None
    high: End | None = None
    step: float | None = None
    """The last digit that a decimal type keeps."""
    origin: str = "the codebook"
    """Who says which values there are, or where they end."""
    missing: tuple[str, ...] = ()
    """What stands for a missing value."""
    notes: tuple[str, ...] = ()
    """Sentences for whoever edits the draft."""
    documented: bool = False
    """Whether a codebook speaks of it."""
    also: tuple[str, ...] = ()
    """Other names that the codebook has for it."""


# ── one column of the file ──

WIDTH = 33
"""Where the comments begin."""
WIDEST = 110
PLACEHOLDERS: dict[ColumnType, tuple[Any, Any]] = {
    "number": (0, 100),
    "whole": (0, 10),
    "date": (date(2020, 1, 1), date(2025, 12, 31)),
}
"""Ends, where none are known."""
PARTS = 4
"""Bins that a line is drafted with."""
MOST_STEPS = 10**9


def draft_section(column: Described, grouping: str | None, within: str = "") -> str:
    """The column as a part of the file.

    Args:
        column: what is known.
        grouping: a name that is still free, for a grouping; None if there is none.
        within: the key of the table, of several.
    """
    kind = guess_kind(column)
    lines = [f"[{within}columns.{toml_key(column.name)}]"]
    lines += [f"# {note}" for note in column.notes]
    if kind in ("number", "whole", "date") and not column.values:
        lines += _draft_line(column, kind, grouping)
    else:
        lines += _draft_values(column, kind, grouping)
    if column.missing:
        shown = ", ".join(f"'{shorten(text)}'" for text in column.missing[:5])
        lines.append(_comment('# other = "drop"', f"leaves out records with anything else, such as {shown}"))
    return "\n".join(lines) + "\n"


def draft_ends(column: Described) -> tuple[Any, Any]:
    """The ends of a line: those that are known, and a placeholder on the right side of them."""
    first, last = PLACEHOLDERS[guess_kind(column)]
    low = column.low if column.low is not None else first if column.high is None else min(first, column.high)
    return low, column.high if column.high is not None else max(last, low)


def guess_kind(column: Described) -> ColumnType:
    """A CSV file has no types, but its names may tell: an age is a number, a date a date."""
    if column.kind != "unknown":
        return column.kind
    words = re.split(r"[\W_]+", column.name.lower())
    return "number" if "age" in words else "date" if {"date", "day", "birthday"} & set(words) else "unknown"


def toml_key(name: str) -> str:
    """A bare TOML key where that is possible."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quote(name)


def quote(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _draft_values(column: Described, kind: ColumnType, grouping: str | None) -> Iterator[str]:
    values = column.values or ((True, False) if kind == "boolean" else ("A", "B"))
    said = {"boolean": "", "unknown": "EDIT: the values that can occur, or range, integers, dates"}
    origin = said.get(kind, "EDIT: the values that can occur")
    yield from _write_array(
        "values", list(map(_write_value, values)), f"from {column.origin}" if column.values else origin
    )
    if grouping is not None and len(values) > 1 and kind in ("text", "whole"):
        first, second = _write_inline(values[:1]), _write_inline(values[1:2])
        yield _draft_grouping(grouping, f"{{ first = {first}, second = {second} }}")


def _draft_line(column: Described, kind: ColumnType, grouping: str | None) -> Iterator[str]:
    low, high = draft_ends(column)
    word = {"number": "range", "whole": "integers", "date": "dates"}[kind]
    yield _comment(f"{word} = {_write_inline((low, high))}", _say_origin(column, kind))
    bins, halves = (_write_inline(_draft_edges(low, high, parts, kind == "whole")) for parts in (PARTS, 2))
    if kind == "number":
        yield _comment(f"bins = {bins}", "EDIT: lower edges of the groups of GROUP BY")
    elif "," in bins:
        yield _comment(f"# bins = {bins}", "lower edges of groups, for GROUP BY")
    if grouping is not None and "," in halves:
        yield _draft_grouping(grouping, halves)
    if kind == "number" and (step := _draft_step(column, low, high)) is not None:
        own = "# " * (column.step is None or float(step) != column.step)
        yield _comment(f"{own}step = {step}", "SUM is allowed: values are rounded to the step")
        yield _comment('# outside = "clip"', "values beyond the range count as its nearer end")


def _say_origin(column: Described, kind: ColumnType) -> str:
    """Where the ends are from."""
    what = ("the first", "the last day") if kind == "date" else ("the lowest", "the highest value")
    unknown = [word for word, end in zip(what, (column.low, column.high), strict=True) if end is None]
    if not unknown:
        return f"from {column.origin}"
    asked = " and ".join(unknown)
    return f"EDIT: {asked}" + f"; the other end is from {column.origin}" * (len(unknown) == 1)


def _draft_edges(low: Any, high: Any, parts: int, whole: bool) -> list[Any]:
    """Lower edges of at most so many parts; of days, where years begin."""
    if isinstance(low, date):
        starts: Sequence[Any] = [low, *(date(year, 1, 1) for year in range(low.year + 1, high.year + 1))]
    elif isinstance(low, int) and isinstance(high, int) and (whole or high - low >= parts):
        starts = range(low, high + whole)
    else:
        edges = [low, *(float(f"{low + (high - low) * i / parts:.6g}") for i in range(1, parts))]
        return edges if all(a < b for a, b in pairwise([*edges, high])) else [low]
    return list(starts[:: math.ceil(len(starts) / parts)])


def _draft_step(column: Described, low: Any, high: Any) -> str | None:
    """A power of ten that both ends are multiples of: the type's last digit, or about four digits of the range."""
    if high <= low:
        return None
    own = [] if column.step is None else [round(math.log10(column.step))]
    largest = math.floor(math.log10(high - low)) - 4
    for exponent in [*own, *range(largest, largest - 5, -1)]:
        step = Decimal(10) ** exponent
        if high - low <= MOST_STEPS * step and not any(Decimal(str(end)) % step for end in (low, high)):
            return f"{step:f}"
    return None


def _draft_grouping(name: str, groups: str) -> str:
    return _comment(f"# groupings = {{ {toml_key(name)} = {groups} }}", f"another way: GROUP BY '{shorten(name)}'")


def _write_array(word: str, items: Sequence[str], said: str) -> Iterator[str]:
    """A list in one line, or in several."""
    whole = f"{word} = [{', '.join(items)}]"
    if len(whole) <= WIDEST:
        yield _comment(whole, said)
        return
    yield _comment(f"{word} = [", said)
    line = ""
    for item in items:
        if line and len(line) + len(item) > WIDEST:
            yield f"   {line}"
            line = ""
        line += f" {item},"
    yield from (f"   {line}", "]")


def _write_inline(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(_write_value, values))}]"


def _write_value(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, (int, float)) else quote(str(value))


def _comment(code: str, comment: str) -> str:
    return f"{code:<{WIDTH - 1}} # {comment}" if comment else code


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

COLUMNS = """\
# Columns that queries may use. Delete those that no query uses. Every column is one of
#   values = ["a", "b"]          a few values: texts, whole numbers, or true and false
#   range = [0, 120]             any number between the two, both included; bins = [0, 18, 65] for GROUP BY
#   integers = [0, 12]           whole numbers, each by itself; SUM is allowed
#   dates = ["2020-01-01", "2025-12-31"]
# Anything else in the data counts as "anything else" (other = "keep") or is left out (other = "drop").
"""
HEAD = (
    """\
# What is public about the table. batchdp believes this file and never looks at the data to fill it in,
# so write what you know without the data: from a codebook, a form or the law.

table = {table:<25}# the name that the queries use

[privacy]
{unit}
neighbours = "add-remove"        # or "replace": the number of people is public
max_rows = 10_000_000            # a public cap on the number of rows

"""
    + COLUMNS
)
NO_UNIT = """\
# unit = {name:<23} # whose privacy: one value = one person; left out, every row is a person
# rows_per_unit = 1              # at most this many rows of one person are counted"""
UNIT = """\
unit = {name:<25} # EDIT: whose privacy: one value = one person; left out, every row is a person
rows_per_unit = 1                # at most this many rows of one person are counted"""
CODEBOOK = "The codebook is {name}. "
SCHEMA = "What is from an ENUM type or a CHECK is in the schema. "
SURE = """\
# {sources}
# Make sure that it was known without these data: values and ends that were looked up in them give people away.
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
    """The texts of both drafted files."""

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
    ids = [column.name for column in given if is_own(column) and not problem_of_name(column.name)]
    unit = next((name for name in ids if PERSON.fullmatch(name)), None)
    kept, left_out = sort_out(given, unit)
    if not kept:
        raise DomainError(f"the table has no column that can be declared: {'; '.join(left_out[:3]) or 'it has none'}")
    domain = _draft_domain(table, kept, left_out, unit, [*ids, "person_id"][0], codebook)
    return Draft(domain, _draft_queries(table, kept))


def sort_out(given: Sequence[Described], unit: str | None) -> tuple[list[Described], list[str]]:
    """The columns that can be declared, and why the others cannot."""
    kept: list[Described] = []
    left_out = []
    taken = Counter(fold(column.name) for column in given)
    for column in given:
        reason: str | None
        if column.name == unit and len(given) > 1:
            continue
        if column.kind == "other":
            reason = "no kind of column below fits its type; cast it in a view"
        elif taken[fold(column.name)] > 1:
            reason = "several columns have this name, upper or lower case; rename all but one"
        elif is_own(column):
            reason = "its name looks like an id; if it tells persons apart, make it the unit"
        elif column.kind in ("text", "unknown") and not column.values and is_free_text(column.name):
            reason = "its name suggests names or free text; declare it if it has a few values that are public"
        elif len(kept) == MOST_COLUMNS:
            reason = f"more than {MOST_COLUMNS} columns; declare those that you ask about"
        else:
            reason = problem_of_name(column.name) or _problem_of_values(column)
        if reason is None:
            kept.append(column)
        else:
            left_out.append(f"'{shorten(column.name)}': {reason}")
    return kept, left_out


IDENTIFIER = re.compile(r"(.*[\W_])?(id|uuid|guid|ssn)|.*[a-z0-9](Id|ID|Uuid|UUID|Guid|GUID)|(id|ID|Id)[A-Z0-9]*")
"""Names of columns in which every record, or every person, has a value of its own."""


def is_identifier(name: str) -> bool:
    """Whether a column is called like an id, of whatever it be."""
    return bool(IDENTIFIER.fullmatch(name) or IDENTIFIER.fullmatch(name.lower()) or PERSON.fullmatch(name))


def is_own(column: Described) -> bool:
    """Whether a column is called like an id, and nothing else speaks against it."""
    return is_identifier(column.name) and column.kind not in ("boolean", "date") and not column.values


FREE_TEXT = re.compile(
    rf"((.*[\W_])?((first|last|middle|given|family|full|maiden|nick|user|sur|fore)[\W_]?name|e[\W_]?mail|address(es)?|"
    r"phone|telephone|mobile|fax|street|comments?|notes?|remarks?|descriptions?|messages?|text|url)|name|"
    rf"{PERSON.pattern}[\W_]?name)([\W_]?(no|nr|number|\d+))?",
    re.IGNORECASE,
)
"""Names of columns that hold names, ways to reach somebody, or sentences."""


def is_free_text(name: str) -> bool:
    """Whether a column is called like what hardly two records have in common."""
    return FREE_TEXT.fullmatch(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)) is not None


def problem_of_name(name: str) -> str | None:
    """Why a name cannot be declared."""
    if len(name) > LONGEST:
        return f"its name is longer than {LONGEST} characters; rename it"
    try:
        read_domain(f"table = 't'\n[columns.{toml_key(name)}]\nvalues = [true]\n")
    except DomainError:
        return "its name is blank, or holds characters that cannot be seen or look like others; rename it"
    return None


def _problem_of_values(column: Described) -> str | None:
    """Why what is known of a column cannot be declared."""
    try:
        read_domain(f"table = 't'\n{draft_section(column, None)}")
    except DomainError as error:
        return f"what {column.origin} says of it cannot be declared: {sanitise(error)}"
    return None


def _draft_domain(
    table: str,
    columns: Sequence[Described],
    left_out: Sequence[str],
    unit: str | None,
    proposed: str,
    codebook: str | None,
) -> str:
    named = NO_UNIT.format(name=quote(proposed)) if unit is None else UNIT.format(name=quote(unit))
    parts = [HEAD.format(table=quote(table), unit=named)]
    sources = CODEBOOK.format(name=f"'{shorten(codebook)}'") if codebook is not None else ""
    sources += SCHEMA if any(column.origin != Described.origin for column in columns) else ""
    if sources:
        parts[0] += SURE.format(sources=sources.strip())
    return "\n".join([*parts, *draft_columns(columns, left_out, unit)])


def draft_columns(
    columns: Sequence[Described], left_out: Sequence[str], unit: str | None, within: str = ""
) -> Iterator[str]:
    """All columns of a table, and those that are left out."""
    taken = {fold(column.name) for column in columns} | ({fold(unit)} if unit is not None else set())
    yield from (draft_section(column, _name_grouping(column.name, taken), within) for column in columns)
    if left_out:
        more = [f"and {len(left_out) - MOST_SHOWN} more"] * (len(left_out) > MOST_SHOWN)
        yield "\n".join(f"# Left out: {line}" for line in [*left_out[:MOST_SHOWN], *more]) + "\n"


def _name_grouping(name: str, taken: set[str]) -> str | None:
    """A name for a grouping of a column that nothing else has."""
    grouping = f"{name}_groups"
    if fold(grouping) in taken or problem_of_name(grouping):
        return None
    taken.add(fold(grouping))
    return grouping


ABOUT_QUERIES = (
    "-- One SELECT after the other; each count becomes one private answer. COUNT, SUM, WHERE, CASE, FILTER and",
    "-- GROUP BY over declared columns are understood, and sums and multiples of counts.",
)


def _draft_queries(table: str, columns: Sequence[Described]) -> str:
    return "\n".join([*ABOUT_QUERIES, "", *draft_counts(table, columns)]) + "\n"


def draft_counts(table: str, columns: Sequence[Described], before: str = "") -> Iterator[str]:
    """All rows of a table, and queries of some columns; what stands before the names of their answers."""
    source = _quote_identifier(table)
    yield f"SELECT COUNT(*) AS {_quote_identifier(f'{before}total')} FROM {source};"
    drafted = list(_draft_statements(source, columns[:MOST_SHOWN], before))
    yield from drafted[:MOST_ASKED]
    yield from (f"-- {line}" for line in drafted[MOST_ASKED:])


def _draft_statements(source: str, columns: Iterable[Described], before: str = "") -> Iterator[str]:
    """One query per column, each under a name of its own."""
    taken = {"total"}
    for column in columns:
        name, kind = _quote_identifier(column.name), "text" if column.values else guess_kind(column)
        since = None
        if kind == "date":  # from a day that leaves some to both sides: where the last year but one begins
            first, last = draft_ends(column)
            since = max(first, date(max(1, last.year - 1), 1, 1))
        alias = f"{column.name}_since_{since.year}" if since else f"{'all' if kind == 'whole' else 'by'}_{column.name}"
        alias = f"{before}{alias}"
        if fold(skeleton(alias)) in taken or len(alias) > LONGEST:
            continue
        taken.add(fold(skeleton(alias)))
        named = _quote_identifier(alias)
        if since:
            yield f"SELECT COUNT(*) AS {named} FROM {source} WHERE {name} >= DATE '{since}';"
        elif kind == "whole":
            yield f"SELECT SUM({name}) AS {named} FROM {source};"
        else:
            yield f"SELECT {name}, COUNT(*) AS {named} FROM {source} GROUP BY {name};"


def _quote_identifier(name: str) -> str:
    """An SQL identifier, quoted where it has to be."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
