"""A family of mechanisms, registered once: what `optimize`, the comparison, benchmarks and shared tests know of it.

The least that a family needs is a name and a function from a workload to a strategy: a `FunctionFamily`. `optimize`
runs that function as it stands and brings its measurements to the merged columns. Whoever knows more of a family writes
a class of its own below `Family` and answers more of its questions: pairs in closed form on the merged columns, a
search with an account of its work, where it can win at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, final

from scipy import sparse

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.privacy import LAPLACE, Noise
from batchdp.strategies.account import PairSearch
from batchdp.strategies.bounds.convex import Progress as BoundProgress
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, Pair
from batchdp.workloads.reduction import Reduction


class Method(Protocol):
    """Chooses a strategy for a workload, without ever seeing data."""

    def __call__(self, workload: Any, /) -> PairStrategy:
        """The strategy of this family for the workload."""


@dataclass(frozen=True, eq=False)
class Family(ABC):
    """A family of mechanisms. The classes below this one are final; what one does not answer it has nothing for."""

    name: str
    method: Method
    """From a workload to this family's strategy: what users call."""
    settings: Any = None
    """The family's constants, a frozen value."""
    noise: Noise = LAPLACE
    searches: bool = False
    """Whether it searches, or has a closed form."""
    quick: bool = False
    """Whether it takes seconds on every workload, so that a page or a demonstration can wait for it."""
    mixes: bool = False
    """Whether it measures little but mixtures of the queries, which several blocks can measure together."""
    slow_beyond: int | None = None
    """The number of cells beyond which its function takes minutes."""

    @abstractmethod
    def worth(self, reduction: Reduction) -> bool:
        """Whether its function, run as it stands, can win here within seconds."""

    def variants(self) -> tuple[Method, ...]:
        """Strategies that the least largest error must not be worse than."""
        return (self.method,)

    def plainly(self, workload: MatrixWorkload) -> PairStrategy | None:
        """A pair that is made of the workload itself and nothing larger, whatever the size."""
        return None

    def optimum(self, workload: MatrixWorkload, tolerance: float, progress: BoundProgress | None) -> PairStrategy:
        """The function with what a convex search can be told."""
        return self.method(workload)

    def on_columns(self, R: Dense) -> Iterator[Pair]:
        """Pairs in closed form on the merged columns of R themselves, of any sensitivity."""
        return iter(())

    def over_cells(self, reduction: Reduction, best: float, *, thorough: bool) -> Iterator[Dense]:
        """Measures over the cells, brought to the merged columns, where they may come below ‖B‖²_F = `best`.

        `thorough` is whether functions that search may be run as they stand.
        """
        return iter(())

    def on_sparse(self, matrix: sparse.csr_array) -> tuple[float, Callable[[], Pair | None]] | None:
        """‖B‖²_F at sensitivity 1 for a sparse matrix with merged columns, found without a dense copy of it, and the
        pair when it is wanted.
        """
        return None

    def refine(self, search: PairSearch) -> None:
        """Begin at the best of the closed forms, before any search."""
        return

    def search(self, search: PairSearch, reduction: Reduction, seed: int, share: float) -> None:
        """Spend that share of the work that is left."""
        return

    def part(self, R: Dense) -> float:
        """Its part of the work that is left, relative to the parts of the searches after it; 0 where it cannot win."""
        return 0.0

    def nominal_seconds(self, R: Dense) -> float:
        """The work that it asks for where the caller sets no time."""
        return 0.0


@final
@dataclass(frozen=True, eq=False)
class FunctionFamily(Family):
    """A family of which nothing is known but its function."""

    most_cells: int | None = None
    """Cells up to which it can win within seconds; everywhere if left out."""

    def worth(self, reduction: Reduction) -> bool:
        """Where there are no more cells than that."""
        return self.most_cells is None or reduction.workload.cells <= self.most_cells

    def over_cells(self, reduction: Reduction, best: float, *, thorough: bool) -> Iterator[Dense]:
        """What the function measures."""
        if (thorough or not self.searches) and self.worth(reduction):
            yield reduction.restrict_measure(self.method(reduction.workload).measurement)


FAMILIES: dict[str, Family] = {}
"""By name, in the order in which they are tried and shown."""
STRATEGIES: dict[str, Method] = {}
"""The families' functions by name: what users call."""


def register(family: Family) -> Family:
    """Make a family known to everything that tries, compares, measures or tests families; a known name is replaced."""
    if not family.name.strip():
        raise StrategyError(f"name={family.name!r}: a family needs a name that is not blank")
    FAMILIES[family.name], STRATEGIES[family.name] = family, family.method
    return family


def unregister(name: str) -> None:
    """Forget a family."""
    del FAMILIES[name], STRATEGIES[name]


def families_for(noise: Noise) -> list[Family]:
    """Those with this kind of noise, in the order of their registration."""
    return [family for family in FAMILIES.values() if family.noise == noise]
