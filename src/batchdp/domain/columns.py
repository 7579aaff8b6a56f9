"""The kinds of columns. Each declares its public values, so that nothing has to be looked up in the data."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from batchdp.queries.query import Cut, OneOf, Place, Value, Within

LONGEST = 200
LOOK_ALIKES = str.maketrans(
    "аеорсухіѕјԁһԛԝьᴠАВЕКМНОРСТУХІЅЈԌαοντρυκιΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aeopcyxisjdhqwbvABEKMHOPCTYXISJGaovtpukiABEZHIKMNOPTYX"
)
"""Letters of other scripts that look like Latin ones."""


def check_text(text: str) -> str:
    """A value or name as it is; refused if it is blank, long or holds characters that cannot be seen."""
    if not text.strip():
        raise ValueError(f"{text!r} is blank")
    if len(text) > LONGEST:
        raise ValueError(f"a text of {len(text)} characters; at most {LONGEST} are allowed")
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            raise ValueError(f"{text!r} holds the invisible character U+{ord(character):04X}")
    return text


def check_name(name: str) -> str:
    """An identifier or alias; refused if it looks like another one."""
    check_text(name)
    if unicodedata.normalize("NFKC", name) != name:
        raise ValueError(f"{name!r} holds characters that look like {unicodedata.normalize('NFKC', name)!r}; use those")
    if not name.isascii() and (plain := skeleton(name)).isascii():
        odd = next(character for character in name if not character.isascii())
        raise ValueError(
            f"{name!r} looks like {plain!r} but holds {unicodedata.name(odd, 'a foreign letter')} (U+{ord(odd):04X})"
        )
    return name


def skeleton(name: str) -> str:
    """The name with look-alike letters replaced by the Latin ones."""
    return name.translate(LOOK_ALIKES)


def fold(name: str) -> str:
    """The form under which two identifiers are the same: SQL does not tell upper from lower case."""
    return name.casefold()


def plain_name(text: str) -> str:
    """A name for a table that SQL takes without quotes, from whatever its file is called."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()[:100] or "records"


# ── the values that a summed column can have ──

MOST_STEPS = 2**62
SMALLEST_STEP = 1e-30

Number = int | float


@dataclass(frozen=True)
class Grid:
    """low, low + step, …, low + steps · step. A value is the number of its step, from 0."""

    low: Fraction
    step: Fraction
    steps: int

    @property
    def high(self) -> Fraction:
        """The last value of the grid."""
        return self.low + self.steps * self.step

    def value(self, place: int) -> Fraction:
        """The value of a step."""
        return self.low + place * self.step

    def first(self, value: Number, *, after: bool) -> int:
        """The first step at a value, or after it; below 0 or beyond `steps` where the value lies outside."""
        place = (exact(value) - self.low) / self.step
        return place.__floor__() + 1 if after else place.__ceil__()


def exact(number: Number) -> Fraction:
    """A number as it is written: 0.1 is a tenth, and not the float next to it."""
    return Fraction(Decimal(repr(number)))


def grid_of(low: Number, high: Number, step: Number) -> Grid:
    """The grid between two ends; a `ValueError` says what is wrong with the step."""
    if step <= 0:
        raise ValueError(f"step={step} must be above 0; give the smallest amount that matters, like 0.01")
    if step < SMALLEST_STEP:
        raise ValueError(f"step={step} is below {SMALLEST_STEP:g}; declare the column in a smaller unit")
    first, size = exact(low), exact(step)
    steps = (exact(high) - first) / size
    if steps > MOST_STEPS:
        raise ValueError(
            f"step={step} cuts the range from {low} to {high} into more than 2^62 steps; give a larger one"
        )
    if steps.denominator != 1:
        last = first + steps.__floor__() * size
        raise ValueError(
            f"step={step} does not divide the range from {low} to {high}; end it at {float(last):.15g}, or choose "
            "another step"
        )
    return Grid(first, size, int(steps))


