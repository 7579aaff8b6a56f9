"""Q x, exactly: the one place where measurements meet counts. Planning holds measurements and cannot import this.

Measurements are clamped to ±2^61, which moves no two neighbours further apart, except those whose noise has the shape
of a body: a clamp can move two neighbours further apart in its norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.knorm.lattice import ShapedAmounts, ShapedLattice
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.marginal.lattice import WeightedLattice
from batchdp.mechanism.measurement import LARGEST, IntegerMeasurement, Integers
from batchdp.mechanism.residual.lattice import ComponentLattice
from batchdp.mechanism.tables import IntegerPart
from batchdp.private import CellCounts, Records, Tallies

MOST_COUNT = 2**62
MOST_SUM = 2**63 - 1

Measured = Iterator[tuple[int, int, NDArray[Any]]]
"""Part by part: the group, the first measurement, whole numbers."""


@singledispatch
def measure(measurement: IntegerMeasurement, counts: Any, *, exact: bool = False) -> Measured:
    """Q x part by part, each measurement once; a new kind of measurement registers its own.

    Args:
        measurement: what is measured.
        counts: what was counted.
        exact: in Python's own whole numbers throughout, for checks; otherwise only where 64 bits may not do.
    """
    raise TypeError(f"nothing says how a {type(measurement).__name__} is measured")


def add(measurement: IntegerMeasurement, counts: Any, noise: NDArray[Any]) -> NDArray[Any]:
    """The noisy measurements, in 64 bits where they fit: those that are not clamped may be of any size."""
    noisy = noise.copy()
    for _, start, part in measure(measurement, counts):
        noisy[start : start + len(part)] += part
    fits = noisy.dtype != object or all(abs(z) <= MOST_SUM for z in noisy)
    return noisy.astype(np.int64) if fits else noisy


def clamp(flat: NDArray[Any]) -> Integers:
    """Measurements in 64 bits: whole numbers of any size are clamped to ±2^61."""
    if flat.dtype == object:
        flat = np.array([max(-LARGEST, min(LARGEST, int(z))) for z in flat], dtype=np.int64)
    return np.asarray(flat, dtype=np.int64)


@measure.register
def _(measurement: Lattice, counts: CellCounts, *, exact: bool = False) -> Measured:
    yield 0, 0, clamp(np.array(multiply(measurement, merge(measurement, counts.counts), exact=exact), dtype=object))


@measure.register
def _(measurement: ShapedLattice, counts: CellCounts, *, exact: bool = False) -> Measured:
    whole = np.array(multiply(measurement, merge(measurement, counts.counts), exact=exact), dtype=object)
    for g, (own, _) in enumerate(measurement.shape.parts):
        yield g, own.start, whole[own]


def merge(lattice: Lattice, counts: Integers) -> Integers:
    """A table's counts on the cells of the workload, exactly, none above 2^62."""
    if lattice.merging is None:
        return counts
    # By its indices alone: a count is added to one cell, once, whatever the entries.
    if int(counts.sum(dtype=object)) <= MOST_COUNT:
        totals = np.zeros(lattice.merging.shape[0], dtype=np.int64)
        np.add.at(totals, lattice.merging.indices, counts)
        return totals
    sums = [0] * lattice.merging.shape[0]
    for cell, count in zip(lattice.merging.indices.tolist(), counts.tolist(), strict=True):
        sums[cell] += count
    return np.array([min(total, MOST_COUNT) for total in sums], dtype=np.int64)


def multiply(lattice: Lattice, counts: Integers, *, exact: bool = False) -> list[int]:
    """Q x, for counts of the workload's cells."""
    if not exact and int(counts.sum(dtype=object)) <= lattice.largest_total * len(lattice.workload.blocks):
        return [int(z) for z in lattice.integers @ counts]  # within 64 bits by the choice of bits
    Q, x = lattice.integers, counts.tolist()
    found = [0] * Q.shape[0]
    for i in range(Q.shape[0]):
        part = slice(Q.indptr[i], Q.indptr[i + 1])
        found[i] = sum(q * x[j] for q, j in zip(Q.data[part].tolist(), Q.indices[part].tolist(), strict=True))
    return found


@measure.register
def _(measurement: AmountLattice, counts: CellCounts, *, exact: bool = False) -> Measured:
    """The totals, cut to the coarse lattice."""
    totals = sum_up(measurement, counts.counts)
    yield 0, 0, clamp(np.array([total >> measurement.shift for total in totals], dtype=object))


@measure.register
def _(measurement: ShapedAmounts, counts: CellCounts, *, exact: bool = False) -> Measured:
    """The totals as they are."""
    whole = np.array(sum_up(measurement, counts.counts), dtype=object)
    for g, (own, _) in enumerate(measurement.shape.parts):
        yield g, own.start, whole[own]


def sum_up(lattice: AmountLattice, counts: NDArray[Any]) -> list[int]:
    """The totals on the fine lattice, exactly; sums of steps may be left out."""
    totals = [0] * lattice.measurements
    for column, number in zip((*lattice.levels, *lattice.slopes), counts.tolist(), strict=False):
        if number:
            for i, q in column.items():
                totals[i] += q * number
    return totals


@measure.register(ComponentLattice)
@measure.register(WeightedLattice)
def _(measurement: Any, counts: Records | Tallies, *, exact: bool = False) -> Measured:
    exact = exact or counts.total > measurement.largest_total
    for g, start, part in measurement.parts():
        yield g, start, _measure_part(part, counts.seen_by(part.columns), exact=exact)


def _measure_part(part: IntegerPart, records: Records, *, exact: bool) -> Integers:
    """How many records have every combination of places that the part tells apart, then axis by axis what it makes."""
    index = np.zeros(len(records.codes), dtype=np.int64)
    there = np.ones(len(records.codes), dtype=bool)
    for axis in part.axes:
        for i, places, n in zip(axis.columns, axis.places, axis.sizes, strict=True):
            own = places[records.codes[:, i]]
            there &= own >= 0
            index = index * n + own
    shape = [prod(axis.sizes) for axis in part.axes]
    times = None if records.times is None else records.times[there]
    y = tally(index[there], prod(shape), times, exact=exact).reshape(shape)
    for a, axis in enumerate(part.axes):
        y = axis.measure(y, a)
    return clamp(y.reshape(-1) * part.weight)


def tally(index: Integers, size: int, times: Integers | None, *, exact: bool) -> NDArray[Any]:
    """How many records have every place; in Python's own whole numbers where 64 bits may not do."""
    if times is None:
        found: NDArray[Any] = np.bincount(index, minlength=size).astype(np.int64)
        return found.astype(object) if exact else found
    found = np.zeros(size, dtype=object if exact else np.int64)
    np.add.at(found, index, times.astype(found.dtype))
    return found
