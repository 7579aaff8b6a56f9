"""From a strategy to what is measured in whole numbers; one line a kind of strategy."""

from __future__ import annotations

from functools import singledispatch

from batchdp.components.strategy import ResidualStrategy
from batchdp.errors import StrategyError
from batchdp.mechanism.amounts import AmountLattice, quantise_amounts
from batchdp.mechanism.components.lattice import ComponentLattice, quantise_components
from batchdp.mechanism.knorm.lattice import quantise_shaped
from batchdp.mechanism.lattice import FEWEST_BITS, Lattice, quantise_cells
from batchdp.mechanism.measurement import LARGEST, IntegerMeasurement
from batchdp.mechanism.weighted.lattice import WeightedLattice, quantise_weighted
from batchdp.privacy import Budget
from batchdp.strategies.pair import PairStrategy
from batchdp.weighted.strategy import MarginalStrategy
from batchdp.workloads.workload import MatrixWorkload


@singledispatch
def quantise(
    strategy: object, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False
) -> IntegerMeasurement:
    """The strategy on the finest lattice on which `largest_total` records cannot overflow.

    Args:
        strategy: what to measure.
        largest_total: the public cap on the number of records.
        budget, factor: what the noise will be scaled to, where the lattice is made for it.
        exactly: where more is measured than its rank, answer exactly, at the price of noise.
    """
    raise StrategyError(f"strategy is a {type(strategy).__name__}, which cannot be measured; give what optimize found")


def can_be_measured(strategy: object) -> bool:
    """Whether a strategy is of a kind that `quantise` knows."""
    return quantise.dispatch(type(strategy)) is not quantise.dispatch(object)


@quantise.register
def _(
    strategy: PairStrategy, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False
) -> IntegerMeasurement:
    return lattice_of(strategy, largest_total=largest_total, exactly=exactly)


def lattice_of(strategy: PairStrategy, *, largest_total: int, exactly: bool = False) -> Lattice | AmountLattice:
    """A strategy on cells, of which neither budget nor neighbours decide the lattice."""
    if strategy.shape is not None:
        return quantise_shaped(strategy, largest_total=largest_total, exactly=exactly)
    if strategy.workload.ends:
        return quantise_amounts(strategy, largest_total=largest_total)
    return quantise_cells(strategy, largest_total=largest_total, exactly=exactly)


@quantise.register
def _(
    strategy: ResidualStrategy, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False
) -> ComponentLattice:
    return quantise_components(strategy, largest_total=largest_total, rho=float(budget), factor=factor)


@quantise.register
def _(
    strategy: MarginalStrategy, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False
) -> WeightedLattice:
    return quantise_weighted(strategy, largest_total=largest_total, epsilon=float(budget), factor=factor)


# ── The public cap on the number of records: the one that was given, or the first default that is good enough.
#
# A cap decides how fine the lattice can be, and so how large the bias: the more records must fit into 64 bits, the
# fewer bits a measurement has. Whatever needs a cap asks here, so that plans, advice and releases agree.

CAPS = tuple(10**power for power in range(12, 5, -1))
"""What is tried where no cap is given, the largest first."""
TABLE_CAPS = CAPS[3:]
"""The same for strategies over many columns."""
MOST_BIAS = 0.01
"""The largest bias that a release may have, relative to an answer's standard error."""


def caps_for(workload: MatrixWorkload, max_rows: int | None) -> tuple[int, ...]:
    """The caps to try, in order: the given one alone, or the defaults that leave the lattice bits enough.

    The first is the default where no budget says how much noise there is. A record is counted once in every block.
    """
    if max_rows is not None:
        return (max_rows,)
    return tuple(cap for cap in CAPS if cap * len(workload.blocks) <= LARGEST >> FEWEST_BITS) or CAPS[-1:]
