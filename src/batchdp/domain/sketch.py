"""One column of a drafted domain file: what is known, a placeholder for the rest, further keys as comments."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

from batchdp.domain.described import ColumnType, Described
from batchdp.terminal import harmless

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


def section(column: Described, grouping: str | None) -> str:
    """The column as a part of the file.

    Args:
        column: what is known.
        grouping: a name that is still free, for a grouping; None if there is none.
    """
    kind = likely(column)
    lines = [f"[columns.{key(column.name)}]"]
    lines += [f"# {note}" for note in column.notes]
    if kind in ("number", "whole", "date") and not column.values:
        lines += _line(column, kind, grouping)
    else:
        lines += _listed(column, kind, grouping)
    if column.missing:
        shown = ", ".join(map(short, column.missing[:5]))
        lines.append(_said('# other = "drop"', f"leaves out records with anything else, such as {shown}"))
    return "\n".join(lines) + "\n"


def ends(column: Described) -> tuple[Any, Any]:
    """The ends of a line: those that are known, and a placeholder on the right side of them."""
    first, last = PLACEHOLDERS[likely(column)]
    low = column.low if column.low is not None else first if column.high is None else min(first, column.high)
    return low, column.high if column.high is not None else max(last, low)


def likely(column: Described) -> ColumnType:
    """A CSV file has no types, but its names may tell: an age is a number, a date a date."""
    if column.kind != "unknown":
        return column.kind
    words = re.split(r"[\W_]+", column.name.lower())
    return "number" if "age" in words else "date" if {"date", "day", "birthday"} & set(words) else "unknown"


def key(name: str) -> str:
    """A bare TOML key where that is possible."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _listed(column: Described, kind: ColumnType, grouping: str | None) -> Iterator[str]:
    values = column.values or ((True, False) if kind == "boolean" else ("A", "B"))
    said = {"boolean": "", "unknown": "EDIT: the values that can occur, or range, integers, dates"}
    origin = said.get(kind, "EDIT: the values that can occur")
    yield from _array("values", [_spelled(value) for value in values], "from the codebook" if column.values else origin)
    if grouping is not None and len(values) > 1 and kind in ("text", "whole"):
        yield _grouping(grouping, f"{{ first = {_array_of(values[:1])}, second = {_array_of(values[1:2])} }}")


def _line(column: Described, kind: ColumnType, grouping: str | None) -> Iterator[str]:
    low, high = ends(column)
    word = {"number": "range", "whole": "integers", "date": "dates"}[kind]
    yield _said(f"{word} = {_array_of((low, high))}", _whose(column, kind))
    bins, halves = (_array_of(_edges(low, high, parts, kind == "whole")) for parts in (PARTS, 2))
    if kind == "number":
        yield _said(f"bins = {bins}", "EDIT: lower edges of the groups of GROUP BY")
    elif "," in bins:
        yield _said(f"# bins = {bins}", "lower edges, if GROUP BY shall give groups")
    if grouping is not None and "," in halves:
        yield _grouping(grouping, halves)
    if kind == "number" and (step := _step(column, low, high)) is not None:
        yield _said(f"# step = {step}", "SUM is allowed: values are rounded to the step")
        yield _said('# outside = "clip"', "values beyond the range count as its nearer end")


def _whose(column: Described, kind: ColumnType) -> str:
    """Where the ends are from."""
    what = ("the first", "the last day") if kind == "date" else ("the lowest", "the highest value")
    unknown = [word for word, end in zip(what, (column.low, column.high), strict=True) if end is None]
    if not unknown:
        return "from the codebook"
    asked = " and ".join(unknown)
    return f"EDIT: {asked}" + "; the other end is from the codebook" * (len(unknown) == 1)


def _edges(low: Any, high: Any, parts: int, whole: bool) -> list[Any]:
    """Lower edges of at most so many parts; of days, where years begin."""
    if isinstance(low, date):
        starts: Sequence[Any] = [low, *(date(year, 1, 1) for year in range(low.year + 1, high.year + 1))]
    elif isinstance(low, int) and isinstance(high, int) and (whole or high - low >= parts):
        starts = range(low, high + whole)
    else:
        edges = [low, *(float(f"{low + (high - low) * i / parts:.6g}") for i in range(1, parts))]
        return edges if all(a < b for a, b in pairwise([*edges, high])) else [low]
    return list(starts[:: math.ceil(len(starts) / parts)])


def _step(column: Described, low: Any, high: Any) -> str | None:
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


def _grouping(name: str, groups: str) -> str:
    return _said(f"# groupings = {{ {key(name)} = {groups} }}", f"another way: GROUP BY {short(name)}")


def _array(word: str, items: Sequence[str], said: str) -> Iterator[str]:
    """A list in one line, or in several."""
    whole = f"{word} = [{', '.join(items)}]"
    if len(whole) <= WIDEST:
        yield _said(whole, said)
        return
    yield _said(f"{word} = [", said)
    line = ""
    for item in items:
        if line and len(line) + len(item) > WIDEST:
            yield f"   {line}"
            line = ""
        line += f" {item},"
    yield f"   {line}"
    yield "]"


def _array_of(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(_spelled, values))}]"


def _spelled(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, (int, float)) else quoted(str(value))


def _said(code: str, comment: str) -> str:
    return f"{code:<{WIDTH - 1}} # {comment}" if comment else code


def short(text: str) -> str:
    """A text in a comment, whatever is in it."""
    return "'" + harmless(text if len(text) <= 60 else text[:59] + "…") + "'"
