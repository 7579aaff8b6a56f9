"""Discrete Gaussian noise for very many measurements: OpenDP's sampler, in chunks, on all cores.

OpenDP samples outside of Python's lock, so threads are enough. Nothing here can be seeded, and no draw is used twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.measuring.mechanism import LARGEST_SCALE, float_above

Integers = NDArray[np.int64]
Progress = Callable[[float, str], object]

CHUNK = 2**14
"""Measurements that are drawn for at a time."""
LEAST_SCALE = 64.0
"""In lattice steps."""
ATTEMPTS = 100
DRAWS_A_SECOND = 50_000
"""On one core, for estimates."""


@dataclass(frozen=True)
class Gaussian:
    """Noise for one group of measurements."""

    squares: int
    """Δ² of two neighbours, exactly."""
    scale: float
    """σ in lattice steps."""
    loss: float
    """OpenDP's privacy map of the sensitivity, rounded up: ρ."""


def gaussian(squares: int, rho: float) -> Gaussian:
    """The least noise that OpenDP certifies at ρ for measurements that neighbours change by √squares at the most."""
    if squares < 1 or not 0 < rho < float("inf"):
        raise PrivacyParameterError(f"squares={squares!r} and rho={rho!r} must be above 0")
    moved = root_above(squares)
    scale = moved / sqrt(2 * rho)
    if scale < LEAST_SCALE:
        raise LatticeError(
            f"a budget of {rho:.3g} leaves noise of {scale:.2g} lattice steps, too little to hide behind; lower rho"
        )
    for _ in range(ATTEMPTS):
        if scale > LARGEST_SCALE:
            raise LatticeError(
                f"a share of rho={rho:.3g} asks for noise of {scale:.3g} lattice steps, more than fits; raise rho, or "
                "lower the public cap max_rows"
            )
        loss = float(_opendp(scale).map(moved))
        if loss <= rho:
            if Fraction(loss) < Fraction(squares) / (2 * Fraction(scale) ** 2):  # the theorem behind the map
                raise PrivacyParameterError(f"OpenDP's map says {loss} for noise that loses more; do not release")
            return Gaussian(squares, scale, loss)
        scale = float(np.nextafter(scale, np.inf))
    raise PrivacyParameterError(f"rho={rho!r}: no scale satisfies OpenDP's privacy map; choose another budget")


def root_above(squares: int) -> float:
    """The least float that is not below the root of a whole number."""
    shift = max(0, 60 - squares.bit_length() // 2)  # so many bits of the root behind the point
    root = isqrt((squares << 2 * shift) - 1) + 1
    found = float_above(root) / 2.0**shift
    assert Fraction(found) ** 2 >= squares
    return found


def _opendp(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale=scale)


def draw(scales: NDArray[np.float64], sizes: Integers, progress: Progress | None = None) -> Integers:
    """Independent discrete Gaussian noise, `sizes[g]` of scale `scales[g]` one group after the other."""
    total = int(np.sum(sizes))
    noise = np.zeros(total, dtype=np.int64)
    done = 0
    pending: set[Future[int]] = set()
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in _jobs(scales, sizes):
                pending.add(pool.submit(_fill, noise, job))
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
    return noise


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


def _fill(noise: Integers, job: Job) -> int:
    """Draw for one job; how many were drawn."""
    for scale, begin, end in job:
        noise[begin:end] = _opendp(scale)([0] * (end - begin))
    return sum(end - begin for _, begin, end in job)
