"""Strategies over many columns, derived again: single records through the real measurement, and what moves added up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.audits.exact import Finding, check_arithmetic, probe_of, rederive, take_apart
from batchdp.mechanism.measure import measure
from batchdp.mechanism.measurement import Integers
from batchdp.mechanism.tables import TableLattice
from batchdp.plans.encoding import CellBatch
from batchdp.private import Records
from batchdp.workloads.encode.cells import Cells, looked_at

CHUNK = 200_000
MOST_RECORDS = 8_000_000


@singledispatch
def records_findings(batch: Any, measurement: Any) -> Iterator[Finding]:
    """What is looked at of the records of a plan's batch: nothing, where no blocks are said to exclude each other."""
    return iter(())


@records_findings.register
def _(batch: CellBatch, measurement: Any) -> Iterator[Finding]:
    W = measurement.workload
    if (len(W.meetings) > 1 or W.records is not None) and isinstance(batch.cells, Cells):  # of several tables all meet
        yield records_finding(batch.cells, measurement)


def records_finding(cells: Cells, lattice: Any) -> Finding:
    """Every combination of atoms, the cell that it has in every block, and what it changes: never more than Δ."""
    met = [frozenset(own) for own in lattice.workload.meetings]
    many = prod(int(cells.atoms[i].possible.sum()) for i in looked_at(cells.blocks))
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
    listed = None if lattice.workload.records is None else set(map(tuple, lattice.workload.records.tolist()))
    for codes in _records(cells):
        found = np.stack([block.classes.of(codes) for block in cells.blocks])
        if listed is not None:  # whose changes are derived again by their kinds
            strangers += len(set(map(tuple, np.unique(found, axis=1).T.tolist())) - listed)
            seen += len(codes)
            continue
        for pattern in np.unique(found >= 0, axis=1).T:
            if pattern.tobytes() not in known:
                known.add(pattern.tobytes())
                own = frozenset(np.flatnonzero(pattern).tolist())
                strangers += not any(own <= other for other in met)
        places = np.where(found >= 0, found + starts[:, None], len(sums))
        worst = max(worst, int(change[places].sum(axis=0).max()))
        seen += len(codes)
    held = strangers == 0 and worst <= lattice.column_sums
    said = f"{seen:,} combinations of values, "
    if listed is not None:
        said += f"{len(listed):,} kinds of records"
        return Finding(
            "records that exist", held, said if not strangers else f"{said}; {strangers} that are not listed"
        )
    said += f"{len(met)} sets of blocks that meet, Σ|Q| at most {worst}"
    return Finding("records that exist", held, said if not strangers else f"{said}; {strangers} in other blocks")


def _records(cells: Cells) -> Iterator[Integers]:
    """All combinations of atoms that records can have, in the columns that matter; any atom in the others."""
    alive = {i: np.flatnonzero(cells.atoms[i].possible) for i in looked_at(cells.blocks)}
    shape = tuple(len(own) for own in alive.values())
    total = prod(shape)
    for start in range(0, total, CHUNK):
        numbers = np.arange(start, min(total, start + CHUNK))
        codes = np.zeros((len(numbers), len(cells.atoms)), dtype=np.int64)
        for i, place in zip(alive, np.unravel_index(numbers, shape) if shape else (), strict=True):
            codes[:, i] = alive[i][place]
        yield codes


MOST_TABLE_RECORDS = 400
"""Records that every group is looked at with; all of them where there are no more."""
MOST_MEASURED = 20_000_000
"""Measurements in all that are made for it: fewer records where groups are large."""


@rederive.register(TableLattice)
def _(measurement: Any) -> tuple[list[int], str]:
    records, everything = records_of(measurement)
    seen = "all" if everything else f"{len(records):,} of the"
    return moved_by(measurement, records), f"{len(measurement.groups):,} groups moved by {seen} records"


def moved_by(measurement: Any, records: Integers) -> list[int]:
    """For every group the most that one of the records changes it, by measuring each record alone.

    In the noise's norm, to its power: the sum of magnitudes for Laplace noise, of squares for Gaussian noise.
    """
    norm = measurement.noise.norm
    found = [0] * len(measurement.groups)
    for code in records:
        moved = [0] * len(found)
        for g, _, z in measure(measurement, Records(code[None])):
            values, times = np.unique(z, return_counts=True)
            moved[g] += sum(abs(int(v)) ** norm * int(n) for v, n in zip(values, times, strict=True))
        found = [max(old, new) for old, new in zip(found, moved, strict=True)]
    return found


def records_of(measurement: Any) -> tuple[Integers, bool]:
    """Records to look at: all, or as many as can be, drawn by a fixed seed, since nothing is released here."""
    sizes = measurement.workload.sizes
    most = min(MOST_TABLE_RECORDS, max(2, MOST_MEASURED // max(1, measurement.measurements)))
    if measurement.workload.cells <= most:
        return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64), True
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, n, most) for n in sizes]), False


@check_arithmetic.register(TableLattice)
def _(measurement: Any) -> Finding:
    sizes = measurement.workload.sizes
    rng = np.random.default_rng(1)
    codes = np.column_stack([rng.integers(0, n, 20) for n in sizes])
    same = True
    looked = 0
    for times in (np.full(20, measurement.largest_total // 20), np.full(20, 2**62)):
        records = Records(codes, times.astype(np.int64))
        both = zip(measure(measurement, records), measure(measurement, records, exact=True), strict=True)
        for (_, _, here), (_, _, there) in both:
            if looked > MOST_MEASURED // 10:
                break
            same = same and bool(np.array_equal(here, there)) and int(np.abs(here).max(initial=0)) <= 2**61
            looked += len(here)
    same = same and (measurement.measurements > MOST_MEASURED // 100 or _adds_up(measurement, codes[:2]))
    return Finding("exact measurements", same, f"Q x in 64 bits against whole numbers, up to {2**62} a record")


def _adds_up(measurement: Any, codes: Integers) -> bool:
    """Whether two records, each several times, are measured as the sum of what each is alone."""
    one, other = (take_apart(measurement, Records(code[None])) for code in codes)
    expected = [3 * a + 5 * b for a, b in zip(one, other, strict=True)]
    listed = Records(np.repeat(codes, (3, 5), axis=0))
    return expected == take_apart(measurement, listed) == take_apart(measurement, Records(codes, np.array([3, 5])))


@probe_of.register
def _(measurement: TableLattice) -> Records:
    rng = np.random.default_rng(2)
    return Records(np.column_stack([rng.integers(0, n, 7) for n in measurement.workload.sizes]))
