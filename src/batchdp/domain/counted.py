"""What is counted: which rows are left out, and which values count as others, before any noise is added.

A release keeps these rules as a value, not as a text, so that a later version may say them in better words. They say
what the rule is, never whether it applied: that would tell about the data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from batchdp.domain.columns import Column, Dates, Integers, Listed, Numbers
from batchdp.domain.domain import Database, Domain

Given = Literal["rows", "codes", "counts", "labelled"]
End = int | float | str

ALONE = "Standard errors and intervals are of the noise alone: they do not cover what these rules change."
UNKNOWN = (
    "Which rows were left out, and which values counted as others, is not recorded: an older version made this release."
)
CODES = "A record with a code that is missing, not a whole number or out of range is not counted."
COUNTS = (
    "The counts are the caller's: a text is the number that it spells, one that is not a whole number is rounded down, "
    "one that is not a number, missing, infinite or below 0 is taken as 0, and one above 2^62 as 2^62."
)
LABELLED = "Counts are found by their labels: a cell that no label names counts 0, and what names no cell is left out."
LARGE = 10**9
"""Rows that hardly a table has: a cap as high as that goes without saying."""
SHOWN = 30
"""Columns that a sentence names."""
CHECKED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, str_max_length=1000)
"""What a file may hold of a rule: its fields and no others, each of its own type."""


@dataclass(frozen=True)
class ColumnRule:
    """What is declared of one column, as far as it decides what is counted."""

    __pydantic_config__ = CHECKED

    name: str
    low: End | None = None
    """The declared ends; None for a list of values."""
    high: End | None = None
    whole: bool = False
    """Whether only whole numbers are declared."""
    step: int | float | None = None
    """What values are rounded to."""
    clip: bool = False
    """Whether values beyond the ends count as these."""
    drop: bool = False
    """Whether rows with anything else are left out."""
    asked: bool = True
    """Whether a query looks at it."""

    @property
    def span(self) -> str:
        """From one end to the other."""
        return f"{_number(self.low)} to {_number(self.high)}"

    @property
    def undeclared(self) -> str:
        """What a row has that has none of the declared values."""
        fractions = self.whole and self.drop
        if self.low is None:
            return f"whose {self.name} is not declared or NULL"
        if self.clip:
            return f"whose {self.name} is {f'a fraction within {self.span} or ' * fractions}NULL"
        return f"whose {self.name} is {'no whole number from' if fractions else 'not within'} {self.span} or NULL"


@dataclass(frozen=True)
class Counted:
    """The rules of one release.

    Args:
        given: rows of a table, records by their codes, or counts, in the order of the cells or by labels.
        unit: the column with one value per person, of whom at most `rows_per_unit` rows are counted.
        rows_per_unit: how many.
        own_rows: whether tables have rows for anything else and for NULL.
        columns: those that queries look at, or that decide which rows are left out.
        tables: of several tables, the cap of each.
    """

    __pydantic_config__ = CHECKED

    given: Given = "rows"
    unit: str | None = None
    rows_per_unit: Annotated[int, Field(ge=1)] = 1
    own_rows: bool = False
    columns: tuple[ColumnRule, ...] = ()
    tables: tuple[tuple[str, Annotated[int, Field(ge=1)]], ...] = ()
    """Where several tables are counted: their names, and how many rows of a person in each."""

    def sentences(self, cap: int | None = None) -> tuple[str, ...]:
        """The rules in words, only those that apply, and that intervals do not cover them; none where there are none.

        Args:
            cap: on the number of rows, public; with more, answers may be far off.
        """
        others = {"codes": [CODES], "counts": [COUNTS], "labelled": [LABELLED, COUNTS]}
        found = self._rows() if self.given == "rows" else list(others[self.given])
        if cap is not None and cap < LARGE:
            what = "rows" if self.given == "rows" else "records"
            # Of several tables, a row is counted up to rows_per_unit times.
            most = f"{cap // self.rows_per_unit:,} {what} of a table" if self.tables else f"{cap:,} {what}"
            found.append(f"If more than {most} are counted, answers may be far off.")
        return (*found, ALONE) if found else ()

    def _unit(self, *, after: bool) -> str:
        """The cap on a person's rows, `after` others were left out."""
        caps = [f"{cap:,} row{'s' * (cap > 1)} of {name}" for name, cap in self.tables]
        many = self.rows_per_unit > 1 or len(caps) > 1
        most = ", ".join(caps) or f"{self.rows_per_unit:,}" + f" row{'s' * many}" * (not after)
        most = f"Of the rows that remain, at most {most}" if after else f"At most {most}"
        return (
            f"{most} of each {self.unit} {'are' if many else 'is'} counted, whatever a query asks for; where there are "
            "more, a fixed rule picks them as a lottery would, the same ones every time. So counts may be too low, and "
            f"other answers too low or too high. Rows whose {self.unit} is NULL are left out."
        )

    def _rows(self) -> list[str]:
        asked = [one for one in self.columns if one.asked]
        clipped = [f"{one.name} ({one.span})" for one in asked if one.clip]
        rounded = [f"{one.name} (to {_number(one.step)})" for one in asked if one.step is not None]
        dropping = [one.undeclared for one in self.columns if one.drop]
        keeping = [one.undeclared for one in asked if not one.drop]
        fractions = [one.name for one in asked if one.whole and not one.drop]
        kinds = {"number": int | float, "date": str}
        found = []
        if dropping:
            found.append(f"Left out: rows {_join_words(dropping, '; ')}.")
        if self.unit is not None:
            found.append(self._unit(after=bool(dropping)))
        if clipped:
            found.append(
                "Values outside their range count as the nearer end, also in conditions such as WHERE: "
                f"{_join_words(clipped)}."
            )
        if rounded:
            found.append(f"Values are rounded to the nearest step, also in conditions: {_join_words(rounded)}.")
        if keeping:
            apart = ", but in no"
            if self.own_rows:
                apart = " as “anything else” or “NULL”, where a table has such rows, and in no other"
            found.append(
                f"Counted{apart} group, sum, average or quantile of that column: rows {_join_words(keeping, '; ')}."
            )
        if not self.own_rows and any(not (one.drop or one.clip) for one in asked):
            found.append(
                "Conditions such as WHERE also see values that are not declared; functions such as LIKE see declared "
                "values only."
            )
        if fractions:
            found.append(
                "Values that are not whole numbers count in bins, quantiles and conditions, but in no sum, average or "
                f"group of a single number: {_join_words(fractions)}."
            )
        for kind, ends in kinds.items():
            if names := [one.name for one in self.columns if isinstance(one.low, ends)]:
                found.append(f"Values that are not {kind}s count as NULL: {_join_words(names)}.")
        return found

    def header(self) -> dict[str, Any]:
        """For files and digests: what is not the default."""
        held: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return held

    @classmethod
    def read(cls, content: Any) -> Counted:
        """From a file, where anything can stand; a `ValueError` says what is wrong."""
        return _adapter().validate_json(json.dumps(content))


