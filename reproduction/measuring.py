"""From a task to figures: the closed form of the error, and the average over repetitions of the noise.

The noise comes from NumPy, in floats and from a seed: these are experiments on invented or published counts, and
nothing here is a release. `batchdp.answer` is what releases.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from batchdp.linalg.matrix import Dense, column_norms, dense
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise
from batchdp.strategies.pair import PairStrategy
from reproduction.mechanisms import strategy_for
from reproduction.points import Task

DRAW: dict[Noise, Callable[[np.random.Generator, float, tuple[int, int]], Dense]] = {
    LAPLACE: lambda rng, scale, size: rng.laplace(0, scale, size),
    GAUSSIAN: lambda rng, scale, size: rng.normal(0, scale, size),
}
"""Noise in floats at a sensitivity ÷ ε of `scale`; Gaussian noise at the ρ = ε²/2 that ε implies."""


@dataclass(frozen=True)
class Job:
    """A strategy to find, and what is wanted of it."""

    task: Task
    wanted: tuple[tuple[str, str, float], ...]
    """(mechanism, dataset, ε); the Gaussian optimum gives the bound too."""
    counts: Mapping[str, Dense]
    """Of each dataset, merged to the task's number of cells."""
    repetitions: int


@dataclass(frozen=True)
class Measured:
    """The figures of one point; errors are per query."""

    r: int
    error: float
    noise: float
    structural: float
    simulated: float
    standard_error: float
    residual: float
    seconds: float
    status: str


def measure(job: Job) -> list[Measured]:
    """Find the strategy once and try it on every dataset at every ε; in the order of what is wanted."""
    start = time.process_time()
    strategy = strategy_for(job.task)
    seconds = time.process_time() - start
    found = []
    for mechanism, dataset, epsilon in job.wanted:
        if mechanism == "bound":
            bound = Budget(LAPLACE, epsilon).variance(strategy.optimality.lower_bound) / strategy.workload.queries
            figures = (bound, bound, 0.0, np.nan, np.nan)
        else:
            rng = np.random.default_rng(zlib.crc32(repr((job.task, dataset, epsilon)).encode()))
            figures = errors(strategy, job.counts[dataset], epsilon, job.repetitions, rng)
        found.append(Measured(strategy.measurements, *figures, strategy.residual, seconds, strategy.status))
    return found


def errors(
    strategy: PairStrategy, counts: Dense, epsilon: float, repetitions: int, rng: np.random.Generator
) -> tuple[float, float, float, float, float]:
    """Squared error per query: closed form, its two parts, average over repetitions and its standard error."""
    W, L, B = strategy.workload.matrix, strategy.measurement, strategy.reconstruction
    scale, size = strategy.sensitivity / epsilon, (B.shape[1], repetitions)
    noise = DRAW[strategy.noise](rng, scale, size)
    variances = strategy.per_query_variance(**strategy.noise.implied_by(epsilon).arguments)
    bias = np.asarray(B @ (L @ counts) - W @ counts)  # 0 to rounding where B L = W
    structural = float(np.mean(bias**2))
    squares = np.square(bias[:, None] + np.asarray(B @ noise)).mean(axis=0)
    spread = _spread_of_squares(strategy, bias, scale) / len(bias) / np.sqrt(repetitions)
    from_noise = float(variances.mean())
    return from_noise + structural, from_noise, structural, float(squares.mean()), float(spread)


def _spread_of_squares(strategy: PairStrategy, bias: Dense, scale: float) -> float:
    """The standard deviation of ‖bias + B noise‖², exactly: twenty heavy-tailed squares are too few to estimate it.

    For independent symmetric noise of variance v and fourth moment q it is the root of
    2 v² ‖B Bᵀ‖²_F + (q − 3 v²) Σ_i ‖B_i‖⁴ + 4 v ‖Bᵀ bias‖², with B_i the columns of B.
    """
    B = strategy.reconstruction
    v = strategy.noise.reference.variance(scale**2)
    excess = strategy.noise.excess_kurtosis * v**2
    squares = column_norms(B, 2) ** 2
    gram = np.asarray(dense(B) @ dense(B).T)
    cross = np.asarray(dense(B).T @ bias)
    return float(np.sqrt(2 * v**2 * np.sum(gram**2) + excess * np.sum(squares**2) + 4 * v * np.sum(cross**2)))
