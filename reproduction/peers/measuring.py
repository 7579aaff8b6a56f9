"""One batch planned: no data and no noise, only what the noise would be."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from math import nan

from batchdp.optimizer import optimize
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise
from reproduction.peers.batches import BATCHES
from reproduction.peers.figures import LARGEST, NOISES, Task

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

COMPARED: dict[Noise, Budget] = {GAUSSIAN: Budget(GAUSSIAN, 0.5), LAPLACE: Budget(LAPLACE, 2**0.5)}
"""At which a measurement of sensitivity 1 has noise of variance 1."""


@dataclass(frozen=True)
class Found:
    """What was found for a batch, on the scale of the published figures."""

    queries: int
    error: float
    limit: float
    """No strategy is below."""
    seconds: float
    """Of computing, to describe the batch and to plan it."""
    megabytes: float
    """The most memory that the process had, Python and its libraries included."""


def measure(task: Task) -> Found:
    """Plan the batch of a task."""
    noise = NOISES[task.noise]
    start = time.process_time()
    batch = BATCHES[task.batch]()
    largest = task.measure == LARGEST
    strategy = optimize(batch, noise.privacy, objective="max" if largest else "sum")
    seconds = time.process_time() - start
    budget = COMPARED[noise].arguments
    if largest:
        error, limit = strategy.largest_variance(**budget), strategy.largest_variance_bound(**budget)
    else:
        totals = strategy.expected_squared_error(**budget), strategy.lower_bound(**budget)
        error, limit = ((total / batch.queries) ** 0.5 for total in totals)
    return Found(batch.queries, error, limit, seconds, _megabytes())


def _megabytes() -> float:
    if resource is None:
        return nan
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
