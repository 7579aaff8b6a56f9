"""Published figures: root mean squared errors a query or largest variances, with their sources.

At ρ = ½ for Gaussian noise and ε = √2 for Laplace noise, where a measurement of sensitivity 1 has a variance of 1.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import nan

from batchdp.privacy import GAUSSIAN, LAPLACE, Noise

NOISES: dict[str, Noise] = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
RMSE, LARGEST = "rmse", "largest variance"


@dataclass(frozen=True, order=True)
class Task:
    """A batch to plan."""

    batch: str
    noise: str
    """A name of `NOISES`."""
    measure: str
    """What is minimised, and compared."""


@dataclass(frozen=True)
class Figure:
    """What somebody publishes."""

    task: Task
    printed: str
    """With as many digits as were published."""
    seconds: float
    program: str
    year: int
    source: str

    @property
    def value(self) -> float:
        """The figure as a number."""
        return float(self.printed)

    @property
    def rounding(self) -> float:
        """Half a unit of its last digit."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2])


@cache
def published() -> tuple[Figure, ...]:
    """All of them."""
    text = files(__package__).joinpath("figures.csv").read_text(encoding="utf-8")
    return tuple(
        Figure(
            Task(row["batch"], row["noise"], row["measure"]),
            row["value"],
            float(row["seconds"] or nan),
            row["program"],
            int(row["year"]),
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    )
