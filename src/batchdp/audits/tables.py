"""Strategies over many columns, derived again: single records through the real measurement, and what moves added up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.audits.exact import check_arithmetic, probe_of, rederive, take_apart
from batchdp.audits.finding import Finding
from batchdp.mechanism.components.lattice import ComponentLattice
from batchdp.mechanism.measure import measure
from batchdp.mechanism.weighted.lattice import WeightedLattice
from batchdp.private import Records

Integers = NDArray[np.int64]

MOST_RECORDS = 400
"""Records that every group is looked at with; all of them where there are no more."""
MOST_MEASURED = 20_000_000
"""Measurements in all that are made for it: fewer records where groups are large."""


@rederive.register(ComponentLattice)
@rederive.register(WeightedLattice)
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
    most = min(MOST_RECORDS, max(2, MOST_MEASURED // max(1, measurement.measurements)))
    if measurement.workload.cells <= most:
        return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64), True
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, n, most) for n in sizes]), False


@check_arithmetic.register(ComponentLattice)
@check_arithmetic.register(WeightedLattice)
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


@probe_of.register(ComponentLattice)
@probe_of.register(WeightedLattice)
def _(measurement: Any) -> Records:
    rng = np.random.default_rng(2)
    return Records(np.column_stack([rng.integers(0, n, 7) for n in measurement.workload.sizes]))
