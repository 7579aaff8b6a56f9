"""Everything about a release of components that can be refused before the ledger is charged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchdp.components.strategy import Components
from batchdp.errors import LatticeError
from batchdp.measuring.components.drawing import Gaussian, gaussian
from batchdp.measuring.components.lattice import ComponentLattice, WholeGroups, quantise_components
from batchdp.measuring.components.tables import TableReader
from batchdp.measuring.neighbours import Neighbours

Dense = NDArray[np.float64]

CAPS = tuple(10**power for power in range(9, 5, -1))
"""Public caps on the number of records that are tried where none is given, the largest first."""
MOST_BIAS = 0.01
"""Of an answer's standard error."""
MOST_EXCESS = 0.002
"""Of variances on the lattice over those of the strategy, for which a lower cap is tried."""
SAMPLE = 5
"""Tables that are looked at for it."""
SLACK = 2.0**-40
"""Of every share: room for what OpenDP's maps round up."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The lattice, and the noise of every group on it."""

    lattice: ComponentLattice
    noises: tuple[Gaussian, ...]
    rho: float
    """What is charged; the exact sum of all losses is at most this."""
    bias_share: float = 0.0
    """The most that any answer is off apart from noise, as a share of its standard error."""

    @property
    def loss(self) -> Fraction:
        """The sum of what every group loses, exactly."""
        return sum((Fraction(noise.loss) for noise in self.noises), Fraction(0))

    @cached_property
    def scales(self) -> Dense:
        """σ of every group, in lattice steps."""
        return np.array([noise.scale for noise in self.noises])

    @cached_property
    def reader(self) -> TableReader:
        """How tables are read from noisy measurements."""
        return TableReader(self.lattice, self.scales)

    def excess(self, strategy: Components, neighbours: Neighbours) -> float:
        """How much larger variances are than the strategy's, because integers are rounded; of some tables."""
        if isinstance(self.lattice.groups, WholeGroups):
            return 0.0
        found = 0.0
        for t in range(len(strategy.workload.tables))[:SAMPLE]:
            expected = float(strategy.variances(t, rho=self.rho).sum()) * neighbours.factor**2
            shape = self.reader.shape(t)
            if expected > 0:
                found = max(found, float(np.broadcast_to(self.reader.variances(t), shape).sum()) / expected - 1)
        return found


def prepare(strategy: Components, neighbours: Neighbours, rho: float, max_rows: int | None) -> Prepared:
    """The strategy on a lattice with its noise; refused unless the bias is below 1 % of every answer's noise."""
    problem, kept = "", None
    for cap in CAPS if max_rows is None else (max_rows,):
        try:
            lattice = quantise_components(strategy, largest_total=cap, rho=rho, factor=neighbours.factor)
            prepared = Prepared(lattice, tuple(_noises(lattice, neighbours.factor, rho)), rho)
        except LatticeError as error:
            problem = str(error)
            continue
        if prepared.loss > Fraction(rho):
            raise LatticeError(f"the components lose {float(prepared.loss)!r} in all, more than rho={rho!r}")
        worst, table = prepared.reader.worst_bias()
        if worst <= MOST_BIAS:
            kept = prepared = replace(prepared, bias_share=worst)
            if max_rows is not None or prepared.excess(strategy, neighbours) <= MOST_EXCESS:
                return prepared
        problem = (
            f"max_rows={cap}: an answer of table {strategy.workload.tables[table].name!r} could be off by "
            f"{worst:.2g} of its noise, more than 1 %; lower max_rows or rho"
        )
    if kept is None:
        raise LatticeError(problem)
    return kept  # the finest, at the lowest cap


def _noises(lattice: ComponentLattice, factor: int, rho: float) -> Iterator[Gaussian]:
    """Of every group at its share; shares that add up to a little more than 1 in floats are made smaller."""
    groups = lattice.groups
    shares = groups.shares if isinstance(groups, WholeGroups) else np.array([group.share for group in groups])
    whole = max(1.0, float(np.sum(shares))) * (1 + SLACK)
    for group in groups:
        if group.squares == 0:  # it measures nothing
            yield Gaussian(0, 0.0, 0.0)
        else:
            yield gaussian(group.squares * factor**2, rho * group.share / whole)
