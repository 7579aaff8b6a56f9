"""Noise, drawn. Nothing here can be seeded, no draw is used twice, and nothing here sees data.

Independent noise is OpenDP's, in chunks on all cores: it samples outside of Python's lock, so threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import singledispatch
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LatticeError
from batchdp.mechanism.calibrate import opendp_noise
from batchdp.mechanism.knorm.drawing import draws
from batchdp.mechanism.measurement import GroupNoise, IntegerMeasurement, Integers
from batchdp.privacy import Gaussian, KNorm, Laplace, Noise
from batchdp.text import Progress

CHUNK = 2**14
"""Measurements that are drawn for at a time."""


def sample(
    measurement: IntegerMeasurement, noises: Sequence[GroupNoise], progress: Progress | None = None
) -> NDArray[Any]:
    """Noise for every measurement, group after group, to be added once. Whoever interrupts it has spent nothing."""
    return sample_groups(measurement.noise, measurement, noises, progress)


@singledispatch
def sample_groups(
    noise: Noise, measurement: IntegerMeasurement, noises: Sequence[GroupNoise], progress: Progress | None
) -> NDArray[Any]:
    """The same by the kind of noise: here independent on every measurement."""
    return sample_independent(noise, np.array([one.scale for one in noises]), measurement.sizes, progress)


@sample_groups.register
def _(
    noise: KNorm, measurement: IntegerMeasurement, noises: Sequence[GroupNoise], progress: Progress | None
) -> NDArray[Any]:
    """Whole numbers of any size: those of a body are never clamped before they are added."""
    return np.array(sample_bodies(measurement.groups, noises, 1, progress)[0], dtype=object)


def sample_bodies(
    groups: Sequence[Any], noises: Sequence[GroupNoise], count: int, progress: Progress | None = None
) -> list[list[int]]:
    """Noise in the shape of every group's body, for so many releases."""
    found = [
        draws(group.body, Fraction(own.loss) / own.moved, count, progress)
        for group, own in zip(groups, noises, strict=True)
    ]
    return [list(chain.from_iterable(parts)) for parts in zip(*found, strict=True)]


@singledispatch
def sample_independent(
    noise: Noise, scales: NDArray[np.float64], sizes: Integers, progress: Progress | None = None
) -> Integers:
    """Independent discrete noise, `sizes[g]` of scale `scales[g]` one group after the other, by the kind of noise."""
    raise LatticeError(f"{noise.name} noise cannot be drawn independently")


@sample_independent.register(Laplace)
@sample_independent.register(Gaussian)
def _(noise: Noise, scales: NDArray[np.float64], sizes: Integers, progress: Progress | None = None) -> Integers:
    """Drawn by OpenDP, in threads where there is much."""
    total = int(np.sum(sizes))
    drawn = np.zeros(total, dtype=np.int64)
    if total <= CHUNK:  # threads would take longer, and a process that was forked cannot start any
        for job in _jobs(scales, sizes):
            _fill(drawn, job, noise)
        return drawn
    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for more in pool.map(lambda job: _fill(drawn, job, noise), _jobs(scales, sizes)):
                done += more
                if progress is not None:
                    progress(done / total, "drawing noise")
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


def draws_a_second(noise: Noise) -> float:
    """Of independent noise on one core, for estimates."""
    return 100_000.0 if noise.is_pure else 50_000.0
