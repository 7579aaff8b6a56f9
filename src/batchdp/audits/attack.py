"""The attack: the real noise on neighbouring tables, and a lower bound on what it gives away.

Clopper–Pearson intervals bound the privacy loss from below: a bound above what is charged is a proof that the promise
is broken, with a chance of one in a million of saying so wrongly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from batchdp.audits.exact import Finding
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.measure import measure
from batchdp.mechanism.measurement import GroupNoise, Integers
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample, sample_independent
from batchdp.mechanism.tables import TableLattice
from batchdp.privacy import Gaussian, Noise
from batchdp.private import Records

FALSE_ALARM = 1e-6
RUNS = 100_000
"""Releases on each of two neighbouring tables."""
MOST_RUNS = 20_000
"""Of several groups with independent noise, each of which is drawn for."""
MOST_ROWS = 4
"""Measurements of a group that the attack looks at: those that move most."""
MOST_RELEASED = 200_000
"""Draws of whole releases that are looked at."""
ATTACKED = 8
"""Groups that are attacked together: those that lose most."""
TENTH = 0.1
"""δ of the ε at which the profile of Gaussian noise is attacked: there it says much of the scale."""
PILOT = 0.1
"""Share of the runs that choose the event; the others measure it."""


Draw = Callable[[Dense, Integers], NDArray[Any]]
"""Noise of these scales, so many of each, one group after the other."""


def attack(made: Mechanism, runs: int, draw: Any = None) -> Iterator[Finding]:
    """The checks that run the noise itself.

    Args:
        made: what would be released.
        runs: releases on each of two neighbouring tables.
        draw: a test's own noise.
    """
    moved = movements(made.measurement, made.noises).values()
    touched = sorted({g for shifts in moved for g, shift in shifts.items() if np.any(shift)})
    if not touched:
        yield Finding("attack", True, "nothing is measured")
        return
    for scale in made.scales[touched]:
        if not (np.isfinite(scale) and scale > 0):
            yield Finding("noise", False, f"a scale of {scale}")
            return
    yield from attack_noise(made.noise, made, runs, draw)


@singledispatch
def attack_noise(kind: Noise, made: Mechanism, runs: int, draw: Any) -> Iterator[Finding]:
    """By the kind of noise: here on draws that are independent for every measurement."""
    draws: Draw = draw or (lambda scales, sizes: sample_independent(kind, scales, sizes))
    runs = runs if len(made.noises) == 1 else min(runs, MOST_RUNS)
    for name, shifts in movements(made.measurement, made.noises).items():
        chosen = [g for g, shift in shifts.items() if len(shift) and made.noises[g].moved]
        if not chosen:
            continue
        moves = [np.sort(np.abs(shifts[g]))[::-1][:MOST_ROWS] * made.neighbours.factor for g in chosen]
        scales = made.scales[chosen]
        here, there = (_evidence(kind, draws, moves, scales, runs, side) for side in (0, 1))
        bound, budget = proven_between(kind, here, there), float(made.budget)
        yield Finding(f"attack on the {name}", bound <= budget, f"{bound:.4f} proven of {budget:.6g} charged")
        separation = sum(float(move @ move) / scale**2 for move, scale in zip(moves, scales, strict=True))
        yield from attack_profile(kind, name, budget, here, there, separation, float(scales.min()))
    groups = sorted(range(len(made.noises)), key=lambda g: -made.noises[g].loss)[:ATTACKED]
    groups = [g for g in groups if made.noises[g].moved]
    scales = made.scales[groups]
    drawn = np.asarray(draws(scales, np.full(len(groups), runs, dtype=np.int64)), dtype=np.float64)
    noise = drawn.reshape(len(groups), runs) / scales[:, None]
    if not np.all(np.any(noise, axis=1)):
        yield Finding("noise", False, "there is none")
        return
    yield scale_finding(kind, noise)
    yield independence_finding(noise)
    yield fork_finding(lambda: draws(scales[:1], np.array([8], dtype=np.int64)).tolist())
    if draw is None:
        yield released_finding(kind, made, groups)


def released_finding(kind: Noise, made: Mechanism, groups: list[int]) -> Finding:
    """The noise of whole releases: that of every group has its own scale, and no draw stands in two places."""
    sizes = made.measurement.sizes
    total, ends = int(sizes.sum()), np.cumsum(sizes)
    if total > MOST_RELEASED:
        return Finding("noise of releases", True, f"{total:,} measurements are too many to look at")
    times = int(np.clip(MOST_RELEASED // max(1, total), 2, 400))
    drawn = np.array([sample(made.measurement, made.noises) for _ in range(times)], dtype=np.float64)
    worst, held = 0.0, True
    for g in groups:
        own = drawn[:, ends[g] - sizes[g] : ends[g]].reshape(1, -1) / made.scales[g]
        ratios, error = unit_ratio(kind, own)
        off = abs(float(ratios[0]) - 1) / (-float(ndtri(FALSE_ALARM / 2 / len(groups))) * error)
        worst, held = max(worst, off), held and off <= 1
        held = held and (sizes[g] == 1 or independence_finding(own).held)
    return Finding("noise of releases", held, f"{times} releases, {worst:.2f} of what scales may be off")


@singledispatch
def movements(measurement: Any, noises: Sequence[GroupNoise]) -> dict[str, dict[int, NDArray[Any]]]:
    """How one record moves measurements, by group, for records that may show most; each kind registers its own.

    A record that is chosen badly proves less, never too much.
    """
    raise TypeError(f"nothing says how a record moves a {type(measurement).__name__}")


@movements.register(Lattice)
@movements.register(AmountLattice)
def _(measurement: Any, noises: Sequence[GroupNoise]) -> dict[str, dict[int, NDArray[Any]]]:
    """One that moves them most, and one whose movement is most concentrated."""
    columns = sparse.csc_array(measurement.integers)
    if 0 in columns.shape:
        return {}
    if measurement.workload.kinds is not None:
        columns = sparse.csc_array(columns @ measurement.workload.kinds)
    sums = np.asarray(abs(columns).sum(axis=0)).ravel()
    tops = np.asarray(abs(columns).max(axis=0).toarray()).ravel()
    workload = measurement.workload
    blocks, meetings = (workload.blocks, workload.meetings) if workload.kinds is None else (sums.shape, [(0,)])
    found = {}
    for name, sizes in (("most concentrated column", tops), ("largest column", sums)):
        ends = np.cumsum(blocks)
        every = [end - size + int(np.argmax(sizes[end - size : end])) for end, size in zip(ends, blocks, strict=True)]
        # Of the blocks that a record can have a cell in at once: others exclude each other.
        cells = max(([every[block] for block in met] for met in meetings), key=lambda own: sum(sizes[own]))
        moved = np.asarray(columns[:, cells].sum(axis=1)).ravel()
        found[tuple(cells)] = (name, {0: moved[moved != 0]})
    return dict(found.values())


@movements.register(TableLattice)
def _(measurement: Any, noises: Sequence[GroupNoise]) -> dict[str, dict[int, NDArray[Any]]]:
    """The first record, in the groups that lose most."""
    chosen = sorted(range(len(noises)), key=lambda g: -noises[g].loss)[:ATTACKED]
    one = Records(np.zeros((1, len(measurement.workload.sizes)), dtype=np.int64))
    moved: dict[int, list[NDArray[Any]]] = {g: [] for g in chosen}
    for g, _, whole in measure(measurement, one):
        if g in moved:
            moved[g].append(np.sort(np.abs(whole.astype(np.float64)))[::-1][:MOST_ROWS])
    return {"first record": {g: np.concatenate(parts) for g, parts in moved.items() if parts}}


def _evidence(kind: Noise, draws: Draw, shifts: list[Dense], scales: Dense, runs: int, side: int) -> Dense:
    """The log likelihood ratio of the record's presence, for releases without it (0) and with it (1)."""
    sizes = np.array([runs * len(shift) for shift in shifts], dtype=np.int64)
    noise = np.asarray(draws(scales, sizes), dtype=np.float64)
    total, start = np.zeros(runs), 0
    for shift, scale, size in zip(shifts, scales, sizes, strict=True):
        own = noise[start : start + size].reshape(runs, len(shift)) + side * shift
        total += evidence(kind, own, shift, scale)
        start += int(size)
    return total


