"""One table, between its noisy cells and a target, by the risk that is estimated for many strengths.

A table is its own noisy component on top of the tables below it, which are denoised already. The cells x with
x − y + c log(x/P) = 0 lie between the noisy table y and the target P, above 0; c = λ s (P/s)^−g with s the standard
deviation of the noise. Many λ and both g are averaged, by e^−SURE/4t (Leung and Barron 2006): the average of their
estimated risks is then an honest estimate of the average's, once the noise is counted that went into the target. The
margins are brought back by moving every cell by as much as its own noise is let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy.special import wrightomega

from batchdp.linalg.matrix import Dense
from batchdp.release.denoise.mixing import average_weights

STRENGTHS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""λ."""
FEW_STRENGTHS = (0.1, 1.0, 10.0)
"""Of tables with very many cells."""
MOST_CELLS = 200_000
"""Up to which all are tried."""
BENDS = (0.0, 0.5)
"""g: how much more small cells are shrunk."""
TEMPERATURE = 4.0
"""Of the average, in units of the variance: at 4 the averaged risk is no underestimate."""
HANDICAP = 0.5
"""Of every option, in standard deviations of what chance adds to its estimated risk over that of the target."""
FAINT = 3.0
"""And for every direction let through in cells that are smaller than the noise, in its variances."""
BOUND = 16.0
"""And for noise let through of the size of the target."""
FAINTEST = 1e-2
"""λ where nothing is to be shrunk."""
NEGLIGIBLE = 1e-4
"""Of a weight."""
LEAST_THROUGH = 1e-3
"""By how much cells move at least when margins are brought back."""
FEWEST = 5
"""Directions of noise from which on a table is shrunk; fewer tell too little of the risk."""
LEAST_CELL = 1e-9
"""Of a target, relative to its mean."""
MOST_ROUNDS = 60
NEARLY = 1e-7


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A table between its noisy values and its target."""

    table: Dense
    risk: float
    """Estimated, of its own component."""
    raw_risk: float
    target_risk: float
    """Estimated without bias, of the target; often below 0 where the noise is large."""
    through: float
    """The sum of squares of the shares of noise that cells let through: its variance, in that of the noise."""


def shrink(noisy: Dense, target: Dense, t: float, faces: Mapping[int, Dense], leverage: float = 0.0) -> Shrunk:
    """The average over all strengths, with the margins of the target.

    Args:
        noisy: y, its own component on top of denoised margins.
        target: P, with the same margins.
        t: the variance of the noise, in every direction of the component.
        faces: by the axis that is summed over, the margins.
        leverage: which share of the noise is in the target.
    """
    freedom = prod(n - 1 for n in noisy.shape)
    s, raw, size = t**0.5, t * freedom, float(np.square(target).sum())
    P = np.maximum(target, LEAST_CELL * max(float(target.mean()), 1e-300))
    share, apart = freedom / noisy.size, float(np.square(P - noisy).sum())
    of_target = apart + raw * (2 * leverage - 1)
    if freedom < FEWEST:
        # No worse than raw as long as the target is off by no more than twice its own size, whatever the noise.
        kept = size / (size + raw)
        c = np.full(P.shape, FAINTEST * s)
        x = soft(P + kept * (noisy - P), P, c)
        risk = (1 - kept) ** 2 * apart + raw * (2 * kept + 2 * (1 - kept) * leverage - 1)
        return Shrunk(restore(x, x / (x + c), faces), risk, raw, of_target, freedom * kept**2)
    average, through = np.zeros(P.shape), np.zeros(P.shape)
    costs, handicaps = [of_target], [0.0]
    strengths = STRENGTHS if noisy.size <= MOST_CELLS else FEW_STRENGTHS
    options = [(g, strength) for g in BENDS for strength in strengths]
    for g, strength in options:
        c = strength * s * np.power(P / s, -g)
        x = soft(noisy, P, c)
        w = x / (x + c)
        df = _freedom(w) if noisy.ndim == 2 else share * float(w.sum())
        df += leverage * max(0.0, freedom - df)
        costs.append(float(np.square(x - noisy).sum()) + t * (2 * df - freedom))
        handicaps.append(t * _handicap(w, P, t, share, size))
    weights = average_weights((np.array(costs) + np.array(handicaps)) / (TEMPERATURE * t))
    average += float(weights[0]) * P
    for a, (g, strength) in zip(weights[1:].tolist(), options, strict=True):
        if a > NEGLIGIBLE:
            c = strength * s * np.power(P / s, -g)
            x = soft(noisy, P, c)
            average += a * x
            through += a * x / (x + c)
    average /= float(weights[0] + weights[1:][weights[1:] > NEGLIGIBLE].sum())
    risk = float(weights @ np.array(costs))
    held = np.maximum(through, LEAST_THROUGH * P / (P + s))
    moved = share * float(np.square(through).sum())
    return Shrunk(restore(average, held, faces), risk, raw, costs[0], moved)


def _handicap(w: Dense, target: Dense, t: float, share: float, size: float) -> float:
    """What an option must be better by, in variances: more for what it lets through of cells that noise hides."""
    square = np.square(w)
    moved = share * float(square.sum())
    faint = share * float((square * (t * square / (np.square(target) + t * square))).sum())
    return HANDICAP * 2 * float(np.sqrt(2 * moved)) + FAINT * faint + BOUND * t * moved / max(size, 1e-300)


def soft(noisy: Dense, target: Dense, c: Dense) -> Dense:
    """x with x − y + c log(x/P) = 0: c ω(y/c + log(P/c))."""
    z = noisy / c + np.log(target / c)
    x = c * wrightomega(np.clip(z, -700.0, None))
    return np.asarray(np.maximum(x, 1e-300))


def _freedom(w: Dense) -> float:
    """tr of what lets w through of every cell while rows and columns are held."""
    found = float(w.sum()) + float(np.square(w).sum()) / max(float(w.sum()), 1e-300)
    for axis in (0, 1):
        found -= float((np.square(w).sum(axis=axis) / np.maximum(w.sum(axis=axis), 1e-300)).sum())
    return max(found, 0.0)


def restore(x: Dense, w: Dense, faces: Mapping[int, Dense], rounds: int = MOST_ROUNDS) -> Dense:
    """Margins brought back: every cell moves by its weight, and by no more than its size at once."""
    w = np.maximum(w, 1e-12)
    for r in range(rounds):
        off = 0.0
        for axis, wanted in faces.items():
            missing = wanted - x.sum(axis=axis)
            off = max(off, float((np.abs(missing) / np.maximum(1.0, wanted)).max(initial=0.0)))
            weight = w if r < rounds // 2 else x
            price = np.expand_dims(missing / np.maximum(weight.sum(axis=axis), 1e-300), axis)
            x = x * np.exp(np.clip(weight * price / np.maximum(x, 1e-300), -1.0, 1.0))
        if off <= NEARLY:
            break
    return x


def scale_to(table: Dense, faces: Mapping[int, Dense], rounds: int = 30) -> Dense:
    """Iterative proportional fitting."""
    for _ in range(rounds):
        off = 0.0
        for axis, wanted in faces.items():
            now = table.sum(axis=axis)
            off = max(off, float(np.abs(now - wanted).max(initial=0.0)))
            ratio = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
            table = table * np.expand_dims(ratio, axis)
        if off <= 1e-6:
            break
    return table