@cache
def _adapter() -> TypeAdapter[Counted]:
    return TypeAdapter(Counted)


def what_is_counted(domain: Domain, asked: Collection[str], *, own_rows: bool = False) -> Counted:
    """The rules of a domain for a batch.

    Args:
        domain: what is public about the table.
        asked: the columns that the batch looks at.
        own_rows: whether its tables have rows for anything else and for NULL.
    """
    rules = tuple(
        _rule(name, column, asked=name in asked)
        for name, column in domain.columns.items()
        if name in asked or column.other == "drop"
    )
    privacy = domain.privacy
    caps = domain.declared.items() if isinstance(domain, Database) else ()
    return Counted(
        unit=privacy.unit,
        rows_per_unit=privacy.rows_per_unit,
        own_rows=own_rows and bool(rules),
        columns=rules,
        tables=tuple((name, own.privacy.rows_per_unit) for name, own in caps),
    )


def describe_counted(counted: Counted | None, cap: int | None = None) -> tuple[str, ...]:
    """The rules of a release in words; of one that was made before they were kept, that they are not known."""
    return (UNKNOWN, ALONE) if counted is None else counted.sentences(cap)


def _rule(name: str, column: Column, *, asked: bool) -> ColumnRule:
    rule = ColumnRule(name, drop=column.other == "drop", asked=asked)
    if isinstance(column, Listed):
        return rule
    if isinstance(column, Dates):
        first, last = column.dates
        return replace(rule, low=first.isoformat(), high=last.isoformat())
    low, high = column.ends()
    step = column.step if isinstance(column, Numbers) else None
    whole, clip = isinstance(column, Integers), column.outside is not None
    return replace(rule, low=low, high=high, whole=whole, step=step, clip=clip)


def _join_words(parts: Sequence[str], between: str = ", ") -> str:
    more = len(parts) - SHOWN
    return between.join(parts[:SHOWN]) + (f" (and {more:,} more such columns)" if more > 0 else "")


def _number(value: End | None) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
