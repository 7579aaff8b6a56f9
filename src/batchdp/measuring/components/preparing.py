"""Everything about a release of tables that can be refused before the ledger is charged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchdp.components.strategy import Components
from batchdp.errors import LatticeError, StrategyError
from batchdp.measuring.cap import MOST_BIAS, TABLE_CAPS
from batchdp.measuring.components.drawing import NOTHING, GroupNoise, least_noise
from batchdp.measuring.components.lattice import ComponentLattice, WholeGroups, quantise_components
from batchdp.measuring.components.tables import TableReader
from batchdp.measuring.neighbours import Neighbours
from batchdp.measuring.weighted.lattice import WeightedLattice, quantise_weighted
from batchdp.measuring.weighted.tables import WeightedReader
from batchdp.privacy import Budget, Noise
from batchdp.strategies.over_tables import OverTables
from batchdp.weighted.strategy import WeightedTables

Dense = NDArray[np.float64]
TablesLattice = ComponentLattice | WeightedLattice

MOST_EXCESS = 0.002
"""Of variances on the lattice over those of the strategy, for which a lower cap is tried."""
SAMPLE = 5
"""Tables that are looked at for it."""
SLACK = 2.0**-40
"""Of every share: room for what OpenDP's maps round up."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The lattice, and the noise of every group on it."""

    lattice: TablesLattice
    noises: tuple[GroupNoise, ...]
    budget: float
    """What is charged, ε or ρ; the exact sum of all losses is at most this."""
    bias_share: float = 0.0
    """The most that any answer is off apart from noise, as a share of its standard error."""

    @property
    def noise(self) -> Noise:
        """The kind of noise."""
        return self.lattice.noise

    @property
    def loss(self) -> Fraction:
        """The sum of what every group loses, exactly."""
        return sum((Fraction(noise.loss) for noise in self.noises), Fraction(0))

    @cached_property
    def scales(self) -> Dense:
        """λ or σ of every group, in lattice steps."""
        return np.array([noise.scale for noise in self.noises])

    @cached_property
    def reader(self) -> TableReader | WeightedReader:
        """How tables are read from noisy measurements."""
        return reader_of(self.lattice, self.scales)

    def excess(self, strategy: OverTables, neighbours: Neighbours) -> float:
        """How much larger variances are than the strategy's, because integers are rounded; of some tables."""
        if isinstance(self.lattice, ComponentLattice) and isinstance(self.lattice.groups, WholeGroups):
            return 0.0
        budget = Budget(self.noise, self.budget)
        found = 0.0
        for t in range(len(strategy.workload.tables))[:SAMPLE]:
            if isinstance(strategy, WeightedTables):
                expected = float(strategy.distinct_variances(t).mean()) * budget.variance(neighbours.factor**2)
            else:
                expected = float(strategy.variances(t, **budget.arguments).mean()) * neighbours.factor**2
            # To be broadcast: the mean stays as it is.
            if expected > 0:
                found = max(found, float(self.reader.variances(t).mean()) / expected - 1)
        return found


def prepare(strategy: OverTables, neighbours: Neighbours, budget: float, max_rows: int | None) -> Prepared:
    """The strategy on a lattice with its noise; refused unless the bias is below 1 % of every answer's noise."""
    problem, kept = "", None
    unit = strategy.noise.unit
    for cap in TABLE_CAPS if max_rows is None else (max_rows,):
        try:
            lattice = _lattice(strategy, cap, budget, neighbours.factor)
            prepared = Prepared(lattice, tuple(_noises(lattice, neighbours.factor, budget)), budget)
        except LatticeError as error:
            problem = str(error)
            continue
        if prepared.loss > Budget(strategy.noise, budget).certain:
            raise LatticeError(f"the measurements lose {float(prepared.loss)!r} in all, more than {unit}={budget!r}")
        worst, table = prepared.reader.worst_bias()
        if worst <= MOST_BIAS:
            kept = prepared = replace(prepared, bias_share=worst)
            if max_rows is not None or prepared.excess(strategy, neighbours) <= MOST_EXCESS:
                return prepared
        problem = (
            f"max_rows={cap}: an answer of table {strategy.workload.tables[table].name!r} could be off by "
            f"{worst:.2g} of its noise, more than 1 %; lower max_rows or {unit}"
        )
    if kept is None:
        raise LatticeError(problem)
    return kept  # the finest, at the lowest cap


def _lattice(strategy: OverTables, cap: int, budget: float, factor: int) -> TablesLattice:
    if isinstance(strategy, Components):
        return quantise_components(strategy, largest_total=cap, rho=budget, factor=factor)
    if isinstance(strategy, WeightedTables):
        return quantise_weighted(strategy, largest_total=cap, epsilon=budget, factor=factor)
    raise StrategyError(f"strategy is a {type(strategy).__name__}, which has no lattice; give what optimize found")


def reader_of(lattice: TablesLattice, scales: Dense) -> TableReader | WeightedReader:
    """How tables are read from measurements with noise of these scales."""
    return TableReader(lattice, scales) if isinstance(lattice, ComponentLattice) else WeightedReader(lattice, scales)


def _noises(lattice: TablesLattice, factor: int, budget: float) -> Iterator[GroupNoise]:
    """Of every group at its share; shares that add up to a little more than 1 in floats are made smaller."""
    groups, noise = lattice.groups, lattice.noise
    shares = groups.shares if isinstance(groups, WholeGroups) else np.array([group.share for group in groups])
    whole = max(1.0, float(np.sum(shares))) * (1 + SLACK)
    for group in groups:
        if group.moved == 0:  # it measures nothing
            yield NOTHING
        else:
            yield least_noise(noise, group.moved * factor**noise.norm, budget * group.share / whole)