def proven_between(kind: Noise, here: Dense, there: Dense) -> float:
    """The least privacy loss that evidence from runs without a record, and with it, can have."""
    pilot = max(1, int(PILOT * len(here)))
    thresholds = np.quantile(np.concatenate([here[:pilot], there[:pilot]]), np.linspace(0.02, 0.98, 49))
    best = max(thresholds, key=lambda level: proven(kind, here[:pilot] >= level, there[:pilot] >= level, 1e-2))
    return proven(kind, here[pilot:] >= best, there[pilot:] >= best, FALSE_ALARM)


@singledispatch
def attack_profile(
    kind: Noise, name: str, budget: float, here: Dense, there: Dense, separation: float, scale: float
) -> Iterator[Finding]:
    """What the noise gives away beyond e^ε, where a δ was promised for it: nothing of pure noise.

    Args:
        kind: of noise.
        name: of what was moved.
        budget: that was charged.
        here, there: evidence from runs without a record, and with it.
        separation: how far apart the noise is said to leave them: the variance of the evidence.
        scale: the least of the noise, in lattice steps.
    """
    yield from ()


@attack_profile.register
def _(
    kind: Gaussian, name: str, budget: float, here: Dense, there: Dense, separation: float, scale: float
) -> Iterator[Finding]:
    """P(E) − e^ε Q(E) of the event that is e^ε times as likely with the record, and the same the other way round.

    At the ε whose δ is a tenth. The mean of both, over pairs of runs, is bounded from below by its own variance (Maurer
    and Pontil's empirical Bernstein bound), which holds for any number of runs.
    """
    mu = math.sqrt(2 * budget / (1 - 4 / scale**2))

    def profile(epsilon: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))

    epsilon = brentq(lambda one: profile(one) - TENTH, 0, 100 * (mu + mu**2)) if profile(0) > TENTH else 0.0
    factor, likely, unlikely = math.exp(epsilon), separation / 2 + epsilon, separation / 2 - epsilon
    gained = (there >= likely) - factor * (there <= unlikely) + (here <= unlikely) - factor * (here >= likely)
    runs, chance = len(gained), math.log(2 / FALSE_ALARM)
    slack = math.sqrt(2 * np.var(gained / 2, ddof=1) * chance / runs) + 7 * (1 + factor) * chance / (3 * (runs - 1))
    found, most = float(np.mean(gained)) / 2 - slack, profile(epsilon)
    yield Finding(f"profile of the {name}", found <= most, f"δ = {found:.4f} proven of {most:.4f} at ε = {epsilon:.4f}")


