"""How much a record adds to a query's answer."""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.queries.conditions import Condition


@dataclass(frozen=True)
class Constant:
    """The same number for every record."""

    number: float


@dataclass(frozen=True)
class ValueOf:
    """The number in a column with declared integers or a step; 0 for NULL and for anything else."""

    column: str
    counted: bool = False
    """1 in the place of the number: how many numbers a sum has."""


@dataclass(frozen=True)
class Choice:
    """One amount where the condition is true, another where it is false or unknown."""

    condition: Condition
    then: Amount
    otherwise: Amount


@dataclass(frozen=True)
class Scaled:
    """A multiple of an amount."""

    factor: float
    amount: Amount


@dataclass(frozen=True)
class Total:
    """The sum of amounts."""

    amounts: tuple[Amount, ...]


Amount = Constant | ValueOf | Choice | Scaled | Total
