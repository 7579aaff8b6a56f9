"""The exact half: sensitivities, losses and measurements derived again, of amounts record by record in fractions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.lattice import Lattice, OneGroup
from batchdp.mechanism.measure import add, measure
from batchdp.mechanism.measurement import LARGEST
from batchdp.mechanism.prepare import MOST_BIAS, Mechanism
from batchdp.privacy import KNorm
from batchdp.private import CellCounts


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, whether it held, and the figures."""

    check: str
    held: bool
    figures: str


MOST_CHOICES = 20_000
"""Of a cell or none in each block, whose columns are added up one choice after the other."""
MOST_PLACES = 2_000_000
"""Measurements whose places are looked at one by one."""


def exact(made: Mechanism) -> Iterator[Finding]:
    """The checks that need no randomness."""
    measurement, noises, kind = made.measurement, made.noises, made.noise
    moved, said = rederive(measurement)
    due = [own * made.neighbours.factor**kind.norm for own in moved]
    covered = len(noises) == len(due) == len(measurement.groups) and all(
        one.moved >= own for one, own in zip(noises, due, strict=True)
    )
    noise = f"noise made for {noises[0].moved}" if len(noises) == 1 else f"{len(noises):,} groups with a noise each"
    yield Finding("sensitivity", covered, f"{said}, times {made.neighbours.factor}^{kind.norm}; {noise}")
    yield _loss_finding(made, due)
    yield check_arithmetic(measurement)
    yield _places_finding(measurement)
    worst, _ = measurement.worst_bias(made.reader)
    yield Finding("bias", worst <= MOST_BIAS, f"at most {worst:.2e} of an answer's noise")


def _loss_finding(made: Mechanism, due: list[int]) -> Finding:
    """What is lost by the theorems behind the maps, against what is claimed and what is charged."""
    loss: Fraction | None = Fraction(0)
    for noise, own in zip(made.noises, due, strict=False):
        if own or noise.moved:
            positive = math.isfinite(noise.scale) and noise.scale > 0
            more = made.noise.loss(max(own, noise.moved), noise.scale) if positive else None
            loss = None if loss is None or more is None else loss + more
    claimed = made.loss
    held = loss is not None and len(due) == len(made.noises) and loss <= claimed <= made.budget.amount
    told = math.inf if loss is None else float(loss)
    figures = f"{told:.12g} in all, {float(claimed):.12g} claimed of {float(made.budget):.9g} charged"
    return Finding("privacy loss", held, figures)


def _places_finding(measurement: Any) -> Finding:
    """Whether every measurement stands where the noise of its group is drawn, once, and is added to it once."""
    probe, ends = probe_of(measurement), [0, *np.cumsum(measurement.sizes).tolist()]
    if ends[-1] > MOST_PLACES:
        return Finding("places", True, f"{ends[-1]:,} measurements are too many to look at")
    found = [0] * ends[-1]
    seen = np.zeros(ends[-1], dtype=np.int64)
    for g, start, part in measure(measurement, probe):
        if not ends[g] <= start <= start + len(part) <= ends[g + 1]:
            return Finding("places", False, f"measurements of group {g} stand where the noise of another is drawn")
        seen[start : start + len(part)] += 1
        found[start : start + len(part)] = [int(z) for z in part]
    added = add(measurement, probe, np.zeros(ends[-1], dtype=object)).tolist()
    held = bool(np.all(seen == 1)) and [int(z) for z in added] == found
    return Finding("places", held, f"{ends[-1]:,} measurements, each in its group and added to its noise once")


@singledispatch
def probe_of(measurement: Any) -> Any:
    """A few records to look at places with: here so many in every cell."""
    return CellCounts(np.arange(getattr(measurement, "cells", measurement.workload.cells), dtype=np.int64) % 5)


@singledispatch
def rederive(measurement: Any) -> tuple[list[int], str]:
    """For every group Δ to the power of the noise's norm, found anew, and in words how; each kind registers its own."""
    raise TypeError(f"nothing says how the sensitivity of a {type(measurement).__name__} is derived again")


@singledispatch
def check_arithmetic(measurement: Any) -> Finding:
    """Whether measurements in 64 bits are those in whole numbers, at the cap and beyond, by the kind of measurement."""
    raise TypeError(f"nothing says how the measurements of a {type(measurement).__name__} are checked")


