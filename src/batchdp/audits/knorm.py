"""The audit of shaped noise: every column inside its bodies in fractions, then the real draws attacked.

The attack looks at the log likelihood ratio Σ ε_g (‖y_g‖ − ‖y_g − q_g‖) of a column q that is added. Its norms are
floats: they choose an event, and an event that is chosen badly proves less, never too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtri

from batchdp.audits.attack import FALSE_ALARM, PILOT, attack_noise, fork_finding, independence_finding, proven_between
from batchdp.audits.exact import check_arithmetic, multiply_again, rederive, take_apart
from batchdp.audits.finding import Finding
from batchdp.linalg.gauge import gauges
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.lattice import ShapedLattice
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample_bodies
from batchdp.privacy import KNorm
from batchdp.private import CellCounts

SECONDS = 120.0
"""What the draws of an attack may take, by their estimate."""
FEWEST_RUNS = 50
"""Whatever they take: few runs prove little of ε, and still tell noise of another scale."""
CANDIDATES = 16
"""Columns of the largest norm that are tried on pilot runs; every column of a body's corners has it."""
TRIALS = 500
"""Pilot runs that choose among them."""


@rederive.register
def _(measurement: ShapedLattice) -> tuple[list[int], str]:
    """1 for every group whose columns are all inside its body, in fractions; as much more as one is outside."""
    columns = sorted({tuple(column) for column in np.unique(measurement.integers.toarray(), axis=1).T.tolist()})
    bodies = [group.body for group in measurement.groups]  # which are drawn from
    vertices = [set(map(tuple, body.vertices.T.tolist())) for body in bodies]
    largest = [Fraction(0)] * len(bodies)
    for column in columns:
        start = 0
        for g, (body, known) in enumerate(zip(bodies, vertices, strict=True)):
            largest[g] = max(largest[g], _norm(body, known, column[start : start + body.rank]))
            start += body.rank
    told = f"{len(columns):,} columns in fractions, none beyond {float(max(largest)):.9g} times its body"
    return [math.ceil(norm) for norm in largest], told


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


@check_arithmetic.register
def _(measurement: ShapedLattice) -> Finding:
    """Q x in Python's whole numbers, far beyond 64 bits: nothing is clamped."""
    same = True
    for count in (3, measurement.largest_total, 2**62):
        counts = np.full(measurement.cells, count, dtype=np.int64)
        same = same and take_apart(measurement, CellCounts(counts)) == multiply_again(measurement, counts)
    return Finding("exact measurements", same, f"Q x against whole numbers, up to {2**62} a cell, never clamped")


@attack_noise.register
def _(kind: KNorm, made: Mechanism, runs: int, draw: Any) -> Iterator[Finding]:
    """Fewer runs where a draw takes long, and it says how many."""
    lattice: Any = made.measurement
    draws = draw or (lambda count: sample_bodies(lattice.groups, made.noises, count))
    seconds = sum(body.seconds_together for body in lattice.bodies)
    runs = min(runs, max(FEWEST_RUNS, int(SECONDS / (2 * seconds))))
    factor, budget = made.neighbours.factor, float(made.budget)
    claimed = [budget * float(group.share) / factor for group in lattice.groups]
    one, other = (np.array(draws(runs), dtype=np.float64) for _ in range(2))
    shift = telling_shift(lattice, claimed, one, factor)
    evidences = [evidence_of(lattice, claimed, released, shift) for released in (one, other + shift)]
    bound = proven_between(kind, *evidences)
    figures = f"{bound:.4f} proven of {budget:.6g} charged, by {runs:,} runs a side"
    yield Finding("attack on the largest column", bound <= budget, figures)
    yield _scale_finding(lattice, claimed, one)
    yield independence_finding(one[:, :1].T)
    yield fork_finding(lambda: draws(1)[0])


def telling_shift(lattice: ShapedLattice, epsilons: Sequence[float], draws: Dense, factor: int = 1) -> Dense:
    """So many times the column of Q, of those with the largest norm over all groups, that shows most.

    It is chosen by pilot runs alone, which choose the event too and measure nothing.
    """
    Q = np.unique(lattice.integers.toarray().astype(np.float64), axis=1)
    norms = np.zeros(Q.shape[1])
    for (own, group), columns in zip(lattice.shape.parts, lattice.record_columns, strict=True):
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
    for (own, _), columns, epsilon in zip(lattice.shape.parts, lattice.record_columns, epsilons, strict=True):
        K = columns.astype(np.float64)
        total += epsilon * (gauges(K, released[:, own]) - gauges(K, released[:, own] - shift[own]))
    return total


def _scale_finding(lattice: ShapedLattice, epsilons: Sequence[float], draws: Dense) -> Finding:
    """ε_g ‖z_g‖ is a sum of k exponential numbers: its mean against its own standard error, of the worst group."""
    worst, ratio, limit = 0.0, 1.0, 0.0
    for (own, group), columns, epsilon in zip(lattice.shape.parts, lattice.record_columns, epsilons, strict=True):
        found = float(np.mean(gauges(columns.astype(np.float64), draws[:, own]))) * epsilon / group.rank
        allowed = -float(ndtri(FALSE_ALARM / 2)) / math.sqrt(group.rank * len(draws))
        if abs(found - 1) / allowed >= worst:
            worst, ratio, limit = abs(found - 1) / allowed, found, allowed
    return Finding("noise scale", worst <= 1, f"{ratio:.4f} of what is claimed, ±{limit:.4f} allowed")
