"""What two neighbouring tables may differ by: whose privacy is protected, and how much of a table that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchdp.errors import PrivacyParameterError

Relation = Literal["add-remove", "replace"]

EVERY_ROW = "every row is a person"
"""What a release says where no column tells persons apart."""
CALLER = "as the caller counted"
"""How it begins where the counts were given, and batchdp saw no rows."""


def in_words(privacy_unit: str) -> str:
    """Whose privacy it is, as a sentence goes on after a colon."""
    if privacy_unit == EVERY_ROW or privacy_unit.startswith(CALLER):
        return privacy_unit
    return f"one person is one value of {privacy_unit}"


@dataclass(frozen=True)
class Neighbours:
    """One privacy unit with at most `rows_per_unit` rows is added or removed, or replaced by another.

    Each row moves the measurements by at most the lattice's sensitivity. Replacing takes rows away and brings as many
    others, so it can move them twice as far.
    """

    relation: Relation = "add-remove"
    rows_per_unit: int = 1
    column: str | None = None
    """With one value a unit, or `EVERY_ROW`; None where the caller counted, who alone knows."""

    def __post_init__(self) -> None:
        if self.relation not in ("add-remove", "replace"):
            raise PrivacyParameterError(f'neighbours={self.relation!r} must be "add-remove" or "replace"')
        rows = self.rows_per_unit
        if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 2**20:
            raise PrivacyParameterError(f"rows_per_unit={rows!r} must be a whole number from 1 to {2**20}")

    @property
    def factor(self) -> int:
        """How many times a single row's sensitivity neighbours differ by at the most."""
        return self.rows_per_unit * (2 if self.relation == "replace" else 1)

    @property
    def privacy_unit(self) -> str:
        """Whose privacy it is, for certificates and ledgers."""
        if self.column is not None:
            return self.column
        return f"{CALLER}, at most {self.rows_per_unit} record{'s' * (self.rows_per_unit > 1)} a person"

    def __str__(self) -> str:
        change = "replacing" if self.relation == "replace" else "adding or removing"
        return f"{change} one unit of at most {self.rows_per_unit} row{'s' if self.rows_per_unit > 1 else ''}"