def take_apart(measurement: Any, counts: Any) -> list[int]:
    """All that is measured of some counts, as a list of whole numbers."""
    return [int(z) for _, _, part in measure(measurement, counts) for z in part]


@rederive.register
def _(measurement: Lattice) -> tuple[list[int], str]:
    """What a record of every kind changes, where these are few; else norms add up over the blocks that it can be in.

    Squares add up where rows see one block each, and roots where they see several.
    """
    columns, workload = sparse.csc_array(measurement.integers), measurement.workload
    power = measurement.noise.norm
    name = "Δ₁" if power == 1 else "Δ₂²"
    if (kinds := kinds_of_records(workload)) is not None:
        found = max(sum(abs(q) ** power for q in own) for own in changes_of_records(workload, kinds, columns))
        return [found], f"{name} = {found} re-derived from {len(kinds):,} kinds of records"
    largest, rows, start = [], [], 0
    for size in workload.blocks:
        bounds = columns.indptr[start : start + size + 1]
        spans = [slice(a, b) for a, b in pairwise(bounds)]
        largest.append(max(sum(abs(int(q)) ** power for q in columns.data[span]) for span in spans))
        rows.append(set(columns.indices[bounds[0] : bounds[-1]].tolist()))
        start += size
    found = over_blocks_again(workload.meetings, largest, rows, power)
    return [found], f"{name} = {found} re-derived"


def kinds_of_records(workload: Any) -> list[tuple[int, ...]] | None:
    """The cell, or −1, in each block of every record: those that are listed, or all choices where these are few."""
    if workload.records is not None:
        return list(map(tuple, workload.records.tolist()))
    many = math.prod(size + 1 for size in workload.blocks)
    if len(workload.blocks) == 1 or len(workload.meetings) > 1 or workload.ends or many > MOST_CHOICES:
        return None
    return list(product(*(range(-1, size) for size in workload.blocks)))


def changes_of_records(workload: Any, kinds: Sequence[Sequence[int]], columns: Any) -> Iterator[list[int]]:
    """What a record of every kind changes: the columns of its cells, added up in whole numbers."""
    parts, starts = [], [0, *np.cumsum(workload.blocks).tolist()]
    for cell in range(starts[-1]):
        own = slice(columns.indptr[cell], columns.indptr[cell + 1])
        parts.append(list(zip(columns.indices[own].tolist(), columns.data[own].tolist(), strict=True)))
    for kind in kinds:
        changed: dict[int, int] = {}
        for start, cell in zip(starts, kind, strict=False):
            for row, q in parts[start + cell] if cell >= 0 else ():
                changed[row] = changed.get(row, 0) + q
        yield list(changed.values())


def over_blocks_again(meetings: Any, largest: list[int], rows: list[set[int]], power: int) -> int:
    """The most over blocks that meet: sums, or sums of roots where a measurement sees two blocks."""
    if power == 1 or sum(map(len, rows)) == len(set().union(*rows)):
        return int(max(sum(largest[block] for block in met) for met in meetings))
    roots = [math.isqrt(square - 1) + 1 if square else 0 for square in largest]  # rounded up
    return int(max(sum(roots[block] for block in met) for met in meetings) ** 2)


@check_arithmetic.register
def _(measurement: Lattice) -> Finding:
    """Q x in Python's whole numbers, far beyond 64 bits."""
    rng, cells, cap = np.random.default_rng(0), measurement.cells, measurement.largest_total
    spread = rng.multinomial(min(cap, 2**40), np.full(cells, 1 / cells))
    alike = [np.full(cells, count, dtype=np.int64) for count in (3, cap, 2**62)]
    same = all(
        take_apart(measurement, CellCounts(x)) == clamp_again(measurement, multiply_again(measurement, x))
        for x in (spread, cap * (np.arange(cells) == 0), *alike)
    )
    if isinstance(measurement.noise, KNorm):
        return Finding("exact measurements", same, f"Q x against whole numbers, up to {2**62} a cell, never clamped")
    return Finding("exact measurements", same, f"Q x in 64 bits against whole numbers, up to {2**62} a cell")


