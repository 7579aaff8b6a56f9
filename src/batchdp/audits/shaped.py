"""The audit of shaped noise: every column inside its bodies in fractions, then the real draws attacked.

The attack looks at the log likelihood ratio Σ ε_g (‖y_g‖ − ‖y_g − q_g‖) of a column q that is added. Its norms are
floats: they choose an event, and an event that is chosen badly proves less, never too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from scipy.special import ndtri

from batchdp.audits.attack import FALSE_ALARM, PILOT, fork_finding, independence_finding, proven_between
from batchdp.audits.exact import merged_exactly
from batchdp.audits.finding import Finding
from batchdp.linalg.gauge import gauges
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.neighbours import Neighbours
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.lattice import ShapedLattice
from batchdp.mechanism.knorm.mechanism import ShapedMechanism

SECONDS = 120.0
"""What the draws of an attack may take, by their estimate."""
FEWEST_RUNS = 50
"""Whatever they take: few runs prove little of ε, and still tell noise of another scale."""
CANDIDATES = 16
"""Columns of the largest norm that are tried on pilot runs; every column of a body's corners has it."""
TRIALS = 500
"""Pilot runs that choose among them."""


def exact_shaped(
    lattice: ShapedLattice, noise: ShapedMechanism, neighbours: Neighbours, budget: float
) -> Iterator[Finding]:
    """The checks that need no randomness, in whole numbers and fractions."""
    columns = sorted({tuple(column) for column in np.unique(lattice.integers.toarray(), axis=1).T.tolist()})
    vertices = [set(map(tuple, body.vertices.T.tolist())) for body in noise.bodies]
    outside, largest = 0, Fraction(0)
    for column in columns:
        start, total = 0, Fraction(0)
        for body, known, group in zip(noise.bodies, vertices, lattice.shape.groups, strict=True):
            norm = _norm(body, known, column[start : start + body.rank])
            outside += norm > 1
            total += group.share * norm
            start += body.rank
        largest = max(largest, total)
    inside = outside == 0 and largest <= 1
    said = f"{len(columns):,} columns in fractions, the largest norm {float(largest):.9g}"
    yield Finding("columns inside their bodies", inside, said)
    used = noise.sensitivity
    yield Finding(
        "sensitivity", used >= neighbours.factor, f"{neighbours.factor} columns a unit, noise made for {used}"
    )
    loss = neighbours.factor * sum(noise.epsilons, Fraction(0)) * max(largest, Fraction(1))
    held = loss <= Fraction(budget) and noise.loss <= budget
    yield Finding("privacy loss", held, f"{float(loss):.9g} of {budget:.9g} charged")
    yield _measurements_finding(lattice)


def _norm(body: Body, vertices: set[tuple[int, ...]], column: tuple[int, ...]) -> Fraction:
    """At least the norm of a column: 1 for a vertex, else the weights of a combination that is checked here."""
    if column in vertices or tuple(-q for q in column) in vertices:
        return Fraction(1)
    if not any(column):
        return Fraction(0)
    weights = body.combination(column)
    for i, q in enumerate(column):
        if sum((w * int(body.vertices[i, j]) for j, w in weights.items()), Fraction(0)) != q:
            return Fraction(2)  # no combination of the vertices
    return sum(map(abs, weights.values()), Fraction(0))


def _measurements_finding(lattice: ShapedLattice) -> Finding:
    """Q x in Python's whole numbers, far beyond 64 bits: nothing is clamped."""
    Q, same = lattice.integers.toarray().tolist(), True
    for count in (3, lattice.largest_total, 2**62):
        counts = np.full(lattice.cells, count, dtype=np.int64)
        x = merged_exactly(lattice, counts).tolist()
        same = same and lattice.measured(counts) == [sum(int(q) * n for q, n in zip(row, x, strict=True)) for row in Q]
    return Finding("exact measurements", same, f"Q x against whole numbers, up to {2**62} a cell, never clamped")


def attacked_shaped(
    lattice: ShapedLattice, noise: ShapedMechanism, neighbours: Neighbours, budget: float, runs: int
) -> Iterator[Finding]:
    """The checks that run the noise itself; fewer runs where a draw takes long, and it says how many."""
    seconds = sum(body.seconds_together for body in noise.bodies)
    runs = min(runs, max(FEWEST_RUNS, int(SECONDS / (2 * seconds))))
    claimed = [budget * float(group.share) / neighbours.factor for group in lattice.shape.groups]
    one, other = (np.array(noise.draws(runs), dtype=np.float64) for _ in range(2))
    shift = telling_shift(lattice, claimed, one, neighbours.factor)
    evidences = [evidence_of(lattice, claimed, released, shift) for released in (one, other + shift)]
    bound = proven_between(lattice.noise, *evidences)
    figures = f"{bound:.4f} proven of {budget:.6g} charged, by {runs:,} runs a side"
    yield Finding("attack on the largest column", bound <= budget, figures)
    yield _scale_finding(lattice, claimed, one)
    yield independence_finding(one[:, 0])
    yield fork_finding(noise, len(shift))


def telling_shift(lattice: ShapedLattice, epsilons: Sequence[float], draws: Dense, factor: int = 1) -> Dense:
    """So many times the column of Q, of those with the largest norm over all groups, that shows most.

    It is chosen by pilot runs alone, which choose the event too and measure nothing.
    """
    Q = np.unique(lattice.integers.toarray().astype(np.float64), axis=1)
    norms = np.zeros(Q.shape[1])
    for (own, group), columns in zip(lattice.shape.parts, lattice.columns, strict=True):
        norms += float(group.share) * gauges(columns.astype(np.float64), Q[own].T)
    largest = np.flatnonzero(norms >= norms.max() * (1 - 1e-8))
    spread = np.unique(np.linspace(0, len(largest) - 1, CANDIDATES).astype(int))
    shifts = factor * Q[:, largest[spread]].T
    pilot = draws[: min(TRIALS, int(PILOT * len(draws)))]
    shown = [-float(evidence_of(lattice, epsilons, pilot, shift).sum()) for shift in shifts]
    return np.asarray(shifts[int(np.argmax(shown))])


def evidence_of(lattice: ShapedLattice, epsilons: Sequence[float], released: Dense, shift: Dense) -> Dense:
    """The log likelihood ratio of a column that was added against none."""
    total = np.zeros(len(released))
    for (own, _), columns, epsilon in zip(lattice.shape.parts, lattice.columns, epsilons, strict=True):
        K = columns.astype(np.float64)
        total += epsilon * (gauges(K, released[:, own]) - gauges(K, released[:, own] - shift[own]))
    return total


def _scale_finding(lattice: ShapedLattice, epsilons: Sequence[float], draws: Dense) -> Finding:
    """ε_g ‖z_g‖ is a sum of k exponential numbers: its mean against its own standard error, of the worst group."""
    worst, ratio, limit = 0.0, 1.0, 0.0
    for (own, group), columns, epsilon in zip(lattice.shape.parts, lattice.columns, epsilons, strict=True):
        found = float(np.mean(gauges(columns.astype(np.float64), draws[:, own]))) * epsilon / group.rank
        allowed = -float(ndtri(FALSE_ALARM / 2)) / math.sqrt(group.rank * len(draws))
        if abs(found - 1) / allowed >= worst:
            worst, ratio, limit = abs(found - 1) / allowed, found, allowed
    return Finding("noise scale", worst <= 1, f"{ratio:.4f} of what is claimed, ±{limit:.4f} allowed")
