"""The exact half: everything re-derived from the stored integers with Python's own whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.audits.amounts import amount_sensitivity, amounts_finding
from batchdp.audits.finding import Finding
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.cap import MOST_BIAS
from batchdp.mechanism.lattice import LARGEST, Lattice
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.mechanism import Mechanism
from batchdp.mechanism.neighbours import Neighbours
from batchdp.privacy import Noise


def exact(
    lattice: Lattice | AmountLattice, noise: Mechanism, law: NoiseLaw, neighbours: Neighbours, budget: float
) -> Iterator[Finding]:
    """The checks that need no randomness, in whole numbers and fractions."""
    rederived = amount_sensitivity if isinstance(lattice, AmountLattice) else true_sensitivity
    true = rederived(lattice, neighbours)  # type: ignore[arg-type]
    used = noise.sensitivity
    covers = used**lattice.noise.norm >= true
    kind = "Δ₁" if lattice.noise.norm == 1 else "Δ₂²"
    yield Finding("sensitivity", covers, f"{kind} = {true} re-derived, noise made for {used}")

    scale = Fraction(noise.scale) if math.isfinite(noise.scale) else Fraction(0)
    loss = _loss(lattice.noise, true, scale)
    yield Finding(
        "privacy loss",
        loss is not None and loss <= Fraction(budget) and noise.loss <= budget,
        f"{float(loss) if loss is not None else math.inf:.9g} of {budget:.9g} charged",
    )

    yield amounts_finding(lattice) if isinstance(lattice, AmountLattice) else _measurements_finding(lattice)

    yield bias_finding(lattice, law)


def bias_finding(lattice: Lattice | AmountLattice, law: NoiseLaw) -> Finding:
    """What answers are off apart from noise."""
    bias, errors = lattice.bias_bound, law.standard_errors
    share = float(np.max(bias / np.where(errors > 0, errors, 1), initial=0.0))
    return Finding("bias", bool(np.all(bias <= MOST_BIAS * errors)), f"at most {share:.2e} of an answer's noise")


def _measurements_finding(lattice: Lattice) -> Finding:
    rng = np.random.default_rng(0)
    cells = lattice.cells
    totals = rng.multinomial(min(lattice.largest_total, 2**40), np.full(cells, 1 / cells))
    far = np.full(cells, 2**62, dtype=np.int64)
    at_cap = np.zeros(cells, dtype=np.int64)
    at_cap[0] = lattice.largest_total
    same = all(
        [int(z) for z in lattice.measured(x)] == _clamped_product(lattice.integers, merged_exactly(lattice, x))
        for x in (totals, at_cap, far)
    )
    return Finding("exact measurements", same, f"Q x in 64 bits against whole numbers, up to {2**62} a cell")


def merged_exactly(lattice: Lattice, counts: np.ndarray) -> np.ndarray:
    """The counts on the cells of the workload, in Python's whole numbers."""
    if lattice.merging is None:
        return counts
    sums = [0] * lattice.integers.shape[1]
    for cell, count in zip(lattice.merging.indices.tolist(), counts.tolist(), strict=True):
        sums[cell] += count
    return np.array([min(total, 2**62) for total in sums], dtype=np.int64)


def true_sensitivity(lattice: Lattice, neighbours: Neighbours) -> int:
    """Δ₁, or Δ₂² for Gaussian noise, times the neighbours' factor, in Python's whole numbers.

    Norms add up over the blocks that a record can have a cell in at once; squares do where measurements see one block
    each.
    """
    columns = sparse.csc_array(lattice.integers)
    power = lattice.noise.norm
    largest, rows, start = [], [], 0
    for size in lattice.workload.blocks:
        bounds = columns.indptr[start : start + size + 1]
        spans = [slice(a, b) for a, b in pairwise(bounds)]
        largest.append(max(sum(abs(int(q)) ** power for q in columns.data[span]) for span in spans))
        rows.append(set(columns.indices[bounds[0] : bounds[-1]].tolist()))
        start += size
    apart = sum(map(len, rows)) == len(set().union(*rows))
    roots = [math.isqrt(square - 1) + 1 if square else 0 for square in largest]  # rounded up
    met = lattice.workload.meetings
    if power == 1 or apart:
        total = max(sum(largest[block] for block in own) for own in met)
    else:
        total = max(sum(roots[block] for block in own) for own in met) ** 2
    return int(total * neighbours.factor**power)


def _loss(noise: Noise, sensitivity: int, scale: Fraction) -> Fraction | None:
    """Δ₁ / b, or Δ₂² / 2σ²: the theorem behind OpenDP's map, in fractions."""
    if scale <= 0:
        return None
    return Fraction(sensitivity) / (noise.norm * scale**noise.norm)


def _clamped_product(Q: Any, counts: np.ndarray) -> list[int]:
    rows = sparse.csr_array(Q)
    product = []
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        pairs = zip(rows.data[start:end], rows.indices[start:end], strict=True)
        product.append(sum(int(q) * int(counts[j]) for q, j in pairs))
    return [max(-LARGEST, min(LARGEST, z)) for z in product]
