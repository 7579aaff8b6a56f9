"""How the noise in an answer is distributed: public, so it can be asked anything at no cost of privacy.

An answer's noise is Σ_k B_ik η_k with independent Laplace or Gaussian η_k of one scale. The lattice is so fine (2^-20
or less of a unit) that the discrete noise has the law of the continuous one. Laplace sums have no closed form; their
characteristic function Π 1 / (1 + λ² B_ik² t²) is inverted numerically.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import erfcinv, erfinv

from batchdp.errors import PrivacyParameterError
from batchdp.linalg.matrix import Dense, Plain, dense, row_squares
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise

EXACT_TERMS = 64
"""The largest terms of a sum are taken as they are; the many small ones that remain are Gaussian together."""
MOST_CONFIDENCE = 0.99999
STEP = 0.05
"""Of the frequency, in units of one over the standard deviation: the law is told apart up to 60 of these."""
LEAST_INVERTED = 1e-3
"""Confidence down to which the law is inverted."""
ROWS = 64
"""Queries that are inverted at a time."""
SIMULATIONS = 40_000
"""For the simultaneous intervals; their width is right to about half a percent."""


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """The noise B η of all answers."""

    reconstruct: Plain
    """B."""
    scale: float
    """Of each η_k: the Laplace scale λ or the Gaussian σ, in units of the measurements."""
    noise: Noise
    times: Dense | None = None
    """For every weight of B how many draws have it, answer × kind of draw; one each if left out."""

    @property
    def shape_text(self) -> str:
        """The shape of the noise, as certificates have it; nothing where it is independent on every measurement."""
        return ""

    @property
    def standard_errors(self) -> Dense:
        """The standard error of every answer."""
        factor = np.sqrt(self.noise.variance_at_one)
        B, often = self.reconstruct, self.times
        squares = row_squares(B) if often is None else (np.square(dense(B)) * often).sum(axis=1)
        return np.asarray(factor * self.scale * np.sqrt(squares))

    @property
    def covariance(self) -> Dense:
        """Between all answers, m × m."""
        B = dense(self.reconstruct)
        return np.asarray(self.noise.variance_at_one * self.scale**2 * (B @ B.T))

    def half_widths(self, confidence: float = 0.95) -> Dense:
        """For every answer the h with |noise| ≤ h with this probability, right to 1 %."""
        checked_confidence(confidence)
        sigma = self.standard_errors
        if self.noise == GAUSSIAN:
            return np.asarray(sigma * np.sqrt(2) * erfinv(confidence))
        return laplace_quantiles(dense(self.reconstruct), confidence, self.times) * self.scale

    def rows(self, numbers: Sequence[int] | NDArray[np.int64]) -> sparse.csr_array:
        """The weights of some answers on draws of scale 1."""
        return sparse.csr_array(sparse.csr_array(self.reconstruct[numbers]) * self.scale)

    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights."""
        return replace(self, reconstruct=rows, scale=1.0, times=times)

    def simultaneous_half_widths(self, confidence: float = 0.95) -> Dense:
        """For every answer an h such that all |noise_i| ≤ h_i at once with this probability, by simulation.

        The generator is seeded on purpose: nothing is released here, and the same release shows the same intervals.
        """
        checked_confidence(confidence)
        sigma = self.standard_errors
        live = np.flatnonzero(sigma)
        if live.size == 0:
            return sigma
        C = dense(self.reconstruct)[live] * (self.scale / sigma[live])[:, None]
        draws = self.simulate(np.random.default_rng(0), max(1, 4_000_000 // max(C.shape)))
        largest = [np.abs(C @ noise).max(axis=0) for noise in draws]
        return np.asarray(sigma * np.quantile(np.concatenate(largest), confidence))

    def simulate(self, rng: np.random.Generator, block: int) -> Iterator[Dense]:
        """Simulated noise of scale 1 on the measurements, one draw per column, so many at a time."""
        for start in range(0, SIMULATIONS, block):
            shape = (self.reconstruct.shape[1], min(block, SIMULATIONS - start))
            yield rng.laplace(size=shape) if self.noise == LAPLACE else rng.standard_normal(shape)


def bounded_widths(noise: Noise, errors: Dense, confidence: float, count: int) -> Dense:
    """Half widths of one of `count` answers such that all hold at once with this probability, whatever ties them.

    Each may miss with the probability (1 − confidence) / count. A sum of Gaussian draws is Gaussian. The moment
    generating function of a sum of Laplace draws is at most that of a single draw of its variance, 1 / (1 − σ² t² / 2),
    and the best t bounds the tail (Chernoff). K-norm noise is log-concave, of which no more than e^(1 − h/σ) is beyond
    h (Lovász and Vempala 2007, lemma 5.17).

    Args:
        noise: the kind of noise.
        errors: the standard errors.
        confidence: that all hold.
        count: of all the answers that are looked at.
    """
    checked_confidence(confidence)
    missed = (1 - confidence) / max(1, count)
    if noise == GAUSSIAN:
        wide = float(np.sqrt(2) * erfcinv(missed))
    elif noise == LAPLACE:
        wide = float(brentq(lambda h: _laplace_tail(h) - np.log(missed), 1e-3, 1e3))
    else:
        wide = float(1 - np.log(missed))
    return np.asarray(wide * errors)


def _laplace_tail(h: float) -> float:
    """The logarithm of Chernoff's bound on P(|Y| > h), of a Laplace draw of variance 1."""
    t = (np.sqrt(1 + 2 * h**2) - 1) / h
    return float(np.log(2) - t * h - np.log1p(-(t**2) / 2))


def checked_confidence(confidence: float) -> None:
    """Refuse what is not a confidence that the law is right for."""
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, (int, float))
        or not 0 < confidence <= MOST_CONFIDENCE
    ):
        raise PrivacyParameterError(f"confidence={confidence!r} must be above 0 and at most {MOST_CONFIDENCE}")


