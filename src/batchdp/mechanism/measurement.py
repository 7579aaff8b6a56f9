"""What is measured, in whole numbers, as everything that handles it sees it; and what two neighbouring tables may
differ by. It knows no data.

A new kind of measurement is a class with the members of `IntegerMeasurement`, a line in `quantise` that says which
strategy becomes one, and functions for `measure` and for `read`, each registered where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.linalg.matrix import Dense

if TYPE_CHECKING:
    from batchdp.privacy import Noise


Integers = NDArray[np.int64]

LARGEST = 2**61
"""Measurements are clamped to this magnitude, which leaves noise its room in 64 bits."""


def check_cap(largest_total: int) -> int:
    """A public cap on the number of records, checked."""
    if isinstance(largest_total, bool) or not isinstance(largest_total, (int, np.integer)) or largest_total < 1:
        raise LatticeError(f"largest_total={largest_total!r} must be a whole number of at least 1: a public cap")
    return int(largest_total)


def check_room(largest: int, cap: int) -> None:
    """Refuse where a measurement of as many records as the cap allows could leave 61 bits, by its largest integer."""
    if largest * cap > LARGEST:
        raise LatticeError(
            f"largest_total={cap} leaves too few bits for the measurements; lower the public cap max_rows to at most "
            f"{LARGEST // largest}"
        )


@dataclass(frozen=True)
class OneNoise:
    """Measurements that are drawn with one noise; every kind of group says as much of itself."""

    moved: int
    """Δ to the power of the noise's norm, exactly: how much one record can change all of the group together."""
    bits: int
    """Measuring 1 is about 2^bits."""
    share: Fraction | float = Fraction(1)
    """Of the budget."""
    columns: tuple[int, ...] = ()
    """That are looked at, by their numbers; none where a measurement is of cells."""


class IntegerMeasurement(Protocol):
    """Integer measurements of a batch, in groups that have a noise each, one group after the other."""

    @property
    def noise(self) -> Noise:
        """The kind of noise that sensitivities are for."""

    @property
    def groups(self) -> Any:
        """The groups, each with what `OneNoise` has, to be gone through and counted; some are made when looked at."""

    @property
    def sizes(self) -> Integers:
        """How many measurements every group has."""

    @property
    def largest_total(self) -> int:
        """The public cap on the number of records that no measurement can overflow at."""

    @property
    def slack(self) -> float:
        """Of every share: room for what privacy maps round up, where many groups add up."""

    def reader(self, scales: Dense) -> Any:
        """How answers are read from measurements with noise of these scales, and how far they can be off."""

    def worst_bias(self, reader: Any) -> tuple[float, str]:
        """The most that an answer is off apart from noise, as a share of its standard error; and which one it is."""


@dataclass(frozen=True)
class GroupNoise:
    """The noise of one group of measurements."""

    moved: int
    """Δ of two neighbours to the power of the noise's norm, exactly; the columns of one unit where a body has them."""
    scale: float
    """λ or σ in lattice steps, or in bodies."""
    loss: float
    """Its ε or ρ, rounded up: OpenDP's privacy map of the sensitivity."""


NOTHING = GroupNoise(0, 0.0, 0.0)
"""Of a group that measures nothing."""


def total_loss(noises: Sequence[GroupNoise]) -> Fraction:
    """What all groups lose, exactly."""
    return sum((Fraction(noise.loss) for noise in noises), Fraction(0))


# ── what two neighbouring tables may differ by ──

Relation = Literal["add-remove", "replace"]

EVERY_ROW = "every row is a person"
"""What a release says where no column tells persons apart."""
CALLER = "as the caller counted"
"""How it begins where the counts were given, and batchdp saw no rows."""


def describe_neighbours(privacy_unit: str) -> str:
    """Whose privacy it is, as a sentence goes on after a colon."""
    if privacy_unit == EVERY_ROW or privacy_unit.startswith(CALLER):
        return privacy_unit
    return f"whoever is behind one value of {privacy_unit}"


MOST_ROWS = 2**20
"""That a privacy unit can have."""


@dataclass(frozen=True)
class Neighbours:
    """One privacy unit with at most `rows_per_unit` rows is added or removed, or replaced by another.

    Each row moves the measurements by at most the lattice's sensitivity. Replacing takes rows away and brings as many
    others, so it can move them twice as far.
    """

    relation: Relation = "add-remove"
    rows_per_unit: int = 1
    column: str | None = None
    """With one value per unit, or `EVERY_ROW`; None where the caller counted, who alone knows."""
    tables: tuple[tuple[str, int], ...] = ()
    """Of several tables, how many rows a unit has in each; `rows_per_unit` is the least number that all of these
    divide, or `MOST_ROWS` where that is less, and a row of a table counts as often as its own goes into it
    (`domain.Database`)."""

    def __post_init__(self) -> None:
        if self.relation not in ("add-remove", "replace"):
            raise PrivacyParameterError(f'neighbours={self.relation!r} must be "add-remove" or "replace"')
        rows = self.rows_per_unit
        if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= MOST_ROWS:
            raise PrivacyParameterError(f"rows_per_unit={rows!r} must be a whole number from 1 to {MOST_ROWS}")
        if any(cap > rows or (rows % cap and rows < MOST_ROWS) for _, cap in self.tables):
            raise PrivacyParameterError(f"rows_per_unit={rows!r} must be a multiple of every table's, or {MOST_ROWS}")

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
        most = f"{change} one unit of at most {self.rows_per_unit} row{'s' if self.rows_per_unit > 1 else ''}"
        apart = ", ".join(f"{cap} of {name}" for name, cap in self.tables)
        return f"{most} ({apart})" if apart else most
