"""The domain file: TOML, checked entry by entry, with errors that show the key and a line that works."""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from batchdp.archive import read_text
from batchdp.domain.columns import Column, check_name, fold
from batchdp.errors import DomainError

LARGEST_FILE = 10_000_000
"""Bytes."""
TOO_LARGE = "declare ranges instead of long lists"
MOST_COLUMNS = 1000
LONG_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++\s*+\.\s*+){100}""")
"""Names joined by dots, which take time by the square of their number to read."""

EXAMPLES = {
    "table": 'table = "patients"',
    "privacy": '[privacy]\nunit = "patient_id"\nrows_per_unit = 1\nneighbours = "add-remove"\nmax_rows = 10_000_000',
    "unit": 'unit = "patient_id"',
    "rows_per_unit": "rows_per_unit = 1",
    "neighbours": 'neighbours = "add-remove"',
    "max_rows": "max_rows = 10_000_000",
    "columns": '[columns.state]\nvalues = ["NY", "NJ"]',
    "values": 'values = ["NY", "NJ"]',
    "range": "range = [0, 120]",
    "integers": "integers = [0, 12]",
    "dates": 'dates = ["2020-01-01", "2025-12-31"]',
    "bins": "bins = [0, 18, 40, 65]",
    "groupings": "[columns.age.groupings] ⏎ age_five = [0, 5, 10, 15]",
    "other": 'other = "drop"',
    "step": "range = [0, 100_000] ⏎ step = 0.01",
    "outside": 'range = [0, 100_000] ⏎ step = 0.01 ⏎ outside = "clip"',
}
"""A line that works, for every key."""
STRAY = {
    "step": "only a column with range has a step; whole numbers (integers) have steps of 1",
    "outside": "only a column with integers, or with range and step, can be clipped",
}
"""What to say of keys that belong to other columns."""


class Protection(BaseModel):
    """Whose privacy is protected, and how much of a table one of them can be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: str | None = None
    """The column with one value a person; every row is a person if left out."""
    rows_per_unit: int = Field(default=1, ge=1, le=2**20, strict=True)
    neighbours: Literal["add-remove", "replace"] = "add-remove"
    max_rows: int | None = Field(default=None, ge=1, le=10**15, strict=True)

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, unit: str | None) -> str | None:
        return None if unit is None else check_name(unit)

    @model_validator(mode="after")
    def _check(self) -> Protection:
        if self.unit is None and self.rows_per_unit > 1:
            raise ValueError("rows_per_unit is above 1 but no unit says whose rows they are; add unit")
        return self


class Domain(BaseModel):
    """A table's public description; nothing in it comes from the data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    """The name that the SQL uses."""
    privacy: Protection = Protection()
    columns: dict[str, Column] = Field(min_length=1, max_length=MOST_COLUMNS)

    @field_validator("table")
    @classmethod
    def _check_table(cls, table: str) -> str:
        return check_name(table)

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, str] = {}
        for name in columns:
            check_name(name)
            if fold(name) in seen:
                raise ValueError(f"{name!r} and {seen[fold(name)]!r} are the same name to SQL; keep one")
            seen[fold(name)] = name
        return columns

    @model_validator(mode="after")
    def _check_groupings(self) -> Domain:
        taken = {fold(name): f"the column {name}" for name in self.columns}
        if self.privacy.unit is not None:
            taken.setdefault(fold(self.privacy.unit), "the privacy unit")
        for name, column in self.columns.items():
            for grouping in column.groupings or ():
                if fold(grouping) in taken:
                    raise ValueError(f"the grouping {grouping!r} of {name} has the name of {taken[fold(grouping)]}")
                taken[fold(grouping)] = f"a grouping of {name}"
        return self

    def column(self, name: str) -> str | None:
        """The declared column of this name, upper or lower case, or None."""
        return next((declared for declared in self.columns if fold(declared) == fold(name)), None)


def load_domain(path: str | os.PathLike[str]) -> Domain:
    """The domain in a TOML file."""
    text = read_text(path, "the domain file ", LARGEST_FILE, TOO_LARGE, DomainError)
    return read_domain(text, source=str(path))


def read_domain(text: str, *, source: str = "domain") -> Domain:
    """The domain in a TOML text; `source` names it in errors."""
    if len(text) > LARGEST_FILE:
        raise DomainError(f"{source} is larger than {LARGEST_FILE // 10**6} MB; {TOO_LARGE}")
    if LONG_KEY.search(text):
        raise DomainError(f"{source} holds a key of very many parts; it should look like: {_show_example('columns')}")
    try:
        return as_domain(tomllib.loads(text), source=source)
    except DomainError:
        raise
    except ValueError as error:  # TOMLDecodeError, and integers of thousands of digits
        raise DomainError(f"{source} is not TOML: {error}; it should look like: {_show_example('columns')}") from error
    except RecursionError as error:
        raise DomainError(f"{source} is nested too deeply; it should look like: {_show_example('columns')}") from error


def as_domain(given: Domain | dict[str, Any] | str | os.PathLike[str], *, source: str = "domain") -> Domain:
    """The domain itself, or one made from a dictionary, a TOML text or a path."""
    if isinstance(given, Domain):
        return given
    if isinstance(given, str) and ("\n" in given or "=" in given):
        return read_domain(given, source=source)
    if isinstance(given, (str, os.PathLike)):
        return load_domain(given)
    if not isinstance(given, dict):
        raise DomainError(f"domain is a {type(given).__name__}; give a path, TOML text, dictionary or Domain")
    try:
        return Domain.model_validate(given)
    except ValidationError as error:
        raise DomainError(f"{source}: {_explain(error)}") from None
    except RecursionError as error:
        raise DomainError(f"{source} is nested too deeply; it should look like: {_show_example('columns')}") from error


def _explain(error: ValidationError) -> str:
    """The first complaint: the key, what is wrong, and a line that works."""
    first = error.errors(include_url=False)[0]
    place = [str(part) for part in first["loc"] if not _is_tag(part, first["loc"])]
    message = first["msg"].removeprefix("Value error, ")
    blamed = re.split(r"\W", message, maxsplit=1)[0]
    known = next((part for part in (blamed, *reversed(place)) if part in EXAMPLES), "columns")
    if first["type"] in ("bool_type", "int_type", "string_type") and "values" in place:
        message = f"{first['input']!r} is not a text, a whole number or a boolean; declare numbers as range"
        place = place[: place.index("values") + 2]
    if first["type"] == "extra_forbidden":
        message = STRAY.get(place[-1]) or f"unknown key; known here: {', '.join(_siblings(place))}"
    more = "" if error.error_count() == 1 else f" (and {error.error_count() - 1} more)"
    return f"{'.'.join(place) or 'file'}: {message}{more}; for example: {_show_example(known)}"


def _is_tag(part: Any, place: tuple[Any, ...]) -> bool:
    """Pydantic puts the kind of column into the path, behind the column's name."""
    return len(place) > 2 and place[0] == "columns" and part is place[2]


def _siblings(place: list[str]) -> tuple[str, ...]:
    if len(place) == 1:
        return ("table", "privacy", "columns")
    if place[0] == "privacy":
        return tuple(Protection.model_fields)
    return ("values", "range", "integers", "dates", "bins", "groupings", "other", "step", "outside")


def _show_example(key: str) -> str:
    return EXAMPLES[key].replace("\n", " ⏎ ")
