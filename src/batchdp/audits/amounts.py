"""Amounts, re-derived: records one by one, at the ends of stretches and between them, in fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np

from batchdp.audits.finding import Finding
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.lattice import LARGEST
from batchdp.mechanism.neighbours import Neighbours

BETWEEN = 3
"""Steps of every stretch that are looked at beside its ends."""


def amount_sensitivity(lattice: AmountLattice, neighbours: Neighbours) -> int:
    """Δ₁, or Δ₂² for Gaussian noise, times the neighbours' factor, of every record at an end and of some between.

    A record that adds α + β u to a total changes the total's whole number of coarse steps by that many, rounded up.
    """
    power, coarse = lattice.noise.norm, 2**lattice.shift
    workload = lattice.workload
    block_of = [block for block, size in enumerate(workload.blocks) for _ in range(size)]
    largest = [0] * len(workload.blocks)
    rows: list[set[int]] = [set() for _ in workload.blocks]
    for cell, steps, column in _records(lattice):
        level = lattice.levels[cell] if cell >= 0 else {}
        slope = {} if column is None else lattice.slopes[column]
        moved = {i: Fraction(level.get(i, 0) + slope.get(i, 0) * steps, coarse) for i in {*level, *slope}}
        own = block_of[cell if column is None else max(workload.ends[column][:2])]
        largest[own] = max(largest[own], sum(math.ceil(abs(z)) ** power for z in moved.values()))
        rows[own] |= {i for i, z in moved.items() if z}
    apart = sum(map(len, rows)) == len(set().union(*rows))
    if power == 1 or apart:
        total = max(sum(largest[block] for block in met) for met in workload.meetings)
    else:
        roots = [math.isqrt(square - 1) + 1 if square else 0 for square in largest]
        total = max(sum(roots[block] for block in met) for met in workload.meetings) ** 2
    return int(total * neighbours.factor**power)


def _records(lattice: AmountLattice) -> list[tuple[int, int, int | None]]:
    """Records to look at: their cell or lower end, how many steps from it, and along which pair of ends."""
    chance = random.Random(0)
    found: list[tuple[int, int, int | None]] = [(cell, 0, None) for cell in range(len(lattice.levels))]
    for pair, (low, _, steps) in enumerate(lattice.workload.ends):
        places = {0, steps, *(chance.randint(0, steps) for _ in range(BETWEEN))}
        found += [(low, place, pair) for place in sorted(places)]
    return found


def amounts_finding(lattice: AmountLattice) -> Finding:
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
        same = same and lattice.measured(np.array([*counts, *sums], dtype=object)) == expected
    return Finding("exact measurements", same, f"totals of α + β u against fractions, up to {2**62} records")
