"""The audit of shaped noise: whatever a record adds inside its bodies in fractions, then the real draws attacked.

Records are gone through anew: every choice of one cell or none in each of the blocks that meet; of amounts both ends of
every stretch, and some records between.

The attack looks at the log likelihood ratio Σ ε_g (‖y_g‖ − ‖y_g − q_g‖) of a column q that is added. Its norms are
floats: they choose an event, and an event that is chosen badly proves less, never too much.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import singledispatch
from operator import add
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from batchdp.audits.attack import FALSE_ALARM, PILOT, attack_noise, fork_finding, independence_finding, proven_between
from batchdp.audits.exact import Finding, records_of, rederive
from batchdp.linalg.l1_ball import gauges
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.lattice import InBodies, ShapedAmounts, ShapedLattice
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample_bodies
from batchdp.privacy import KNorm

SECONDS = 120.0
"""What the draws of an attack may take, by their estimate."""
FEWEST_RUNS = 50
"""Whatever they take: few runs prove little of ε, and still tell noise of another scale."""
CANDIDATES = 16
"""Columns of the largest norm that are tried on pilot runs; every column of a body's corners has it."""
RECORDS = 2000
"""In several blocks, that are looked at for the attack."""
TRIALS = 500
"""Pilot runs that choose among them."""


@rederive.register(ShapedLattice)
@rederive.register(ShapedAmounts)
def _(measurement: Any) -> tuple[list[int], str]:
    """1 for every group whose body holds what any record adds, in fractions; as much more as one is outside."""
    certain, some = columns_by_block(measurement)
    met, largest, seen, start = measurement.workload.meetings, [], 0, 0
    for group in measurement.groups:  # whose bodies are drawn from
        own = slice(start, start := start + group.body.rank)
        vertices = set(map(tuple, group.body.vertices.T.tolist()))
        changes = changes_of([{column[own] for column in block} for block in certain], met)
        between = [changes_of([{column[own] for column in block} for block in one], met) for one in some]
        looked = changes.union(*between)
        largest.append(max((_norm(group.body, vertices, column) for column in looked), default=Fraction(0)))
        seen += len(looked)
    told = f"{seen:,} changes by a record in fractions, none beyond {float(max(largest)):.9g} times its body"
    return [math.ceil(norm) for norm in largest], told


Column = tuple[int, ...]
ByBlock = list[set[Column]]


@singledispatch
def columns_by_block(measurement: Any) -> tuple[ByBlock, list[ByBlock]]:
    """For every block what a record in each of its cells adds; and the same with some records between cells."""
    raise TypeError(f"nothing says what a record adds to a {type(measurement).__name__}")


@columns_by_block.register
def _(measurement: ShapedLattice) -> tuple[ByBlock, list[ByBlock]]:
    Q, found, start = sparse.csc_array(measurement.integers), [], 0
    for size in measurement.workload.blocks:
        own = np.unique(Q[:, start : start + size].toarray(), axis=1)
        found.append(set(map(tuple, own.T.tolist())))
        start += size
    return found, []


@columns_by_block.register
def _(measurement: ShapedAmounts) -> tuple[ByBlock, list[ByBlock]]:
    rows = range(measurement.measurements)
    found: ByBlock = [set() for _ in measurement.workload.blocks]
    between: list[tuple[int, Column]] = []
    for block, at_end, added in records_of(measurement):
        column = tuple(added.get(i, 0) for i in rows)
        if at_end:
            found[block].add(column)
        else:
            between.append((block, column))
    chance = random.Random(0)
    # Each of them with one record of every other block: products of all would be too many.
    partners = [[{chance.choice(sorted(block))} if block else set() for block in found] for _ in between]
    return found, [
        [*one[:own], {column}, *one[own + 1 :]] for one, (own, column) in zip(partners, between, strict=True)
    ]


def changes_of(by_block: ByBlock, meetings: Any) -> set[Column]:
    """Every sum of at most one column per block, over blocks that meet."""
    nothing = (0,) * len(next((column for block in by_block for column in block), ()))
    found: set[Column] = set()
    for met in meetings:
        sums = {nothing}
        for block in met:
            sums |= {tuple(map(add, one, other)) for one in sums for other in by_block[block]}
        found |= sums
    return found


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


def telling_shift(lattice: InBodies, epsilons: Sequence[float], draws: Dense, factor: int = 1) -> Dense:
    """So many times the column of Q, of those with the largest norm over all groups, that shows most.

    It is chosen by pilot runs alone, which choose the event too and measure nothing.
    """
    Q = _some_changes(lattice)
    norms = np.zeros(Q.shape[1])
    for (own, group), columns in zip(lattice.shape.parts, lattice.record_columns, strict=True):
        norms += float(group.share) * gauges(columns.astype(np.float64), Q[own].T)
    largest = np.flatnonzero(norms >= norms.max() * (1 - 1e-8))
    spread = np.unique(np.linspace(0, len(largest) - 1, CANDIDATES).astype(int))
    shifts = factor * Q[:, largest[spread]].T
    pilot = draws[: min(TRIALS, int(PILOT * len(draws)))]
    shown = [-float(evidence_of(lattice, epsilons, pilot, shift).sum()) for shift in shifts]
    return np.asarray(shifts[int(np.argmax(shown))])


def _some_changes(lattice: Any) -> Dense:
    """What records add, in floats: of one block every column, of several some of their sums."""
    by_block, _ = columns_by_block(lattice)
    listed = [sorted(block) for block in by_block]
    if len(listed) == 1:
        return np.array(listed[0], dtype=np.float64).T
    chance, met = random.Random(0), lattice.workload.meetings
    found = set()
    for _ in range(RECORDS):
        chosen = [chance.choice(listed[block]) for block in chance.choice(met) if listed[block]]
        found.add(tuple(map(sum, zip(*chosen, strict=True))))
    return np.array(sorted(found), dtype=np.float64).T


def evidence_of(lattice: InBodies, epsilons: Sequence[float], released: Dense, shift: Dense) -> Dense:
    """The log likelihood ratio of a column that was added against none."""
    total = np.zeros(len(released))
    for (own, _), columns, epsilon in zip(lattice.shape.parts, lattice.record_columns, epsilons, strict=True):
        K = columns.astype(np.float64)
        total += epsilon * (gauges(K, released[:, own]) - gauges(K, released[:, own] - shift[own]))
    return total


def _scale_finding(lattice: InBodies, epsilons: Sequence[float], draws: Dense) -> Finding:
    """ε_g ‖z_g‖ is a sum of k exponential numbers: its mean against its own standard error, of the worst group."""
    worst, ratio, limit = 0.0, 1.0, 0.0
    for (own, group), columns, epsilon in zip(lattice.shape.parts, lattice.record_columns, epsilons, strict=True):
        found = float(np.mean(gauges(columns.astype(np.float64), draws[:, own]))) * epsilon / group.rank
        allowed = -float(ndtri(FALSE_ALARM / 2)) / math.sqrt(group.rank * len(draws))
        if abs(found - 1) / allowed >= worst:
            worst, ratio, limit = abs(found - 1) / allowed, found, allowed
    return Finding("noise scale", worst <= 1, f"{ratio:.4f} of what is claimed, ±{limit:.4f} allowed")
