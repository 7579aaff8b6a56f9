"""How the table behind a plan of tables is counted: all combinations at once, or each table in the engine.

With many columns nearly every record is a combination of its own; then far less is moved where the engine counts the
tables. Which way is taken depends on what is public: the sizes of columns and tables, and the cap on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.asking import TableBatch
from batchdp.components.strategy import ResidualStrategy, WholeParts
from batchdp.errors import ReleaseError
from batchdp.plans import Plan
from batchdp.plans.encoding import CellBatch
from batchdp.private import CellCounts, Counts, Records, Tallies
from batchdp.progress import Progress
from batchdp.strategies.strategy import Strategy
from batchdp.weighted.strategy import MarginalStrategy

Sets = tuple[tuple[int, ...], ...]
"""Of columns: one for every table."""

MOST_SETS = 300
"""Tables that an engine counts in one query."""
MOST_LOOKED = 3000
"""Tables among which the largest are looked for."""
MOST_TOGETHER = 25_000
"""Cells of a table that several are read from: an engine goes through all records for each that it counts."""
FEW = 100_000
"""Combinations that are moved in no time."""
ROWS = 10_000_000
"""That a table is taken to have where its domain has no cap."""


@singledispatch
def reading(batch: Any, plan: Plan, tables: ExitStack, table: Any, progress: Progress | None) -> Callable[[], Counts]:
    """Open the table, which checks its schema, and say how it will be counted; no record is read yet."""
    raise ReleaseError(f"nothing says how records are counted for a {type(batch).__name__}")


@reading.register
def _(
    batch: CellBatch, plan: Plan, tables: ExitStack, table: Any, progress: Progress | None
) -> Callable[[], CellCounts]:
    from batchdp.tables import open_table, prepare_count

    atoms, privacy = batch.atoms, plan.domain.privacy
    source = tables.enter_context(open_table(table, plan.domain, columns=[one.column for one in atoms]))
    count = prepare_count(source, atoms, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)
    return lambda: CellCounts(batch.cells.counts(count(progress)))


@reading.register
def _(
    batch: TableBatch, plan: Plan, tables: ExitStack, table: Any, progress: Progress | None
) -> Callable[[], Records | Tallies]:
    from batchdp.tables import open_table, prepare_count

    privacy = plan.domain.privacy
    source = tables.enter_context(open_table(table, plan.domain, columns=[one.column for one in batch.atoms]))
    sets = sets_counted(plan.strategy, batch, privacy.max_rows)
    if sets is None:
        counted = prepare_count(source, batch.atoms, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)
        return lambda: _records(batch, counted(progress))
    atoms = [tuple(sorted({i for c in own for i in batch.columns[c].atoms})) for own in sets]
    each = tuple(dict.fromkeys(atoms))
    tabled = prepare_count(source, batch.atoms, sets=each, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)
    return lambda: _tallies(batch, dict(zip(sets, atoms, strict=True)), tabled(progress))


def sets_counted(strategy: Strategy, batch: TableBatch, max_rows: int | None) -> Sets | None:
    """The tables that the engine counts; None where moving all combinations is less."""
    combinations = prod(one.size for one in batch.atoms)
    wanted = _measured(strategy) if combinations > FEW else None
    if wanted is None:
        return None
    sizes = [prod(batch.atoms[i].size for i in column.atoms) for column in batch.columns]
    sets = _joined(_largest(wanted), sizes)
    moved = sum(prod(sizes[c] for c in own) for own in sets)
    return sets if len(sets) <= MOST_SETS and moved < min(combinations, max_rows or ROWS) else None


@singledispatch
def _measured(strategy: Any) -> set[frozenset[int]] | None:
    """The columns of everything that is measured; None where that is very much, or nothing says it."""
    return None


@_measured.register
def _(strategy: MarginalStrategy) -> set[frozenset[int]] | None:
    if sum(map(len, strategy.groups)) > MOST_LOOKED:
        return None
    return {frozenset(one.columns) for one in strategy.measured}


@_measured.register
def _(strategy: ResidualStrategy) -> set[frozenset[int]] | None:
    if isinstance(strategy.parts, WholeParts):
        batch = strategy.workload
        if len(batch.tables) > MOST_LOOKED:
            return None
        return {frozenset(table.columns) for table in batch.tables}
    return {frozenset(part.columns) for part in strategy.parts} if len(strategy.parts) <= MOST_LOOKED else None


def _largest(wanted: Iterable[frozenset[int]]) -> Sets:
    """Those that are in no other."""
    found: list[frozenset[int]] = []
    for own in sorted(wanted, key=lambda own: (-len(own), sorted(own))):
        if not any(own <= other for other in found):
            found.append(own)
    return tuple(tuple(sorted(own)) for own in found)


def _joined(sets: Sets, sizes: Sequence[int]) -> Sets:
    """Fewer tables that contain all of these: each is widened by the column that most others become part of it by."""
    by_column: dict[int, set[frozenset[int]]] = {}
    left = dict.fromkeys(map(frozenset, sets))
    for own in left:
        for c in own:
            by_column.setdefault(c, set()).add(own)
    found = []
    while left:
        table = set(next(iter(left)))
        while True:
            room = MOST_TOGETHER // max(1, prod(sizes[c] for c in table))
            gains = {
                c: sum(own <= table | {c} for own in by_column[c])
                for c in sorted(by_column)
                if c not in table and sizes[c] <= room
            }
            best = max(gains, key=lambda c: gains[c], default=None)
            if best is None or not gains[best]:
                break
            table.add(best)
        for own in [own for own in left if own <= table]:
            del left[own]
            for c in own:
                by_column[c].discard(own)
        found.append(tuple(sorted(table)))
    return tuple(found)


Batches = Iterable[tuple[NDArray[np.int32], NDArray[np.int64]]]


def _records(batch: TableBatch, batches: Batches) -> Records:
    """All combinations that occur; one that has no value is dropped."""
    codes: list[NDArray[np.int32]] = []
    times: list[NDArray[np.int64]] = []
    for atoms, numbers in batches:
        values = batch.values(atoms)
        there = np.all(values >= 0, axis=1)
        codes.append(values[there])
        times.append(numbers[there])
    width = len(batch.columns)
    return Records(
        np.asfortranarray(np.concatenate([np.zeros((0, width), dtype=np.int32), *codes])),
        np.concatenate([np.zeros(0, dtype=np.int64), *times]),
    )


def _tallies(batch: TableBatch, sets: dict[tuple[int, ...], tuple[int, ...]], batches: Batches) -> Tallies:
    """By table, told apart by the columns that a row is counted by."""
    parts = list(batches)
    width = len(batch.atoms)
    codes = np.concatenate([np.zeros((0, width), dtype=np.int32), *(part for part, _ in parts)])
    times = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for _, numbers in parts)])
    looked = codes >= 0
    found = {}
    for own, atoms in sets.items():
        flags = np.zeros(width, dtype=bool)
        flags[list(atoms)] = True
        rows = np.flatnonzero(np.all(looked == flags, axis=1))
        values = batch.values(np.where(looked[rows], codes[rows], 0), only=own)
        there = np.all(values >= 0, axis=1)
        found[own] = Records(values[there], times[rows][there])
    return Tallies(found)
