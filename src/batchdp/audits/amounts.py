"""Amounts, re-derived: records one by one, at the ends of stretches and between them, in fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np

from batchdp.audits.exact import check_arithmetic, over_blocks_again, rederive, take_apart
from batchdp.audits.finding import Finding
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.measurement import LARGEST
from batchdp.private import CellCounts

BETWEEN = 3
"""Steps of every stretch that are looked at beside its ends."""


@rederive.register
def _(measurement: AmountLattice) -> tuple[list[int], str]:
    """Of every record at an end and of some between.

    A record that adds α + β u to a total changes the total's whole number of coarse steps by that many, rounded up.
    """
    power, coarse = measurement.noise.norm, 2**measurement.shift
    workload = measurement.workload
    block_of = [block for block, size in enumerate(workload.blocks) for _ in range(size)]
    largest = [0] * len(workload.blocks)
    rows: list[set[int]] = [set() for _ in workload.blocks]
    for cell, steps, column in records_of(measurement):
        level = measurement.levels[cell] if cell >= 0 else {}
        slope = {} if column is None else measurement.slopes[column]
        moved = {i: Fraction(level.get(i, 0) + slope.get(i, 0) * steps, coarse) for i in {*level, *slope}}
        own = block_of[cell if column is None else max(workload.ends[column][:2])]
        largest[own] = max(largest[own], sum(math.ceil(abs(z)) ** power for z in moved.values()))
        rows[own] |= {i for i, z in moved.items() if z}
    found = over_blocks_again(workload.meetings, largest, rows, power)
    return [found], f"{'Δ₁' if power == 1 else 'Δ₂²'} = {found} re-derived from ends and some records between"


def records_of(lattice: AmountLattice) -> list[tuple[int, int, int | None]]:
    """Records to look at: their cell or lower end, how many steps from it, and along which pair of ends."""
    chance = random.Random(0)
    found: list[tuple[int, int, int | None]] = [(cell, 0, None) for cell in range(len(lattice.levels))]
    for pair, (low, _, steps) in enumerate(lattice.workload.ends):
        places = {0, steps, *(chance.randint(0, steps) for _ in range(BETWEEN))}
        found += [(low, place, pair) for place in sorted(places)]
    return found


@check_arithmetic.register
def _(lattice: AmountLattice) -> Finding:
    """Totals against a sum in fractions, at the cap and far beyond it."""
    rng = np.random.default_rng(0)
    cells = len(lattice.levels)
    same = True
    for records in (10, lattice.largest_total, 2**62):
        counts = [int(n) * records // 10 for n in rng.multinomial(10, np.full(cells, 1 / cells))]
        sums = [
            counts[low] * int(rng.integers(0, 1001)) * steps // 1000 if low >= 0 else records * steps
            for low, _, steps in lattice.workload.ends
        ]
        totals = [Fraction(0)] * lattice.measurements
        for column, number in zip((*lattice.levels, *lattice.slopes), (*counts, *sums), strict=True):
            for i, q in column.items():
                totals[i] += Fraction(q * number, 2**lattice.fine)
        expected = [max(-LARGEST, min(LARGEST, math.floor(total * 2**lattice.bits))) for total in totals]
        same = same and take_apart(lattice, CellCounts(np.array([*counts, *sums], dtype=object))) == expected
    return Finding("exact measurements", same, f"totals of α + β u against fractions, up to {2**62} records")
