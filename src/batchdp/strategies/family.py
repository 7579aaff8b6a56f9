"""A family of mechanisms, registered once: what `optimize`, the comparison, benchmarks and shared tests know of it.

The least that a family needs is a name and a function from a workload to a strategy. `optimize` then runs that
function as it stands and brings its measurements to the merged columns. Whoever knows more of the family says more:
pairs in closed form on the merged columns, a search with an account of its work, where it can win at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from scipy import sparse

from batchdp.bounds.convex import Progress as BoundProgress
from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.privacy import LAPLACE, Noise
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.pair import Pair
from batchdp.workloads.reduction import Reduction
from batchdp.workloads.workload import MatrixWorkload


class Method(Protocol):
    """Chooses a strategy for a workload, without ever seeing data."""

    def __call__(self, workload: Any, /) -> PairStrategy:
        """The strategy of this family for the workload."""


class Account(Protocol):
    """What a search sees of the portfolio: the problem, the best so far, the work that is left."""

    R: Dense
    """The reduced workload, times `scale`."""
    scale: float
    budget: float
    """Nominal seconds in all; see `cost`."""
    spent: float
    """Nominal seconds so far."""
    thorough: bool
    """Whether registered functions are run as they stand, which takes the time it takes."""
    rounds: int
    best: Pair | None
    method: str
    """The family that found the best pair."""

    @property
    def error(self) -> float:
        """‖B‖²_F of the best pair so far."""

    @property
    def left(self) -> float:
        """Nominal seconds."""

    def charge(self, rounds: int, price: float) -> None:
        """Enter work of so many rounds at a price each."""

    def offer(self, method: str, measure: Dense, doing: str = "") -> None:
        """Keep a measure if its exact pair is the best so far."""

    def offer_pair(self, method: str, pair: Pair | None, doing: str = "") -> None:
        """Keep a pair of any sensitivity if it is exact and the best so far."""

    def tell(self, doing: str) -> None:
        """Report to the observer, who may end the search by that."""


def always(_: Reduction, /) -> bool:
    """A family that can win anywhere, within seconds."""
    return True


def no_seconds(_: Dense, __: Any, /) -> float:
    """A family that asks for no time of its own."""
    return 0.0


@dataclass(frozen=True, eq=False)
class Family:
    """A family of mechanisms; everything but its name and its function may be left out."""

    name: str
    method: Method
    """From a workload to this family's strategy."""
    noise: Noise = LAPLACE
    settings: Any = None
    """The family's constants, a frozen value; handed to the functions below that take settings."""
    searches: bool = False
    """Whether it searches, or has a closed form."""
    quick: bool = False
    """Whether it takes seconds on every workload, so that a page or a demonstration can wait for it."""
    plain: bool = False
    """Whether its pair is made of the workload itself and nothing larger, whatever the size."""
    slow_beyond: int | None = None
    """The number of cells beyond which its function takes minutes."""
    worth: Callable[[Reduction], bool] = always
    """Whether its function, run as it stands, can win here within seconds."""
    variants: tuple[Method, ...] = ()
    """Strategies that the least largest error must not be worse than; its function alone if left out."""
    on_columns: Callable[[Dense, Any], Iterator[Pair]] | None = None
    """From R and settings: pairs in closed form on the merged columns themselves, of any sensitivity."""
    over_cells: Callable[[Reduction, float, Any], Iterator[Dense]] | None = None
    """From the reduction, the best ‖B‖²_F so far and settings: measures over the cells, brought to the columns."""
    refine: Callable[[Account, Any], None] | None = None
    """Begins at the best of the closed forms, before any search."""
    search: Callable[[Account, Reduction, int, float, Any], None] | None = None
    """From account, reduction, seed, share and settings: spends that share of what is left."""
    may_pay: Callable[[Dense, Any], bool] | None = None
    """From R and settings: whether its search is given a share of the work; always if left out."""
    part: float = 1.0
    """Its part of the work that is left, relative to the parts of the searches after it."""
    nominal_seconds: Callable[[Dense, Any], float] = no_seconds
    """From R and settings: what it asks for where the caller sets no time."""
    on_sparse: Callable[[sparse.csr_array, Any], tuple[float, Callable[[], Pair | None]]] | None = None
    """From a sparse matrix with merged columns and settings: ‖B‖²_F at sensitivity 1, found without a dense copy of it,
    and the pair when it is wanted."""
    optimum: Callable[[MatrixWorkload, float, BoundProgress | None], PairStrategy] | None = None
    """From workload, tolerance and observer: the function with what a convex search can be told."""

    def pays(self, R: Dense) -> bool:
        """Whether its search is given a share of the work."""
        return self.search is not None and (self.may_pay is None or self.may_pay(R, self.settings))

    def measures(self, reduction: Reduction, best: float, *, thorough: bool) -> Iterator[Dense]:
        """Measures over the cells, brought to the merged columns and never worse there."""
        if self.over_cells is not None:
            yield from self.over_cells(reduction, best, self.settings)
        elif self._as_it_stands and (thorough or not self.searches) and self.worth(reduction):
            yield reduction.restrict_measure(self.method(reduction.workload).measurement)

    @property
    def _as_it_stands(self) -> bool:
        """Whether its function is all that is known of it."""
        return self.on_columns is None and self.search is None


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
