"""Public lookups: what a declared value means, from a CSV file that is read with the domain, and never in an engine."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from batchdp.archive import read_text
from batchdp.domain.columns import check_name, check_text, fold, label
from batchdp.errors import DomainError

LARGEST_FILE = 10_000_000
"""Bytes."""
MOST_ROWS = 100_000
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,15})?")
"""As it is written: 007 is a text."""


class Lookup(BaseModel):
    """A public CSV file with one row for each value of a declared column."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    key: str
    """The column with the declared values, each once."""
    columns: tuple[str, ...] = Field(min_length=1, max_length=100)
    """Those that queries may use."""
    digest: str | None = None
    """SHA-256 of the file as it was read."""
    rows: tuple[tuple[str | None, ...], ...] | None = Field(default=None, max_length=MOST_ROWS)
    """Key and columns of every row, so that a plan needs no file; None for an empty field."""

    @field_validator("key", "columns")
    @classmethod
    def _check_names(cls, names: Any) -> Any:
        for name in [names] if isinstance(names, str) else names:
            check_name(name)
        return names

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("rows") is not None:
            return given
        if not isinstance(given.get("file"), str) or not isinstance(given.get("key"), str):
            return given  # which is refused for that
        try:
            text = read_text(
                given["file"], "the lookup ", LARGEST_FILE, "keep only the rows that are needed", DomainError
            )
        except DomainError as error:
            raise ValueError(f"file: {error}") from None
        digest = hashlib.sha256(text.encode()).hexdigest()
        names = [given["key"], *(one for one in given.get("columns") or () if isinstance(one, str))]
        return {**given, "digest": digest, "rows": _taken(text, names, given["file"])}

    @model_validator(mode="after")
    def _check(self) -> Lookup:
        folded = [fold(name) for name in (self.key, *self.columns)]
        if len(set(folded)) < len(folded):
            raise ValueError("columns: two names are the same to SQL; keep one")
        seen: set[str] = set()
        for row in self.rows or ():
            if len(row) != len(folded):
                raise ValueError("rows: each needs the key and one field for each column")
            if row[0] in seen:
                raise ValueError(f"key: {row[0]!r} stands in {self.file} twice, so rows would multiply; keep one row")
            seen |= set() if row[0] is None else {row[0]}
            for text in row:
                if text is not None:
                    check_text(text)
        return self

    def values(self, column: str) -> dict[str, str | Fraction | None]:
        """What every key means in a column: numbers where all fields are, else texts; None for an empty field."""
        place = 1 + self.columns.index(column)
        found = {row[0]: row[place] for row in self.rows or () if row[0] is not None}
        numbers = all(_NUMBER.fullmatch(text) for text in found.values() if text is not None)
        return {key: text if text is None or not numbers else Fraction(text) for key, text in found.items()}

    @property
    def keys(self) -> frozenset[str]:
        """The declared values that have a row, as texts."""
        return frozenset(row[0] for row in self.rows or () if row[0] is not None)


def key_of(value: Any) -> str:
    """A declared value as a lookup's key is written."""
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else ""
    return label(value)


def _taken(text: str, names: list[str], file: str) -> list[list[str | None]]:
    """The wanted columns of a CSV text."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(rows, [])
        places = []
        for name in names:
            same = [i for i, own in enumerate(header) if fold(own) == fold(name)]
            if len(same) != 1:
                raise ValueError(f"file: {file} has {'no' if not same else 'more than one'} column {name!r}")
            places.append(same[0])
        found = []
        for number, row in enumerate(rows, 2):
            if row and len(row) != len(header):
                raise ValueError(f"file: line {number} of {file} has {len(row)} fields, the first line {len(header)}")
            if row:
                found.append([row[place] or None for place in places])
    except csv.Error as error:
        raise ValueError(f"file: {file} is not CSV: {error}") from None
    return found
