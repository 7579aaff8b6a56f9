"""What is measured in each figure: a point is one task on one dataset at one ε, a task is one strategy to find.

Strategies know neither data nor ε, so a task serves all points, in whatever figures, that share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from batchdp import workloads
from batchdp.workloads.matrix import MatrixWorkload
from reproduction.datasets import DATASETS, SEARCH_LOGS
from reproduction.parameters import Table

WORKLOADS = ("WDiscrete", "WRange", "WRelated")
BASELINES = ("LM", "WM", "HM")
"""Noise on data, wavelets, the binary tree: what the paper compares with throughout."""
LATER = ("p-Identity", "optimize", "Gaussian", "bound")
"""What came after the paper, and what no factorisation can beat."""
COMPARED = (*BASELINES, "LRM", "LRM-printed", *LATER)
SEED = 0
"""Of the workloads and of the optimisers' starts."""


@dataclass(frozen=True, order=True)
class Batch:
    """A workload by its parameters."""

    cells: int
    queries: int
    workload: str
    base: int = 0
    """s; 0 where the workload has none."""

    def make(self) -> MatrixWorkload:
        """The matrix."""
        match self.workload:
            case "WDiscrete":
                return workloads.discrete(self.queries, self.cells, SEED)
            case "WRange":
                return workloads.ranges(self.queries, self.cells, SEED)
            case _:
                return workloads.related(self.queries, self.cells, self.base, SEED)

    def within(self, other: Batch) -> bool:
        """Whether the other is of the same kind and nowhere smaller."""
        mine, theirs = (self.cells, self.queries, self.base), (other.cells, other.queries, other.base)
        return self.workload == other.workload and all(a <= b for a, b in zip(mine, theirs, strict=True))


@dataclass(frozen=True, order=True)
class Task:
    """One strategy to find."""

    batch: Batch
    mechanism: str
    ratio: float = 0.0
    """r / rank(W), for LRM; 0 elsewhere."""
    relaxation: float = 0.0
    """γ, for LRM."""


@dataclass(frozen=True, order=True)
class Point:
    """One measurement."""

    figure: str
    task: Task
    dataset: str
    epsilon: float


def points_of(figure: str, table: Table) -> list[Point]:
    """All points of a figure."""
    n, m, epsilon = table.default_cells, table.default_queries, table.default_epsilon
    match figure:
        case "figure-2":
            return [
                point
                for name in WORKLOADS
                for task in (
                    *_reference(_batch(table, name, m, n)),
                    *(_low_rank(table, _batch(table, name, m, n), gamma) for gamma in table.relaxations),
                )
                for point in _points(figure, task, table.epsilons, (SEARCH_LOGS.name,))
            ]
        case "figure-3":
            return [
                point
                for name in WORKLOADS
                for task in (
                    *_reference(_batch(table, name, m, n)),
                    *(Task(_batch(table, name, m, n), "LRM", ratio) for ratio in table.rank_ratios),
                )
                for point in _points(figure, task, table.epsilons, (SEARCH_LOGS.name,))
            ]
        case "figure-4" | "figure-5" | "figure-6":
            name = WORKLOADS[int(figure[-1]) - 4]
            batches = [_batch(table, name, m, cells) for cells in table.cells]
            return _compared(figure, table, batches, ("MM", *COMPARED), epsilon)
        case "figure-7" | "figure-8":
            name = WORKLOADS[int(figure[-1]) - 6]
            return _compared(
                figure, table, [_batch(table, name, queries, n) for queries in table.queries], COMPARED, epsilon
            )
        case _:
            batches = [Batch(n, m, "WRelated", table.base(m, n, share)) for share in table.base_shares]
            return _compared(figure, table, batches, COMPARED, epsilon)


def _compared(
    figure: str, table: Table, batches: Iterable[Batch], mechanisms: Iterable[str], epsilon: float
) -> list[Point]:
    """Every mechanism on every batch and dataset."""
    names = tuple(dataset.name for dataset in DATASETS)
    mechanisms = tuple(mechanisms)
    tasks = [
        Task(batch, mechanism, table.default_rank_ratio if mechanism.startswith("LRM") else 0.0)
        for batch in batches
        for mechanism in mechanisms
    ]
    return [point for task in tasks for point in _points(figure, task, (epsilon,), names)]


def _batch(table: Table, workload: str, queries: int, cells: int) -> Batch:
    base = table.base(queries, cells, table.default_base_share) if workload == "WRelated" else 0
    return Batch(cells, queries, workload, base)


def _low_rank(table: Table, batch: Batch, relaxation: float) -> Task:
    return Task(batch, "LRM", table.default_rank_ratio, relaxation)


def _reference(batch: Batch) -> tuple[Task, ...]:
    """What the curves of LRM alone are held against."""
    return (Task(batch, "LM"), Task(batch, "bound"))


def _points(figure: str, task: Task, epsilons: Iterable[float], datasets: Iterable[str]) -> list[Point]:
    datasets = tuple(datasets)
    return [Point(figure, task, dataset, epsilon) for epsilon in epsilons for dataset in datasets]
