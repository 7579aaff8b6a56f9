"""What a release of tables will take, before anything is charged."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from batchdp.errors import ReleaseError
from batchdp.ledger.ledger import LARGEST_OUTPUT
from batchdp.mechanism.components.drawing import draws_a_second
from batchdp.mechanism.components.preparing import Prepared, prepare
from batchdp.mechanism.neighbours import Relation
from batchdp.plans.settling import given_neighbours, of_tables
from batchdp.plans.tabled import TablePlan
from batchdp.privacy import Budget
from batchdp.strategies.over_tables import OverTables

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
            f"{self.measurements:,} measurements in {self.components:,} components, {self.answers:,} answers; about "
            f"{self.memory / 1e9:.1f} GB of memory, {self.stored / 1e6:,.0f} MB beside the ledger, "
            f"{self.exported / 1e6:,.0f} MB as Parquet, {self.seconds:,.0f} s to draw the noise"
        )


def estimated(prepared: Prepared) -> Estimate:
    """For what is about to be released."""
    batch, measurements = prepared.lattice.workload, prepared.lattice.measurements
    largest = max(float(batch.table_sizes().max(initial=0)), float(prepared.lattice.largest_part))
    return Estimate(
        components=len(prepared.noises),
        measurements=measurements,
        answers=batch.queries,
        memory=BASE + 16 * measurements + 8 * NUMBERS * int(largest),  # noise, and the bytes that are stored
        stored=8 * measurements,
        exported=ROW_BYTES * batch.queries,
        seconds=measurements / draws_a_second(prepared.noise) / (os.cpu_count() or 1),
    )


def estimate(
    strategy: TablePlan | OverTables,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
) -> Estimate:
    """What `answer` with the same arguments will draw, hold and write; no data is read, nothing is charged."""
    strategy, neighbours, rows_per_unit, max_rows = of_tables(strategy, neighbours, rows_per_unit, max_rows)
    if not isinstance(strategy, OverTables):
        raise ReleaseError(
            f"strategy is a {type(strategy).__name__}; estimates are for Components and WeightedTables, from optimize"
        )
    budget = float(Budget.of(strategy.noise, epsilon=epsilon, rho=rho))
    return estimated(prepare(strategy, given_neighbours(neighbours, rows_per_unit), budget, max_rows))


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
            f"the release has {needed.measurements:,} measurements, more than the {LARGEST_OUTPUT / 1e9:.0f} GB of one "
            "that a ledger stores; ask for fewer tables, or of fewer columns"
        )


def _memory() -> int | None:
    """Bytes that are free, where the system says so."""
    try:
        with Path("/proc/meminfo").open() as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
