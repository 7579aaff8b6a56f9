"""The two examples of the paper's introduction: what it says the best total error is, and what is reached."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchdp.archive import write_atomically
from batchdp.optimizer.families.low_rank import low_rank
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload
from reproduction.errors import ReproductionError

FIRST = MatrixWorkload([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
SECOND = MatrixWorkload([[0, 2, 1, 1], [0, 1, 0, 2], [1, 0, 2, 2]])
FILE = "examples.csv"


@dataclass(frozen=True)
class Example:
    """Total expected squared errors at ε = 1."""

    name: str
    noise_on_results: float
    noise_on_data: float
    printed: float
    """What the paper gives as the best."""
    reached: float
    bound: float


def examples() -> list[Example]:
    """Both, in a second."""
    # Four measurements for three queries: the default rank has too little room for the second example.
    reached = (low_rank(FIRST), low_rank(SECOND, 4))
    return [
        _example("example 1", FIRST, _error(noise_on_data(FIRST, merged=True)), reached[0]),
        _example("example 2", SECOND, _error(_as_printed()), reached[1]),
    ]


def _as_printed() -> PairStrategy:
    """The strategy that the introduction calls optimal for its second example."""
    L = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [1 / 3, 0, 1, 0], [2 / 3, 0, 0, 0]])
    B = np.array([[2, 1, 1, -1 / 2], [1, 2, 0, 0], [0, 2, 2, 1 / 2]])
    return PairStrategy(SECOND, L, B)


def _example(name: str, workload: MatrixWorkload, printed: float, best: PairStrategy) -> Example:
    plain = _error(noise_on_results(workload)), _error(noise_on_data(workload))
    return Example(name, *plain, printed, _error(best), best.lower_bound(epsilon=1.0))


def _error(strategy: PairStrategy) -> float:
    return strategy.expected_squared_error(epsilon=1.0)


def save(folder: Path) -> None:
    """Write both to a CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Example.__dataclass_fields__)
    for one in examples():
        writer.writerow(value if isinstance(value, str) else f"{value:.5g}" for value in one.__dict__.values())
    write_atomically(folder / FILE, text.getvalue().encode(), ReproductionError)


def load(folder: Path) -> list[Example]:
    """Those of a folder, if they were asked for."""
    path = folder / FILE
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [Example(row.pop("name"), **{key: float(value) for key, value in row.items()}) for row in rows]
