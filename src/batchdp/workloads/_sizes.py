"""The checks that every generator makes of its sizes and seed."""

from __future__ import annotations

import numpy as np

from batchdp import checks
from batchdp.errors import WorkloadError


def whole(**named: int) -> tuple[int, ...]:
    """The values, each checked to be a whole number of at least 1."""
    return tuple(checks.check_whole(name, value, 1, WorkloadError) for name, value in named.items())


def generator(seed: int) -> np.random.Generator:
    """The random numbers that a seed stands for."""
    return np.random.default_rng(checks.check_whole("seed", seed, 0, WorkloadError))
