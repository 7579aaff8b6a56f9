"""Records that exist, one by one: whether any of them is in blocks that are said to exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.audits.finding import Finding
from batchdp.cells import Cells
from batchdp.cells.meetings import looked_at
from batchdp.cells.splitting import possible
from batchdp.plans.encoding import CellBatch

CHUNK = 200_000
MOST_RECORDS = 8_000_000


@singledispatch
def records_findings(batch: Any, measurement: Any) -> Iterator[Finding]:
    """What is looked at of the records of a plan's batch: nothing, where no blocks are said to exclude each other."""
    return iter(())


@records_findings.register
def _(batch: CellBatch, measurement: Any) -> Iterator[Finding]:
    if len(measurement.workload.meetings) > 1:
        yield records_finding(batch.cells, measurement)


def records_finding(cells: Cells, lattice: Any) -> Finding:
    """Every combination of atoms, the cell that it has in every block, and what it changes: never more than Δ."""
    met = [frozenset(own) for own in lattice.workload.meetings]
    many = prod(int(possible(cells.atoms[i]).sum()) for i in looked_at(cells.blocks))
    if many > MOST_RECORDS:
        return Finding("records that exist", held=False, figures=f"{many:,} combinations are too many to look at")
    columns = sparse.csc_array(lattice.integers)
    sums = [
        sum(abs(int(q)) for q in columns.data[start:end])
        for start, end in zip(columns.indptr[:-1], columns.indptr[1:], strict=True)
    ]
    # Whole numbers of any size where 64 bits might not do; the last: no cell.
    change = np.array([*sums, 0], dtype=np.int64 if sum(sums) < 2**62 else object)
    starts = np.cumsum((0, *lattice.workload.blocks[:-1]))
    worst, seen, strangers = 0, 0, 0
    known: set[bytes] = set()
    for codes in _records(cells):
        found = np.stack([block.classes.of(codes) for block in cells.blocks])
        for pattern in np.unique(found >= 0, axis=1).T:
            if pattern.tobytes() not in known:
                known.add(pattern.tobytes())
                own = frozenset(np.flatnonzero(pattern).tolist())
                strangers += not any(own <= other for other in met)
        places = np.where(found >= 0, found + starts[:, None], len(sums))
        worst = max(worst, int(change[places].sum(axis=0).max()))
        seen += len(codes)
    held = strangers == 0 and worst <= lattice.column_sums
    said = f"{seen:,} combinations of values, {len(met)} sets of blocks that meet, Σ|Q| at most {worst}"
    return Finding("records that exist", held, said if not strangers else f"{said}; {strangers} in other blocks")


def _records(cells: Cells) -> Iterator[NDArray[np.int64]]:
    """All combinations of atoms that records can have, in the columns that matter; any atom in the others."""
    alive = {i: np.flatnonzero(possible(cells.atoms[i])) for i in looked_at(cells.blocks)}
    shape = tuple(len(own) for own in alive.values())
    total = prod(shape)
    for start in range(0, total, CHUNK):
        numbers = np.arange(start, min(total, start + CHUNK))
        codes = np.zeros((len(numbers), len(cells.atoms)), dtype=np.int64)
        for i, place in zip(alive, np.unravel_index(numbers, shape) if shape else (), strict=True):
            codes[:, i] = alive[i][place]
        yield codes
