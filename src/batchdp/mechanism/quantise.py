"""From a strategy to what is measured in whole numbers; one line a kind of strategy."""

from __future__ import annotations

from functools import singledispatch

from batchdp.components.strategy import ResidualStrategy
from batchdp.errors import StrategyError
from batchdp.mechanism.amounts import AmountLattice, quantise_amounts
from batchdp.mechanism.components.lattice import ComponentLattice, quantise_components
from batchdp.mechanism.knorm.lattice import quantise_shaped
from batchdp.mechanism.lattice import Lattice, quantise_cells
from batchdp.mechanism.measurement import IntegerMeasurement
from batchdp.mechanism.weighted.lattice import WeightedLattice, quantise_weighted
from batchdp.privacy import Budget
from batchdp.strategies.pair import PairStrategy
from batchdp.weighted.strategy import MarginalStrategy


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
