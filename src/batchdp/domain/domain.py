"""The domain file: TOML, checked entry by entry, with errors that show the key and a line that works."""

from __future__ import annotations

import os
import re
import tomllib
from datetime import date
from math import lcm
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_serializer, model_validator

from batchdp.archive import read_text
from batchdp.domain.columns import Column, check_name, fold
from batchdp.domain.lookups import Lookup
from batchdp.errors import DomainError

LARGEST_FILE = 10_000_000
"""Bytes."""
TOO_LARGE = "declare ranges instead of long lists"
MOST_COLUMNS = 1000
MOST_LOOKUPS = 50
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
    "groups": 'groups = "all"',
    "step": "range = [0, 100_000] ⏎ step = 0.01",
    "outside": 'range = [0, 100_000] ⏎ step = 0.01 ⏎ outside = "clip"',
    "lookups": '[lookups.clinics]\nfile = "clinics.csv"\nkey = "id"\ncolumns = ["region"]',
    "tables": '[privacy]\nunit = "patient_id"\n[tables.visits]\nrows_per_unit = 5\n'
    '[tables.visits.columns.clinic]\nvalues = ["c1", "c2"]',
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
    """The column with one value per person; every row is a person if left out."""
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
    lookups: dict[str, Lookup] = Field(default={}, max_length=MOST_LOOKUPS, exclude_if=lambda given: not given)
    """Public tables by name: what declared values mean."""

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

    @field_validator("lookups")
    @classmethod
    def _check_lookups(cls, lookups: dict[str, Lookup]) -> dict[str, Lookup]:
        if len({fold(check_name(name)) for name in lookups}) < len(lookups):
            raise ValueError("two names are the same to SQL; keep one")
        return lookups

    @model_validator(mode="after")
    def _check_groupings(self) -> Domain:
        if fold(self.table) in map(fold, self.lookups):
            raise ValueError(f"lookups: {self.table} is the table itself; call the lookup something else")
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


MOST_TABLES = 20
LONGEST_LIST = 500
"""Characters of all tables' names together, which certificates hold."""
LARGEST_CAP = 2**20
"""Of a person's rows, and of the least number that all caps divide."""


class _Shared(BaseModel):
    """Whose privacy is protected, in all tables of a domain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: str
    neighbours: Literal["add-remove", "replace"] = "add-remove"


class _Declared(BaseModel):
    """What a domain of several tables says of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: str | None = None
    rows_per_unit: int = Field(default=1, ge=1, le=LARGEST_CAP, strict=True)
    max_rows: int | None = Field(default=None, ge=1, le=10**15, strict=True)
    columns: dict[str, Any] = Field(min_length=1, max_length=MOST_COLUMNS)