MOST_VALUES = 100_000
MOST_MONTHS = 12_000
LARGEST = 2**53
"""Beyond it, float64 skips whole numbers."""


def _check_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")
    if abs(value) > LARGEST:
        raise ValueError(f"{value if abs(value) < 1e30 else 'a number'} is beyond ±2^53")
    return int(value) if value == int(value) else value


def _check_day(value: Any) -> Any:
    if isinstance(value, datetime):
        raise ValueError(f"{value} has a time of day; give a date like 2020-01-31")
    with suppress(ValueError):
        value = date.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(value, date):
        raise ValueError(f'{value!r} is not a date; write it as "2020-01-31"')
    return value


def _months(value: Any) -> Any:
    """The first and the last day of `{first = "2024-01-01", months = 24}`; other values as they are."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"first", "months"}:
        raise ValueError('dates in months have two keys: dates = {first = "2024-01-01", months = 24}')
    first, months = _check_day(value["first"]), value["months"]
    if isinstance(months, bool) or not isinstance(months, int) or not 1 <= months <= MOST_MONTHS:
        raise ValueError(f"dates: months = {months!r} must be a whole number from 1 to {MOST_MONTHS}")
    year, month = divmod(12 * first.year + first.month - 1 + months, 12)
    if first.day > 28 or year > date.max.year:
        raise ValueError(f"dates: first = {first} must be a day that every month has, with an end before 10000")
    return first, date(year, month + 1, first.day) - timedelta(days=1)


def _check_text(value: Any) -> Any:
    return check_text(value) if isinstance(value, str) else value


ReadNumber = Annotated[int | float, BeforeValidator(_check_number)]
Day = Annotated[date, BeforeValidator(_check_day)]
Whole = Annotated[int, BeforeValidator(_check_number)]
Listable = Annotated[StrictBool | StrictInt | StrictStr, BeforeValidator(_check_text)]
Optional: Any = Field(default=None, exclude_if=lambda given: given is None)
"""Not written where they are left out."""


class _Column(BaseModel):
    """What every kind has: the policy for NULL and for values that are not declared, and perhaps further groupings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    other: Literal["keep", "drop"] = "keep"
    groups: Literal["all"] | None = Optional

    def grouped(self, name: str, grouping: str | None = None) -> tuple[tuple[str, OneOf | Within], ...] | None:
        """What GROUP BY gives: every group's title with what a record must fulfil; None if there are no groups."""
        raise NotImplementedError


class Listed(_Column):
    """A few values, each by itself: texts, whole numbers, or true and false."""

    values: tuple[Listable, ...] = Field(min_length=1, max_length=MOST_VALUES)
    groupings: dict[str, dict[str, tuple[Listable, ...]]] | None = Optional

    @model_validator(mode="after")
    def _check(self) -> Listed:
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("values mix texts, whole numbers and booleans; give values of one type")
        if len(set(self.values)) < len(self.values):
            (twice, _), *_ = Counter(self.values).most_common(1)
            raise ValueError(f"values hold {twice!r} twice")
        if any(isinstance(value, int) and abs(value) > LARGEST for value in self.values):
            raise ValueError("values hold a number beyond ±2^53")
        for name, titled in (self.groupings or {}).items():
            _check_lists(name, titled, frozenset(self.values))
        return self

    @property
    def kind(self) -> Literal["text", "integer", "boolean"]:
        """The type of the values."""
        first = self.values[0]
        return "boolean" if isinstance(first, bool) else "integer" if isinstance(first, int) else "text"

    def grouped(self, name: str, grouping: str | None = None) -> tuple[tuple[str, OneOf], ...]:
        """Every declared value, or the lists of a grouping."""
        if grouping is not None and self.groupings is not None:
            return tuple((title, OneOf(name, frozenset(values))) for title, values in self.groupings[grouping].items())
        return tuple((label(value), OneOf(name, frozenset([value]))) for value in self.values)


