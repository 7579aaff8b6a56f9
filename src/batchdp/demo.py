"""The paper's introduction as a small demonstration: two batches of three queries over four states."""

from __future__ import annotations

from batchdp.comparison import METHODS as COMPARED
from batchdp.comparison import Comparison, compare
from batchdp.strategies import Method
from batchdp.strategies.noise_on_data import noise_on_data
from batchdp.strategies.noise_on_results import noise_on_results
from batchdp.workload import Workload

EXAMPLES = {
    "Example 1: a total and its two halves": Workload(
        [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]],
        names=("NY + NJ + CA + WA", "NY + NJ", "CA + WA"),
    ),
    "Example 2: no pattern to see": Workload(
        [[0, 2, 1, 1], [0, 1, 0, 2], [1, 0, 2, 2]],
        names=("2 NJ + CA + WA", "NJ + 2 WA", "NY + 2 CA + 2 WA"),
    ),
}

METHODS: dict[str, Method] = {
    **COMPARED,
    "noise-on-data, cells merged": lambda workload: noise_on_data(workload, merged=True),
    "noise-on-results, least squares": lambda workload: noise_on_results(workload, least_squares=True),
}


def introduction() -> dict[str, Comparison]:
    """Every mechanism on both examples."""
    return {title: compare(workload, METHODS) for title, workload in EXAMPLES.items()}
