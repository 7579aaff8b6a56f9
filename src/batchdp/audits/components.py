"""The audit of strategies over many columns: every component re-derived in whole numbers, then the real noise attacked.

The exact half puts single records through the real measurement and adds up what moves, in Python's own integers; the
attack looks at several components at once, as somebody would who knows all but one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from batchdp.audits.attack import FALSE_ALARM, MOST_ROWS, PILOT, evidence, proven, unit_ratio
from batchdp.audits.finding import Finding
from batchdp.mechanism.cap import MOST_BIAS
from batchdp.mechanism.components.axes import Records
from batchdp.mechanism.components.drawing import draw as draw_noise
from batchdp.mechanism.components.drawing import noise_loss
from batchdp.mechanism.components.preparing import Prepared
from batchdp.mechanism.neighbours import Neighbours
from batchdp.privacy import Noise

Integers = NDArray[np.int64]
Dense = NDArray[np.float64]
Draw = Callable[[Dense, Integers], Integers]

MOST_RECORDS = 400
"""Records that every component is looked at with; all of them where there are no more."""
MOST_MEASURED = 20_000_000
"""Measurements in all that are made for it: fewer records where components are large."""
ATTACKED = 8
"""Components that are attacked together: those that lose most."""


def exact_components(prepared: Prepared, neighbours: Neighbours, budget: float) -> Iterator[Finding]:
    """The checks that need no randomness, in whole numbers and fractions."""
    lattice, factor = prepared.lattice, neighbours.factor**prepared.noise.norm
    records, everything = _records(prepared)
    largest = moved_by(prepared, records)
    noises = prepared.noises
    measuring = [g for g, size in enumerate(lattice.sizes.tolist()) if size and largest[g]]
    covered = len(noises) == len(lattice.groups) and all(
        noises[g].moved >= largest[g] * factor and noises[g].scale > 0 for g in measuring
    )
    seen = "all" if everything else f"{len(records):,} of the"
    yield Finding(
        "sensitivity",
        covered,
        f"{len(measuring):,} components moved by {seen} records, none by more than its noise is made for",
    )
    loss: Fraction | None = Fraction(0)
    for g in measuring:
        scale = Fraction(noises[g].scale) if g < len(noises) and math.isfinite(noises[g].scale) else Fraction(0)
        moved = max(largest[g] * factor, noises[g].moved if g < len(noises) else 0)
        loss = None if scale <= 0 or loss is None else loss + noise_loss(prepared.noise, moved, scale)
    claimed = sum((Fraction(noise.loss) for noise in noises), Fraction(0))
    held = loss is not None and loss <= claimed <= Fraction(budget)
    told = math.inf if loss is None else float(loss)
    yield Finding("privacy loss", held, f"{told:.12g} in all components, {float(claimed):.12g} claimed of {budget:.9g}")
    yield _arithmetic(prepared)
    worst, _ = prepared.reader.worst_bias()
    yield Finding("bias", worst <= MOST_BIAS, f"at most {worst:.2e} of an answer's noise")


def moved_by(prepared: Prepared, records: Integers) -> list[int]:
    """For every component the most that one of the records changes it, by measuring each record alone.

    In the noise's norm, to its power: the sum of magnitudes for Laplace noise, of squares for Gaussian noise.
    """
    norm = prepared.noise.norm
    found = [0] * len(prepared.lattice.groups)
    for code in records:
        moved = [0] * len(found)
        for g, _, z in prepared.reader.measured(Records(code[None])):
            values, times = np.unique(z, return_counts=True)
            moved[g] += sum(abs(int(v)) ** norm * int(n) for v, n in zip(values, times, strict=True))
        found = [max(old, new) for old, new in zip(found, moved, strict=True)]
    return found


def _records(prepared: Prepared) -> tuple[Integers, bool]:
    """Records to look at: all, or as many as can be, drawn by a fixed seed, since nothing is released here."""
    sizes = prepared.lattice.workload.sizes
    most = min(MOST_RECORDS, max(2, MOST_MEASURED // max(1, prepared.lattice.measurements)))
    if prepared.lattice.workload.cells <= most:
        return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64), True
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, n, most) for n in sizes]), False


def _arithmetic(prepared: Prepared) -> Finding:
    """Measurements in 64 bits against whole numbers, at the cap and beyond."""
    lattice = prepared.lattice
    sizes = lattice.workload.sizes
    rng = np.random.default_rng(1)
    codes = np.column_stack([rng.integers(0, n, 20) for n in sizes])
    same = True
    looked = 0
    for times in (np.full(20, lattice.largest_total // 20), np.full(20, 2**62)):
        records = Records(codes, times.astype(np.int64))
        both = zip(prepared.reader.measured(records), prepared.reader.measured(records, exact=True), strict=True)
        for (_, _, here), (_, _, there) in both:
            if looked > MOST_MEASURED // 10:
                break
            same = same and bool(np.array_equal(here, there)) and int(np.abs(here).max(initial=0)) <= 2**61
            looked += len(here)
    return Finding("exact measurements", same, f"Q x in 64 bits against whole numbers, up to {2**62} a record")


def attacked_components(
    prepared: Prepared, neighbours: Neighbours, budget: float, runs: int, draw: Draw | None = None
) -> Iterator[Finding]:
    """The checks that run the noise itself."""
    kind = prepared.noise
    draws: Draw = draw or (lambda scales, sizes: draw_noise(scales, sizes, None, kind))
    chosen = sorted(range(len(prepared.noises)), key=lambda g: -prepared.noises[g].loss)[:ATTACKED]
    chosen = [g for g in chosen if prepared.noises[g].moved]
    if not chosen:
        return
    shifts = _shifts(prepared, chosen, neighbours.factor)
    scales = prepared.scales[chosen]
    here, there = (_evidence(kind, draws, shifts, scales, runs, side) for side in (0, 1))
    pilot = int(PILOT * runs)
    thresholds = np.quantile(np.concatenate([here[:pilot], there[:pilot]]), np.linspace(0.02, 0.98, 49))
    best = max(thresholds, key=lambda level: proven(kind, here[:pilot] >= level, there[:pilot] >= level, 1e-2))
    bound = proven(kind, here[pilot:] >= best, there[pilot:] >= best, FALSE_ALARM)
    yield Finding("attack on several components", bound <= budget, f"{bound:.4f} proven of {budget:.6g} charged")
    sizes = np.full(len(chosen), runs, dtype=np.int64)
    noise = draws(scales, sizes).reshape(len(chosen), runs) / scales[:, None]
    if not np.all(np.any(noise, axis=1)):
        yield Finding("noise", False, "a component has none")
        return
    limit = -float(ndtri(FALSE_ALARM / 2 / len(chosen)))
    ratios, spread = unit_ratio(kind, noise)
    off = float(np.abs(ratios - 1).max())
    allowed = limit * spread
    yield Finding("noise scale", off <= allowed, f"off by {off:.4f} at the most, {allowed:.4f} allowed")
    flat = noise.reshape(-1)
    pairs = [(flat[0::2], flat[1::2]), *((noise[0], other) for other in noise[1:])]
    together = max(abs(float(np.corrcoef(one, other[: len(one)])[0, 1])) for one, other in pairs)
    allowed = limit / math.sqrt(runs / 2)
    yield Finding("independent draws", together <= allowed, f"correlation {together:.4f}, {allowed:.4f} allowed")


def _shifts(prepared: Prepared, chosen: list[int], factor: int) -> list[Dense]:
    """How a record moves the chosen components, those measurements that it moves most."""
    one = Records(np.zeros((1, len(prepared.lattice.workload.sizes)), dtype=np.int64))
    moved: dict[int, list[Dense]] = {g: [] for g in chosen}
    for g, _, exact in prepared.reader.measured(one):
        if g in moved:
            moved[g].append(np.sort(np.abs(exact.astype(np.float64)))[::-1][:MOST_ROWS])
    return [np.sort(np.concatenate(moved[g]))[::-1][:MOST_ROWS] * factor for g in chosen]


def _evidence(kind: Noise, draws: Draw, shifts: list[Dense], scales: Dense, runs: int, side: int) -> Dense:
    """The log likelihood ratio of the record's presence, for releases without it (0) and with it (1)."""
    sizes = np.array([runs * len(shift) for shift in shifts], dtype=np.int64)
    noise = draws(scales, sizes)
    total = np.zeros(runs)
    start = 0
    for shift, scale, size in zip(shifts, scales, sizes, strict=True):
        own = noise[start : start + size].reshape(runs, len(shift)) + side * shift
        total += evidence(kind, own, shift, scale)
        start += int(size)
    return total