class _Line(_Column):
    """Values in an order, with two ends and perhaps bins."""

    if TYPE_CHECKING:  # each kind declares its own, behind its ends: the order is part of a plan's digest
        bins: Any
        groupings: Any

    def grouped(self, name: str, grouping: str | None = None) -> tuple[tuple[str, Within], ...] | None:
        """The bins, or those of a grouping; None if there are none."""
        bins = self.bins if grouping is None or self.groupings is None else self.groupings[grouping]
        return None if bins is None else self._binned(name, _edges(bins), label)

    def _check_line(self, key: str, low: Any, high: Any) -> None:
        if low > high:
            raise ValueError(f"{key} goes from {low} down to {high}; give the lower end first")
        _check_bins("bins", self.bins, low, high)
        for name, bins in (self.groupings or {}).items():
            _check_grouping(name)
            _check_bins(f"the grouping {name}", bins, low, high)

    def ends(self) -> tuple[Place, Place]:
        """The lowest and the highest declared value."""
        raise NotImplementedError

    def _binned(self, name: str, edges: list[tuple[str | None, Place]], shown: Any) -> tuple[tuple[str, Within], ...]:
        _, top = self.ends()
        groups = []
        for i, (title, edge) in enumerate(edges):
            last = i + 1 == len(edges)
            high = Cut(top, after=True) if last else Cut(edges[i + 1][1])
            until = f"{shown(edge)} to {shown(top)}" if last else f"{shown(edge)} to under {shown(edges[i + 1][1])}"
            groups.append((title or until, Within(name, Cut(edge), high)))
        return tuple(groups)


class Numbers(_Line):
    """Any number from one end to the other, both included; optionally in bins, named by their lower edges.

    With a step, values are rounded to the nearest one, up where two are as near, and SUM is allowed.
    """

    range: tuple[ReadNumber, ReadNumber]
    bins: tuple[ReadNumber, ...] | dict[str, ReadNumber] | None = None
    groupings: dict[str, tuple[ReadNumber, ...] | dict[str, ReadNumber]] | None = Optional
    step: ReadNumber | None = Optional
    outside: Literal["clip"] | None = Optional

    @model_validator(mode="after")
    def _check(self) -> Numbers:
        self._check_line("range", *self.range)
        if self.step is not None:
            grid_of(*self.range, self.step)
        elif self.outside is not None:
            raise ValueError('outside = "clip" needs a step, like step = 0.01: what is clipped is then rounded to it')
        return self

    @property
    def grid(self) -> Grid | None:
        """The values that records are rounded to; None where no step is declared."""
        return None if self.step is None else grid_of(*self.range, self.step)

    def ends(self) -> tuple[Place, Place]:
        """The lowest and the highest declared value."""
        return self.range


class Integers(_Line):
    """Whole numbers from one end to the other, each its own value; SUM is allowed."""

    integers: tuple[Whole, Whole]
    bins: tuple[Whole, ...] | dict[str, Whole] | None = None
    groupings: dict[str, tuple[Whole, ...] | dict[str, Whole]] | None = Optional
    outside: Literal["clip"] | None = Optional

    @model_validator(mode="after")
    def _check(self) -> Integers:
        self._check_line("integers", *self.integers)
        return self

    @property
    def grid(self) -> Grid:
        """The whole numbers between both ends."""
        return grid_of(*self.integers, 1)

    def ends(self) -> tuple[Place, Place]:
        """The lowest and the highest declared value."""
        return self.integers

    def grouped(self, name: str, grouping: str | None = None) -> tuple[tuple[str, Within], ...] | None:
        """The bins, those of a grouping, or every number; None if these are too many to list."""
        low, high = self.integers
        if grouping is not None or self.bins is not None:
            return super().grouped(name, grouping)
        if high - low >= MOST_VALUES:
            return None
        return tuple((label(value), Within(name, Cut(value), Cut(value, after=True))) for value in range(low, high + 1))


