"""What the codes of records stand for: labels, numbers and days within their groups, NULL, and anything else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.domain.counted import ColumnRule, Counted
from batchdp.linalg.matrix import Dense
from batchdp.queries.query import MISSING, OTHER
from batchdp.release.records.fitting import Codes, Fitting, Heading

STRETCH = re.compile(r"(?P<low>\S+) to (?P<under>under )?(?P<high>\S+)")
BESIDE = re.compile(rf"\(+({re.escape(OTHER)}|{re.escape(MISSING)})\)+")
"""How groups are called that no value was declared for."""
UNTOLD = "What is anything else, and no number or date, is NULL in: {}."
EVENLY = "Within their groups, numbers and dates are drawn evenly: {}."


@dataclass(frozen=True)
class Named:
    """A column of records, as people know it."""

    name: str
    values: NDArray[Any]
    drawn: bool = False
    """Whether values are drawn within groups."""
    untold: bool = False
    """Whether some that are anything else are NULL."""


def name_values(
    fitting: Fitting, records: Codes, counted: Counted | None, rng: np.random.Generator
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """The columns of records with their values, and what must be said of these.

    Args:
        fitting: what values are called.
        records: codes, record × column.
        counted: the rules of the release, which say which columns are of numbers or dates.
        rng: where in its group a number is, comes from it.
    """
    rules = {} if counted is None else {rule.name: rule for rule in counted.columns}
    found: dict[str, Named] = {}
    for column, headings in enumerate(fitting.headings):
        for own in _columns(fitting.names[column], headings, records[:, column], rules, rng):
            found.setdefault(own.name, own)
    drawn, untold = ([own.name for own in found.values() if getattr(own, what)] for what in ("drawn", "untold"))
    notes = [EVENLY.format(", ".join(drawn))] * bool(drawn) + [UNTOLD.format(", ".join(untold))] * bool(untold)
    return {name: own.values for name, own in found.items()}, tuple(notes)


def _columns(
    name: str, headings: Sequence[Heading], codes: Codes, rules: dict[str, ColumnRule], rng: np.random.Generator
) -> Iterator[Named]:
    """One column if all its groups are stretches of one line; else one for every heading."""
    lines = {own.name: own.name if own.name in rules else name for own in headings}
    for line in dict.fromkeys(lines.values()):
        # Of several that are called alike the one first that knows most values.
        here = sorted((own for own in headings if lines[own.name] == line), key=lambda own: int((own.place < 0).sum()))
        rule = rules.get(line)
        read = None if rule is None or rule.low is None else _reader(rule)
        stretched = [own for own in here if read is not None and _is_line(own, read)]
        if rule is not None and read is not None and stretched:
            yield _along(line, rule, read, stretched, codes, rng)
        for own in here:
            if own not in stretched:
                yield Named(own.name, _labels(own, codes))


def _is_line(own: Heading, read: Callable[[str], Any]) -> bool:
    """Whether the titles of a heading are stretches of a line."""
    return all(BESIDE.fullmatch(title) or _stretch(title, read) is not None for title in own.titles)


def _labels(own: Heading, codes: Codes) -> NDArray[Any]:
    """Titles as values: whole numbers and truths where all are such; None for NULL and where nothing is known."""
    titles = [None if _is(title, MISSING) else OTHER if _is(title, OTHER) else title for title in own.titles]
    known = [title for title in titles if title is not None]
    if set(known) <= {"true", "false"}:
        values: list[Any] = [None if title is None else title == "true" for title in titles]
    elif all(re.fullmatch(r"0|-?[1-9]\d{0,15}", title) for title in known):
        values = [None if title is None else int(title) for title in titles]
    else:
        values = list(titles)
    place = own.place[codes]
    table = np.array([*values, None], dtype=object)
    found = table[place]
    if all(isinstance(one, int) and not isinstance(one, bool) for one in values) and place.min(initial=0) >= 0:
        return found.astype(np.int64)
    return np.asarray(found)


def _is(title: str, what: str) -> bool:
    found = BESIDE.fullmatch(title)
    return found is not None and found.group(1) == what


def _reader(rule: ColumnRule) -> Callable[[str], float]:
    """How the ends of a stretch are read: days count from the first one of the calendar."""
    if isinstance(rule.low, str):
        return lambda text: float(date.fromisoformat(text).toordinal())
    return float


def _stretch(title: str, read: Callable[[str], float]) -> tuple[float, float, bool] | None:
    """From where to where, and whether the upper end belongs to it."""
    found = STRETCH.fullmatch(title)
    try:
        if found is None:
            return read(title), read(title), True
        return read(found["low"]), read(found["high"]), found["under"] is None
    except ValueError:
        return None


def _along(
    name: str,
    rule: ColumnRule,
    read: Callable[[str], float],
    headings: Sequence[Heading],
    codes: Codes,
    rng: np.random.Generator,
) -> Named:
    """Numbers or days within what all headings say of every value, evenly."""
    values = len(headings[0].place)
    low, high, closed = np.full(values, -math.inf), np.full(values, math.inf), np.ones(values, dtype=bool)
    missing, other = np.zeros(values, dtype=bool), np.zeros(values, dtype=bool)
    for own in headings:
        for v, place in enumerate(own.place.tolist()):
            title = own.titles[place] if place >= 0 else None
            missing[v] |= title is not None and _is(title, MISSING)
            other[v] |= title is not None and _is(title, OTHER)
            found = None if title is None or BESIDE.fullmatch(title) else _stretch(title, read)
            if found is not None:
                low[v] = max(low[v], found[0])
                if found[1] < high[v] or (found[1] == high[v] and not found[2]):
                    high[v], closed[v] = found[1], found[2]
    bottom, top = (read(str(end)) for end in (rule.low, rule.high))
    low, high = np.maximum(low, bottom), np.minimum(high, top)
    null = missing | other
    days = isinstance(rule.low, str)
    step = 1.0 if days or rule.whole else rule.step
    drawn = _draw(low[codes], high[codes], closed[codes], None if step is None else (bottom, float(step)), rng)
    empty, spread = null[codes], bool(np.any((high > low) & ~null & ((high - low > 1) | closed | (step is None))))
    untold = bool(other[codes].any())
    if days:
        texts = np.array([None if no else date.fromordinal(int(day)) for no, day in zip(empty, drawn, strict=True)])
        return Named(name, texts.astype(object), spread, untold)
    if step is not None and float(step).is_integer() and bottom.is_integer():
        whole = drawn.astype(np.int64)
        if not empty.any():
            return Named(name, whole, spread, untold)
        mixed = whole.astype(object)
        mixed[empty] = None
        return Named(name, mixed, spread, untold)
    drawn[empty] = np.nan
    return Named(name, drawn, spread, untold)


def _draw(low: Dense, high: Dense, closed: Any, grid: tuple[float, float] | None, rng: np.random.Generator) -> Dense:
    """Between two ends each, on a grid if there is one."""
    u = rng.random(len(low))
    if grid is None:
        return np.asarray(low + u * (high - low))
    start, step = grid
    first = np.ceil((low - start) / step - 1e-9)
    last = np.where(closed, np.floor((high - start) / step + 1e-9), np.ceil((high - start) / step - 1e-9) - 1)
    place = first + np.floor(u * (np.maximum(last - first, 0) + 1))
    found = start + place * step
    return np.asarray(found if step == 1 else np.round(found, 12))