def clamp_again(measurement: OneGroup, found: list[int]) -> list[int]:
    """What is measured of these; what has the noise of a body is never clamped."""
    return found if isinstance(measurement.noise, KNorm) else [max(-LARGEST, min(LARGEST, z)) for z in found]


def multiply_again(lattice: Lattice, counts: NDArray[np.int64]) -> list[int]:
    """Q x in Python's whole numbers, on the cells of the workload."""
    x = counts.tolist()
    if lattice.merging is not None:
        sums = [0] * lattice.integers.shape[1]
        for cell, count in zip(lattice.merging.indices.tolist(), x, strict=True):
            sums[cell] += count
        x = [min(total, 2**62) for total in sums]
    rows = sparse.csr_array(lattice.integers)
    found = []
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        pairs = zip(rows.data[start:end].tolist(), rows.indices[start:end].tolist(), strict=True)
        found.append(sum(q * x[j] for q, j in pairs))
    return found


BETWEEN = 3
"""Steps of every stretch that are looked at beside its ends."""


@rederive.register
def _(measurement: AmountLattice) -> tuple[list[int], str]:
    """Of every record at an end and of some between.

    A record that adds α + β u to a total changes the total's whole number of coarse steps by that many, rounded up.
    """
    power, coarse, workload = measurement.noise.norm, 2**measurement.shift, measurement.workload
    largest = [0] * len(workload.blocks)
    rows: list[set[int]] = [set() for _ in workload.blocks]
    for block, _, added in records_of(measurement):
        changes = [math.ceil(abs(Fraction(z, coarse))) ** power for z in added.values()]
        largest[block] = max(largest[block], sum(changes))
        rows[block] |= {i for i, z in added.items() if z}
    found = over_blocks_again(workload.meetings, largest, rows, power)
    return [found], f"{'Δ₁' if power == 1 else 'Δ₂²'} = {found} re-derived from ends and some records between"


def records_of(lattice: AmountLattice) -> Iterator[tuple[int, bool, dict[int, int]]]:
    """Records to look at: their block, whether they are in a cell or at an end, and what they add to every total."""
    chance, workload = random.Random(0), lattice.workload
    block_of = [block for block, size in enumerate(workload.blocks) for _ in range(size)]
    for cell, level in enumerate(lattice.levels):
        yield block_of[cell], True, level
    for (low, high, steps), slope in zip(workload.ends, lattice.slopes, strict=True):
        level = lattice.levels[low] if low >= 0 else {}
        for place in sorted({0, steps, *(chance.randint(0, steps) for _ in range(BETWEEN))}):
            added = {i: level.get(i, 0) + slope.get(i, 0) * place for i in {*level, *slope}}
            yield block_of[max(low, high)], place in (0, steps), added


@check_arithmetic.register
def _(lattice: AmountLattice) -> Finding:
    """Totals against a sum in fractions, at the cap and far beyond it."""
    rng, cells, held = np.random.default_rng(0), len(lattice.levels), len(lattice.levels) + len(lattice.slopes)
    tried = [[count] * held for count in (3, lattice.largest_total, 2**62)]
    for records in (10, lattice.largest_total, 2**62):
        counts = [int(n) * records // 10 for n in rng.multinomial(10, np.full(cells, 1 / cells))]
        sums = [
            counts[low] * int(rng.integers(0, 1001)) * steps // 1000 if low >= 0 else records * steps
            for low, _, steps in lattice.workload.ends
        ]
        tried.append([*counts, *sums])
    same = True
    for numbers in tried:
        totals = [Fraction(0)] * lattice.measurements
        for column, number in zip((*lattice.levels, *lattice.slopes), numbers, strict=True):
            for i, q in column.items():
                totals[i] += Fraction(q * number, 2**lattice.fine)
        expected = clamp_again(lattice, [math.floor(total * 2**lattice.bits) for total in totals])
        same = same and take_apart(lattice, CellCounts(np.array(numbers, dtype=object))) == expected
    if isinstance(lattice.noise, KNorm):  # on the fine lattice, where every total is whole
        return Finding("exact measurements", same, f"totals of α + β u against fractions, up to {2**62}, never cut")
    return Finding("exact measurements", same, f"totals of α + β u against fractions, up to {2**62} records")