class _Several(BaseModel):
    """A domain file of several tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    privacy: _Shared
    tables: dict[str, _Declared] = Field(min_length=1, max_length=MOST_TABLES)
    lookups: dict[str, Lookup] = Field(default={}, max_length=MOST_LOOKUPS)


class Database(Domain):
    """The public description of several tables with rows of the same persons.

    A person has at most `rows_per_unit` rows in each table, the table's cap. Let C be the least number that all caps
    divide (or 2^20, where that is less). A row of a table with cap c is counted t = ⌊C / c⌋ times, and adds 1 / t to an
    answer each time; so a person adds at most C to the counts of every table, as C rows would that lie in a cell of
    each: `privacy.rows_per_unit` is C.
    """

    tables: dict[str, Domain]
    """Each as a domain of its own, in the order of the file; behind them relations that are made of them."""
    relations: tuple[Any, ...] = ()
    """What else a batch counts (`domain.relations`); none in a file."""

    @property
    def declared(self) -> dict[str, Domain]:
        """The tables without the relations."""
        made = {one.name for one in self.relations}
        return {name: own for name, own in self.tables.items() if name not in made}

    @property
    def times(self) -> dict[str, int]:
        """How many times a row of every table is counted."""
        return {name: self.privacy.rows_per_unit // own.privacy.rows_per_unit for name, own in self.tables.items()}

    @model_serializer
    def _as_file(self) -> dict[str, Any]:
        shared = {"unit": self.privacy.unit, "neighbours": self.privacy.neighbours}
        tables = {name: _as_declared(own) for name, own in self.declared.items()}
        lookups = {name: one.model_dump(mode="json", exclude_none=True) for name, one in self.lookups.items()}
        return {"privacy": shared, "tables": tables, **({"lookups": lookups} if lookups else {})}


def _as_declared(table: Domain) -> dict[str, Any]:
    held = table.privacy.model_dump(mode="json", include={"unit", "rows_per_unit", "max_rows"}, exclude_none=True)
    return {**held, "columns": table.model_dump(mode="json", include={"columns"}, exclude_none=True)["columns"]}


def _database(given: dict[str, Any], source: str) -> Database:
    """A domain of several tables, each checked as a domain of one."""
    file = _Several.model_validate(given)
    tables: dict[str, Domain] = {}
    for name, own in file.tables.items():
        privacy = {**file.privacy.model_dump(), **own.model_dump(exclude={"columns"}, exclude_none=True)}
        # Errors of a table are those of a domain of one, behind its name.
        tables[name] = _checked({"table": name, "privacy": privacy, "columns": own.columns}, f"{source}: tables.{name}")
    if len({fold(name) for name in (*tables, *file.lookups)}) < len(tables) + len(file.lookups):
        raise DomainError(f"{source}: tables: two names are the same to SQL; keep one")
    if len(" + ".join(tables)) > LONGEST_LIST:
        raise DomainError(f"{source}: tables: their names have more than {LONGEST_LIST} characters; use shorter ones")
    together = lcm(*(own.privacy.rows_per_unit for own in tables.values()))
    if together > LARGEST_CAP:
        raise DomainError(
            f"{source}: tables: the least number that every rows_per_unit divides is {together:,}, more than "
            f"{LARGEST_CAP:,}; choose caps that divide one another, like 1, 5 and 20"
        )
    shared = Domain.model_construct(
        privacy=Protection(unit=file.privacy.unit, neighbours=file.privacy.neighbours), lookups=file.lookups
    )
    return database_of(tables, shared)


def database_of(tables: dict[str, Domain], like: Domain, relations: tuple[Any, ...] = ()) -> Database:
    """Several tables, some of which may be relations made of others, with the unit and neighbours of a domain."""
    together = min(lcm(*(own.privacy.rows_per_unit for own in tables.values())), LARGEST_CAP)
    caps = [own.privacy.max_rows for own in tables.values()]
    times = [together // own.privacy.rows_per_unit for own in tables.values()]
    most = None if None in caps else max(cap * many for cap, many in zip(caps, times, strict=True) if cap is not None)
    most = None if most is None else min(most, 10**15)
    made = {one.name for one in relations}
    declared = {name: own for name, own in tables.items() if name not in made}
    return Database.model_construct(
        table=" + ".join(declared),
        privacy=Protection(
            unit=like.privacy.unit, rows_per_unit=together, neighbours=like.privacy.neighbours, max_rows=most
        ),
        columns={f"{table}.{name}": column for table, own in declared.items() for name, column in own.columns.items()},
        tables=tables,
        relations=relations,
        lookups=like.lookups,
    )


def load_domain(path: str | os.PathLike[str], *, start: date | None = None) -> Domain:
    """Read the domain in a TOML file.

    Args:
        path: the file.
        start: the day on which dates that are given as a first day and months begin; as in the file if left out.
    """
    text = read_text(path, "the domain file ", LARGEST_FILE, TOO_LARGE, DomainError)
    return read_domain(text, source=str(path), start=start, folder=Path(path).parent)


def _move_dates(given: dict[str, Any], start: date, source: str) -> dict[str, Any]:
    """A domain whose columns with dates = {first = …, months = …}, in whichever table, begin at another day."""
    found = 0

    def move(part: Any) -> Any:
        nonlocal found
        if not isinstance(part, dict):
            return part
        if isinstance(dates := part.get("dates"), dict) and "months" in dates:
            found += 1
            return {**part, "dates": {**dates, "first": start}}
        return {key: move(one) for key, one in part.items()}

    moved: dict[str, Any] = move(given)
    if not found:
        raise DomainError(
            f"{source} has no column whose dates can be moved; write them as "
            'dates = {first = "2024-01-01", months = 24}'
        )
    return moved


def read_domain(text: str, *, source: str = "domain", start: date | None = None, folder: Path | None = None) -> Domain:
    """The domain in a TOML text; `source` names it in errors, `start` is as in `load_domain`; lookups are looked for
    in a folder."""
    if len(text) > LARGEST_FILE:
        raise DomainError(f"{source} is larger than {LARGEST_FILE // 10**6} MB; {TOO_LARGE}")
    if LONG_KEY.search(text):
        raise DomainError(f"{source} holds a key of very many parts; it should look like: {_show_example('columns')}")
    try:
        given = tomllib.loads(text)
        given = _within(folder, given)
        return as_domain(given if start is None else _move_dates(given, start, source), source=source)
    except DomainError:
        raise
    except ValueError as error:  # TOMLDecodeError, and integers of thousands of digits
        raise DomainError(f"{source} is not TOML: {error}; it should look like: {_show_example('columns')}") from error
    except RecursionError as error:
        raise DomainError(f"{source} is nested too deeply; it should look like: {_show_example('columns')}") from error


def _within(folder: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """A domain whose lookups are files beside its own."""
    lookups = given.get("lookups")
    if folder is None or not isinstance(lookups, dict):
        return given
    found = {
        name: {**one, "file": str(folder / one["file"])}
        if isinstance(one, dict) and isinstance(one.get("file"), str)
        else one
        for name, one in lookups.items()
    }
    return {**given, "lookups": found}


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
    return _checked(given, source)


def _checked(given: dict[str, Any], source: str) -> Domain:
    try:
        return _database(given, source) if "tables" in given else Domain.model_validate(given)
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
        return ("table", "privacy", "columns", "lookups")
    if place[0] == "tables":
        return tuple(_Declared.model_fields)
    if place[0] == "lookups":
        return ("file", "key", "columns")
    if place[0] == "privacy":
        return tuple(Protection.model_fields)
    return ("values", "range", "integers", "dates", "bins", "groupings", "groups", "other", "step", "outside")


def _show_example(key: str) -> str:
    return EXAMPLES[key].replace("\n", " ⏎ ")