def laplace_quantiles(B: Dense, confidence: float, times: Dense | None = None) -> Dense:
    """h with P(|Σ B_ik η_k| ≤ h) = confidence for Laplace η of scale 1, for every row.

    Where `times` says how often, in one row for all or one for each, the k-th term stands for that many of its size.
    """
    often = np.broadcast_to(np.ones(1) if times is None else times, B.shape)
    parts = [slice(start, start + ROWS) for start in range(0, len(B), ROWS)]
    return np.concatenate([np.zeros(0), *(_quantiles(B[own], often[own], confidence) for own in parts)])


def _quantiles(B: Dense, often: Dense, confidence: float) -> Dense:
    """The same for a few rows."""
    sigma = np.sqrt(2 * (np.square(B) * often).sum(axis=1))
    live = np.flatnonzero(sigma)
    widths = np.zeros(len(B))
    if live.size == 0:
        return widths
    squares = np.square(B[live] / sigma[live][:, None])
    order = np.argsort(-squares, axis=1)
    squares, counts = (np.take_along_axis(one, order, axis=1) for one in (squares, often[live]))
    large, small = squares[:, :EXACT_TERMS], 2 * (squares * counts)[:, EXACT_TERMS:].sum(axis=1)
    asked = max(confidence, LEAST_INVERTED)
    t, steps = _frequencies(asked)
    phi = np.exp(-0.5 * small[:, None] * t**2)
    with np.errstate(over="ignore"):  # far out, where φ is 0
        for k in range(int(np.max(np.count_nonzero(large, axis=1)))):
            factor, often_k = 1 + large[:, k : k + 1] * t**2, counts[:, k : k + 1]
            phi /= factor if np.all(often_k == 1) else factor**often_k
    weights = phi * (2 / np.pi) * steps / t
    slopes = weights * t
    # P(|Y| ≤ h) = 2/π ∫ φ(t) sin(t h) / t dt; the midpoint rule is exact up to the tail at 2π / STEP deviations.
    low, high = np.zeros(live.size), np.full(live.size, 20.0)
    middle = np.full(live.size, np.sqrt(2) * erfinv(asked))
    for _ in range(40):
        inside = np.einsum("ij,ij->i", weights, np.sin(middle[:, None] * t))
        density = np.einsum("ij,ij->i", slopes, np.cos(middle[:, None] * t))
        low, high = np.where(inside < asked, middle, low), np.where(inside < asked, high, middle)
        # Newton's step for log P(|Y| > h), nearly a line where few terms make up the sum; else halve.
        beyond = np.clip(1 - inside, 1e-12, 1)
        following = middle + np.log(beyond / (1 - asked)) * beyond / np.maximum(density, 1e-12)
        following = np.where((low <= following) & (following <= high), following, (low + high) / 2)
        close = np.abs(following - middle) <= 1e-9 * following
        middle = following
        if np.all(close):
            break
    # Below, the density is that at 0, and the probability grows with the width.
    widths[live] = sigma[live] * middle * (confidence / asked)
    return widths


def _frequencies(confidence: float) -> tuple[Dense, Dense]:
    """Where the characteristic function is looked at, and the length of frequency that each stands for.

    The slowest decay is one term's 1 / t²: its tail beyond the last frequency is the error of a probability. A small
    probability needs a small one, so the frequencies go on, in steps that grow with them but stay far below the period
    of sin(t h), whose h is small too.
    """
    last = 40.0 if confidence <= 0.999 else 200.0
    even: Dense = (np.arange(int(last / STEP), dtype=np.float64) + 0.5) * STEP
    if confidence >= 0.5:
        return even, np.full_like(even, STEP)
    edges = np.geomspace(last, max(last, 200.0 / confidence), 1200)
    t = np.append(even, (edges[1:] + edges[:-1]) / 2)
    steps = np.append(np.full_like(even, STEP), np.diff(edges))
    return np.asarray(t, np.float64), np.asarray(steps, np.float64)