@singledispatch
def evidence(kind: Noise, released: Dense, shift: np.ndarray, scale: float) -> Dense:
    """The log likelihood ratio of `shift` against 0, but for a constant; ties at its ends are as they should be."""
    return np.asarray((np.abs(released) - np.abs(released - shift)).sum(axis=1) / scale)


@evidence.register
def _(kind: Gaussian, released: Dense, shift: np.ndarray, scale: float) -> Dense:
    return np.asarray(released @ shift / scale**2)


def proven(kind: Noise, here: np.ndarray, there: np.ndarray, chance: float) -> float:
    """The least privacy loss that the rates of an event without a record, and with it, can have."""
    return (_proven_epsilon if kind.is_pure else _proven_rho)(here, there, chance)


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


def scale_finding(kind: Noise, noise: Dense) -> Finding:
    """A score test of the scales: their maximum likelihood estimates against their own standard error."""
    ratios, error = unit_ratio(kind, noise)
    off, limit = float(np.abs(ratios - 1).max()), -float(ndtri(FALSE_ALARM / 2 / len(noise))) * error
    return Finding("noise scale", off <= limit, f"off by {off:.4f} of what is claimed, ±{limit:.4f} allowed")


@singledispatch
def unit_ratio(kind: Noise, noise: Dense) -> tuple[Dense, float]:
    """For rows of noise of scale 1 the estimate of what is 1 for the scale, |η| or η², and its standard error."""
    return np.asarray(np.mean(np.abs(noise), axis=1)), 1 / math.sqrt(noise.shape[1])


@unit_ratio.register
def _(kind: Gaussian, noise: Dense) -> tuple[Dense, float]:
    return np.asarray(np.mean(np.square(noise), axis=1)), math.sqrt(2 / noise.shape[1])


def independence_finding(noise: Dense) -> Finding:
    """Draws must not depend on the next ones, nor those of one group on another's; equal ones were used twice."""
    cut = np.sign(noise) * np.minimum(np.abs(noise), np.quantile(np.abs(noise), 0.99))
    flat = cut.reshape(-1)
    flat = flat[: len(flat) // 2 * 2]
    pairs = [(flat[0::2], flat[1::2]), *((cut[0], other) for other in cut[1:])]
    together = max(abs(float(np.corrcoef(one, other)[0, 1])) for one, other in pairs)
    limit = -float(ndtri(FALSE_ALARM / 2 / len(pairs))) / math.sqrt(min(len(one) for one, _ in pairs))
    return Finding("independent draws", together <= limit, f"correlation {together:.4f}, ±{limit:.4f} allowed")


def fork_finding(draw: Callable[[], Sequence[int]]) -> Finding:
    """Two forked children and their parent must draw different noise."""
    if not hasattr(os, "fork"):
        return Finding("forked processes", True, "this system does not fork")
    drawn = [_in_child(draw), _in_child(draw), repr(draw())]
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
