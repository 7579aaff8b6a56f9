"""Discrete Gaussian and Laplace noise for very many measurements: OpenDP's sampler, in chunks, on all cores.

OpenDP samples outside of Python's lock, so threads are enough. Nothing here can be seeded, and no draw is used twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.mechanism.mechanism import LARGEST_SCALE, float_above, opendp_noise
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise

Integers = NDArray[np.int64]
Progress = Callable[[float, str], object]

CHUNK = 2**14
"""Measurements that are drawn for at a time."""
LEAST_SCALE = 64.0
"""In lattice steps."""
ATTEMPTS = 100


@dataclass(frozen=True)
class GroupNoise:
    """Noise for one group of measurements."""

    moved: int
    """Δ of two neighbours to the power of the noise's norm, exactly: Δ in the L1 norm, or Δ² in the L2 norm."""
    scale: float
    """λ or σ, in lattice steps."""
    loss: float
    """OpenDP's privacy map of the sensitivity, rounded up: ε or ρ."""


NOTHING = GroupNoise(0, 0.0, 0.0)
"""Of a group that measures nothing."""


def least_noise(noise: Noise, moved: int, budget: float) -> GroupNoise:
    """The least noise that OpenDP certifies for measurements that neighbours change by this much at the most."""
    if moved < 1 or not 0 < budget < float("inf"):
        raise PrivacyParameterError(f"moved={moved!r} and {noise.unit}={budget!r} must be above 0")
    if noise == LAPLACE and moved >= 2**62:
        raise LatticeError(f"neighbours change the measurements by {moved:.3g} steps, more than fits; lower max_rows")
    change = moved if noise == LAPLACE else root_above(moved)
    scale = noise.scale(change, budget)
    if scale < LEAST_SCALE:
        raise LatticeError(
            f"a budget of {budget:.3g} leaves noise of {scale:.2g} lattice steps, too little to hide behind; lower "
            f"{noise.unit}"
        )
    for _ in range(ATTEMPTS):
        if scale > LARGEST_SCALE:
            raise LatticeError(
                f"a share of {noise.unit}={budget:.3g} asks for noise of {scale:.3g} lattice steps, more than fits; "
                f"raise {noise.unit}, or lower the public cap max_rows"
            )
        loss = float(opendp_noise(noise, scale).map(change))
        if loss <= budget:
            if Fraction(loss) < noise_loss(noise, moved, scale):  # the theorem behind the map
                raise PrivacyParameterError(f"OpenDP's map says {loss} for noise that loses more; do not release")
            return GroupNoise(moved, scale, loss)
        scale = float(np.nextafter(scale, np.inf))
    raise PrivacyParameterError(
        f"{noise.unit}={budget!r}: no scale satisfies OpenDP's privacy map; choose another budget"
    )


def noise_loss(noise: Noise, moved: int, scale: float | Fraction) -> Fraction:
    """What noise of a scale loses, exactly: Δ / λ, or Δ² / 2 σ²."""
    return Fraction(moved) / (noise.norm * Fraction(scale) ** noise.norm)


def draws_a_second(noise: Noise) -> float:
    """On one core, for estimates."""
    return 100_000.0 if noise == LAPLACE else 50_000.0


def root_above(squares: int) -> float:
    """The least float that is not below the root of a whole number."""
    shift = max(0, 60 - squares.bit_length() // 2)  # so many bits of the root behind the point
    root = isqrt((squares << 2 * shift) - 1) + 1
    found = float_above(root) / 2.0**shift
    assert Fraction(found) ** 2 >= squares
    return found


def draw(
    scales: NDArray[np.float64], sizes: Integers, progress: Progress | None = None, noise: Noise = GAUSSIAN
) -> Integers:
    """Independent discrete noise, `sizes[g]` of scale `scales[g]` one group after the other."""
    total = int(np.sum(sizes))
    drawn = np.zeros(total, dtype=np.int64)
    done = 0
    pending: set[Future[int]] = set()
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in _jobs(scales, sizes):
                pending.add(pool.submit(_fill, drawn, job, noise))
                if len(pending) >= 4 * workers:
                    ended, pending = wait(pending, return_when=FIRST_COMPLETED)
                    done += sum(one.result() for one in ended)
                    if progress is not None:
                        progress(done / max(1, total), "drawing noise")
            done += sum(one.result() for one in pending)
        except BaseException:  # Ctrl-C: what waits is not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if done != total:
        raise LatticeError(f"{total - done} of {total} measurements have no noise; nothing is released")
    return drawn


Job = list[tuple[float, int, int]]
"""Scales, each with where its measurements begin and end."""


def _jobs(scales: NDArray[np.float64], sizes: Integers) -> Iterator[Job]:
    """Chunks of large groups, or many small groups at once."""
    job: Job = []
    held = start = 0
    for scale, size in zip(scales.tolist(), sizes.tolist(), strict=True):
        for begin in range(start, start + size, CHUNK):
            end = min(begin + CHUNK, start + size)
            job.append((scale, begin, end))
            held += end - begin
            if held >= CHUNK:
                yield job
                job, held = [], 0
        start += size
    if job:
        yield job


def _fill(drawn: Integers, job: Job, noise: Noise) -> int:
    """Draw for one job; how many were drawn."""
    for scale, begin, end in job:
        drawn[begin:end] = opendp_noise(noise, scale)([0] * (end - begin))
    return sum(end - begin for _, begin, end in job)