class Dates(_Line):
    """Days from one end to the other, both included; a time of day is cut off."""

    dates: Annotated[tuple[Day, Day], BeforeValidator(_months)]
    bins: tuple[Day, ...] | dict[str, Day] | None = None
    groupings: dict[str, tuple[Day, ...] | dict[str, Day]] | None = Optional

    @model_validator(mode="after")
    def _check(self) -> Dates:
        self._check_line("dates", *self.dates)
        return self

    def ends(self) -> tuple[Place, Place]:
        """The first and the last day, as numbers of days."""
        first, last = self.dates
        return first.toordinal(), last.toordinal()

    def grouped(self, name: str, grouping: str | None = None) -> tuple[tuple[str, Within], ...] | None:
        """The bins, or those of a grouping; None if there are none."""
        bins = self.bins if grouping is None or self.groupings is None else self.groupings[grouping]
        if bins is None:
            return None
        edges: list[tuple[str | None, Place]] = [(title, day.toordinal()) for title, day in _edges(bins)]
        groups = self._binned(name, edges, date.fromordinal)
        # Days have no places between them: after the last day is before the next.
        return tuple((title, Within(name, within.low, day_cut(within.high))) for title, within in groups)


def day_cut(cut: Cut | None) -> Cut | None:
    """A cut after a day as the one before the next day."""
    return Cut(cut.value + 1) if cut is not None and cut.after else cut


def label(value: Value | Place) -> str:
    """A value as people read it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _edges(bins: Any) -> list[tuple[str | None, Any]]:
    return list(bins.items()) if isinstance(bins, dict) else [(None, edge) for edge in bins]


def _check_bins(which: str, bins: Any, low: Any, high: Any) -> None:
    if bins is None:
        return
    edges = [edge for _, edge in _edges(bins)]
    if isinstance(bins, dict):
        for name in bins:
            check_text(name)
    if not edges:
        raise ValueError(f"{which}: no edges; leave it out or give lower edges")
    if len(edges) > MOST_VALUES:
        raise ValueError(f"{which}: {len(edges)} edges, more than {MOST_VALUES}")
    if any(not a < b for a, b in pairwise(edges)):
        raise ValueError(f"{which}: lower edges must be in ascending order, each once")
    if edges[0] != low or edges[-1] > high:
        raise ValueError(f"{which}: must start at {low}, the lower end of the column, and stay within it (to {high})")


def _check_grouping(name: str) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise ValueError(f"the grouping {name!r}: {error}") from None


def _check_lists(name: str, titled: dict[str, tuple[Value, ...]], values: frozenset[Value]) -> None:
    _check_grouping(name)
    if not titled:
        raise ValueError(f"the grouping {name} is empty; give titles with lists of values")
    seen: dict[Value, str] = {}
    for title, group in titled.items():
        check_text(title)
        if not group:
            raise ValueError(f"the grouping {name}: {title!r} holds no values")
        for value in group:
            # 1 is true to Python, and no value of a column of the other kind.
            if value not in values or type(value) is not type(next(iter(values))):
                raise ValueError(f"the grouping {name}: {value!r} is not among the column's values")
            if value in seen:
                raise ValueError(f"the grouping {name}: {value!r} is in {seen[value]!r} and in {title!r}; keep one")
            seen[value] = title


def _kind_of(column: Any) -> str | None:
    if isinstance(column, _Column):
        return {Listed: "values", Numbers: "range", Integers: "integers", Dates: "dates"}[type(column)]
    kinds = [key for key in ("values", "range", "integers", "dates") if isinstance(column, dict) and key in column]
    return kinds[0] if len(kinds) == 1 else None


Column = Annotated[
    Annotated[Listed, Tag("values")]
    | Annotated[Numbers, Tag("range")]
    | Annotated[Integers, Tag("integers")]
    | Annotated[Dates, Tag("dates")],
    Discriminator(
        _kind_of,
        custom_error_type="column_kind",
        custom_error_message="needs exactly one of values, range, integers, dates",
    ),
]
