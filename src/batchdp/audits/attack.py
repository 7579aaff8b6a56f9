"""The attack: the real noise on neighbouring tables, and a lower bound on what it gives away.

Clopper–Pearson intervals bound the privacy loss from below: a bound above what is charged is a proof that the promise
is broken, with a chance of one in a million of saying so wrongly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import sparse
from scipy.special import ndtri
from scipy.stats import beta

from batchdp.audits.finding import Finding
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.mechanism import Mechanism
from batchdp.mechanism.neighbours import Neighbours
from batchdp.privacy import LAPLACE, Noise

FALSE_ALARM = 1e-6
RUNS = 100_000
"""Releases on each of two neighbouring tables."""
MOST_ROWS = 4
"""Measurements of a cell that the attack looks at: those that move most."""
PILOT = 0.1
"""Share of the runs that choose the event; the others measure it."""


def attacked(
    lattice: Lattice | AmountLattice, noise: Mechanism, neighbours: Neighbours, budget: float, runs: int
) -> Iterator[Finding]:
    """The checks that run the noise itself."""
    if not (math.isfinite(noise.scale) and noise.scale > 0):
        yield Finding("noise", False, f"a scale of {noise.scale}")
        return
    if lattice.integers.shape[0] == 0:
        yield Finding("attack", True, "nothing is measured")
        return
    for name, moved in worst_records(lattice).items():
        largest = np.sort(np.abs(moved[moved != 0]))[::-1]
        bound = lower_bound(noise, largest[:MOST_ROWS] * neighbours.factor, runs, lattice.noise)
        yield Finding(f"attack on the {name}", bound <= budget, f"{bound:.4f} proven of {budget:.6g} charged")
    draws = np.array([float(z) for z in noise.draw([0] * runs)])
    if not np.any(draws):
        yield Finding("noise", False, "there is none")
        return
    yield scale_finding(draws, noise)
    yield independence_finding(draws)
    yield fork_finding(noise)


def worst_records(lattice: Lattice | AmountLattice) -> dict[str, np.ndarray]:
    """How a record moves the measurements: one that moves them most, and one whose movement is most concentrated."""
    columns = sparse.csc_array(lattice.integers)
    sums = np.asarray(abs(columns).sum(axis=0)).ravel()
    tops = np.asarray(abs(columns).max(axis=0).toarray()).ravel()
    found = {}
    for name, sizes in (("most concentrated column", tops), ("largest column", sums)):
        ends = np.cumsum(lattice.workload.blocks)
        every = [
            end - size + int(np.argmax(sizes[end - size : end]))
            for end, size in zip(ends, lattice.workload.blocks, strict=True)
        ]
        # Of the blocks that a record can have a cell in at once: others exclude each other.
        cells = max(
            ([every[block] for block in met] for met in lattice.workload.meetings), key=lambda own: sum(sizes[own])
        )
        found[tuple(cells)] = (name, np.asarray(columns[:, cells].sum(axis=1)).ravel())
    return dict(found.values())


def lower_bound(noise: Mechanism, shift: np.ndarray, runs: int, kind: Noise) -> float:
    """A lower bound on the privacy loss between measurements 0 and `shift`, wrong with a chance of one in a million."""
    if shift.size == 0:
        return 0.0
    one = _released(noise, np.zeros_like(shift), runs)
    other = _released(noise, shift, runs)
    return proven_between(kind, evidence(kind, one, shift, noise.scale), evidence(kind, other, shift, noise.scale))


def proven_between(kind: Noise, here: Dense, there: Dense) -> float:
    """The least privacy loss that evidence from runs without a record, and with it, can have."""
    pilot = max(1, int(PILOT * len(here)))
    thresholds = np.quantile(np.concatenate([here[:pilot], there[:pilot]]), np.linspace(0.02, 0.98, 49))
    best = max(thresholds, key=lambda level: proven(kind, here[:pilot] >= level, there[:pilot] >= level, 1e-2))
    return proven(kind, here[pilot:] >= best, there[pilot:] >= best, FALSE_ALARM)


def _released(noise: Mechanism, measurements: np.ndarray, runs: int) -> Dense:
    values = noise.draw([int(z) for z in measurements] * runs)
    return np.array([float(z) for z in values]).reshape(runs, len(measurements))


def evidence(kind: Noise, released: Dense, shift: np.ndarray, scale: float) -> Dense:
    """The log likelihood ratio of `shift` against 0, but for a constant; ties at its ends are as they should be."""
    if kind == LAPLACE:
        return np.asarray((np.abs(released) - np.abs(released - shift)).sum(axis=1) / scale)
    return np.asarray(released @ shift / scale**2)


def proven(kind: Noise, here: np.ndarray, there: np.ndarray, chance: float) -> float:
    """The least privacy loss that the rates of an event without a record, and with it, can have."""
    return (_proven_epsilon if kind == LAPLACE else _proven_rho)(here, there, chance)


def _proven_epsilon(here: np.ndarray, there: np.ndarray, chance: float) -> float:
    """log of the least true over the greatest false positive rate, and the same for the complements."""
    forward = math.log(max(_least(there, chance), 1e-300) / _most(here, chance))
    backward = math.log(max(_least(~here, chance), 1e-300) / _most(~there, chance))
    return max(0.0, forward, backward)


def _proven_rho(here: np.ndarray, there: np.ndarray, chance: float) -> float:
    """μ²/2 for the least μ of a Gaussian trade-off between the two error rates."""
    separation = float(ndtri(_least(there, chance)) - ndtri(_most(here, chance)))
    return max(0.0, separation) ** 2 / 2


def _least(events: np.ndarray, chance: float) -> float:
    """Clopper–Pearson: the probability of the event is at least this."""
    hits = int(events.sum())
    return float(beta.ppf(chance / 2, hits, len(events) - hits + 1)) if hits else 0.0


def _most(events: np.ndarray, chance: float) -> float:
    hits = int(events.sum())
    return float(beta.isf(chance / 2, hits + 1, len(events) - hits)) if hits < len(events) else 1.0


def scale_finding(draws: Dense, noise: Mechanism) -> Finding:
    """A score test of the scale: its maximum likelihood estimate against its own standard error."""
    ratios, error = unit_ratio(noise.noise, draws[None] / noise.scale)
    ratio = float(ratios[0])
    limit = -float(ndtri(FALSE_ALARM / 2)) * error
    return Finding("noise scale", abs(ratio - 1) <= limit, f"{ratio:.4f} of what is claimed, ±{limit:.4f} allowed")


def unit_ratio(kind: Noise, noise: Dense) -> tuple[Dense, float]:
    """For rows of noise of scale 1 the estimate of what is 1 for the scale, |η| or η², and its standard error."""
    runs = noise.shape[1]
    if kind == LAPLACE:
        return np.asarray(np.mean(np.abs(noise), axis=1)), 1 / math.sqrt(runs)
    return np.asarray(np.mean(np.square(noise), axis=1)), math.sqrt(2 / runs)


def independence_finding(draws: Dense) -> Finding:
    """Neighbouring draws must not depend on one another; equal halves would be one draw used twice."""
    centred = np.sign(draws) * np.minimum(np.abs(draws), np.quantile(np.abs(draws), 0.99))
    halves = np.corrcoef(centred[: len(draws) // 2 * 2].reshape(-1, 2).T)[0, 1]
    limit = -float(ndtri(FALSE_ALARM / 2)) / math.sqrt(len(draws) / 2)
    return Finding("independent draws", bool(abs(halves) <= limit), f"correlation {halves:.4f}, ±{limit:.4f} allowed")


def fork_finding(noise: Mechanism, measurements: int = 8) -> Finding:
    """Two forked children and their parent must draw different noise."""
    if not hasattr(os, "fork"):
        return Finding("forked processes", True, "this system does not fork")
    nothing = [0] * measurements
    drawn = [_in_child(lambda: noise.draw(nothing)), _in_child(lambda: noise.draw(nothing)), repr(noise.draw(nothing))]
    return Finding("forked processes", len(set(drawn)) == 3, f"{len(set(drawn))} of 3 draw differently")


def _in_child(draw: Callable[[], Sequence[int]]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, repr(draw()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    return drawn
