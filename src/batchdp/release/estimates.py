"""What a release will take, before anything is charged."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchdp.errors import ReleaseError
from batchdp.ledger.ledger import LARGEST_OUTPUT
from batchdp.mechanism.measurement import Relation
from batchdp.mechanism.prepare import Mechanism, prepare
from batchdp.mechanism.sample import draws_a_second
from batchdp.plans import Plan
from batchdp.plans.planned import settle
from batchdp.privacy import Budget
from batchdp.release.file import MOST_KEPT
from batchdp.strategies.strategy import Strategy

ROW_BYTES = 24
"""Of an answer in a Parquet file, as a rule."""
NUMBERS = 6
"""Arrays of a table's size that are held while it is written."""
COMPONENT_BYTES = 1000
"""Of a component in a certificate, at the most."""
BASE = 300_000_000
"""Bytes that Python and its libraries take."""


@dataclass(frozen=True)
class Estimate:
    """How much there is to draw, hold, write and wait for."""

    components: int
    measurements: int
    answers: int
    memory: int
    """Bytes, at the most."""
    stored: int
    """Bytes beside the ledger."""
    exported: int
    """Bytes of Parquet files, roughly."""
    seconds: float
    """To draw the noise on this machine's cores, roughly."""

    def __str__(self) -> str:
        return (
            f"{self.measurements:,} measurements in {self.components:,} component{'s' * (self.components != 1)}, "
            f"{self.answers:,} answers; about {self.memory / 1e9:.1f} GB of memory, "
            f"{self.stored / 1e6:,.0f} MB beside the ledger, {self.exported / 1e6:,.0f} MB as Parquet, "
            f"{self.seconds:,.0f} s to draw the noise"
        )


def estimate_of(made: Mechanism) -> Estimate:
    """For what is about to be released."""
    measurement: Any = made.measurement
    measurements, answers = int(measurement.sizes.sum()), int(measurement.workload.queries)
    shape = getattr(measurement, "shape", None)
    seconds = measurements / draws_a_second(made.noise) / (os.cpu_count() or 1) if shape is None else shape.seconds
    return Estimate(
        components=len(made.noises),
        measurements=measurements,
        answers=answers,
        memory=BASE + 16 * measurements + 8 * NUMBERS * measurement.largest_part,  # noise, and the bytes of the output
        stored=8 * (measurements + 2 * answers * (answers <= MOST_KEPT)),
        exported=ROW_BYTES * answers,
        seconds=seconds,
    )


def estimate(
    planned: Plan | Strategy,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
) -> Estimate:
    """What `answer` with the same arguments will draw, hold and write. No data is read, and nothing is charged.

    Args:
        planned: the plan or strategy that would be released.
        epsilon, rho, neighbours, rows_per_unit, max_rows: as in `answer`.
    """
    strategy, whose, cap = settle(planned, neighbours, rows_per_unit, max_rows)
    return estimate_of(prepare(strategy, whose, Budget.of(strategy.noise, epsilon=epsilon, rho=rho), cap))


def check_fits(needed: Estimate, ledger: Path) -> None:
    """Refuse what this machine cannot hold, before anything is charged."""
    have = _memory()
    if have is not None and needed.memory > have:
        raise ReleaseError(
            f"the release needs about {needed.memory / 1e9:.1f} GB of memory and {have / 1e9:.1f} GB are free "
            f"({needed}); ask for fewer tables, or of fewer columns"
        )
    free = shutil.disk_usage(ledger.parent).free
    if needed.stored > free:
        raise ReleaseError(
            f"the release needs {needed.stored / 1e9:.1f} GB beside {str(ledger)!r} and {free / 1e9:.1f} GB are free; "
            "free some space, or ask for fewer tables"
        )
    if needed.stored + COMPONENT_BYTES * needed.components > LARGEST_OUTPUT:
        raise ReleaseError(
            f"the release has {needed.measurements:,} measurements, more than the {LARGEST_OUTPUT / 1e9:.0f} GB "
            "that a ledger stores of one release; ask for fewer tables, or of fewer columns"
        )


def _memory() -> int | None:
    """Bytes that are free, where the system says so."""
    with suppress(OSError, ValueError, IndexError), Path("/proc/meminfo").open() as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), None)
    return None
