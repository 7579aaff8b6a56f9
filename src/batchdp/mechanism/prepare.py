"""Everything that can be refused before the ledger is charged: the lattice, the noise on it, the bias beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, singledispatch
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from batchdp.errors import LatticeError, StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.amounts import quantise_amounts
from batchdp.mechanism.calibrate import calibrate
from batchdp.mechanism.knorm.lattice import quantise_shaped
from batchdp.mechanism.lattice import FEWEST_BITS, OneGroup, quantise_cells
from batchdp.mechanism.marginal.lattice import quantise_weighted
from batchdp.mechanism.measurement import LARGEST, GroupNoise, IntegerMeasurement, Neighbours, total_loss
from batchdp.mechanism.residual.lattice import quantise_components
from batchdp.privacy import Budget, Noise
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.strategy import FactoredStrategy


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


def lattice_of(strategy: PairStrategy, *, largest_total: int, exactly: bool = False) -> OneGroup:
    """A strategy on cells, of which neither budget nor neighbours decide the lattice."""
    if strategy.shape is not None:
        return quantise_shaped(strategy, largest_total=largest_total, exactly=exactly)
    if strategy.workload.ends:
        return quantise_amounts(strategy, largest_total=largest_total)
    return quantise_cells(strategy, largest_total=largest_total, exactly=exactly)


quantise.register(quantise_components)
quantise.register(quantise_weighted)


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


MOST_EXCESS = 0.002
"""Of variances on the lattice over those of the strategy, for which a lower cap is tried."""
MOST_MEASUREMENTS = 2**32
"""Of a release that is charged by the noise that was drawn."""
LOOKED_AT = 5
"""Tables that are looked at for it."""
MOST_KEPT = 4
"""Mechanisms that are kept for a strategy."""
_PREPARED: WeakKeyDictionary[Any, dict[Any, Mechanism]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A measurement with the noise that makes it private, for these neighbours."""

    measurement: IntegerMeasurement
    noises: tuple[GroupNoise, ...]
    """Of every group."""
    budget: Budget
    """What is charged; the exact sum of all losses is at most this."""
    neighbours: Neighbours
    bias_share: float = 0.0
    """The most that any answer is off apart from noise, as a share of its standard error."""

    @property
    def noise(self) -> Noise:
        """The kind of noise."""
        return self.measurement.noise

    @property
    def loss(self) -> Fraction:
        """The sum of what every group loses, exactly."""
        return total_loss(self.noises)

    @cached_property
    def scales(self) -> Dense:
        """λ or σ of every group, in lattice steps."""
        return np.array([noise.scale for noise in self.noises])

    @property
    def least_scale(self) -> float | None:
        """The least of them, where what is charged depends on it, and there are not too many for that."""
        few = self.measurement.sizes.sum() <= MOST_MEASUREMENTS
        return self.noise.least_scale(self.scales.tolist()) if few else None

    @cached_property
    def reader(self) -> Any:
        """How answers are read from noisy measurements."""
        return self.measurement.reader(self.scales)


def prepare(
    strategy: Any,
    neighbours: Neighbours,
    budget: Budget,
    max_rows: int | None,
    *,
    exactly: bool | None = None,
    drawn: bool = False,
) -> Mechanism:
    """The strategy on a lattice with its noise; refused unless the bias is below 1 % of every answer's noise.

    Args:
        strategy: what to measure.
        neighbours: what two tables that must not be told apart differ by.
        budget: what is charged.
        max_rows: a public cap on the number of records; if left out, the largest that leaves the bias small.
        exactly: answers exactly, at the price of noise, or not; if left out, only where nothing else keeps the bias
            small.
        drawn: the noise was drawn before, for a release that is asked for again: no bias is a reason to refuse then.

    What was prepared for a strategy is kept as long as the strategy is: it follows from these arguments alone.
    """
    known = _PREPARED.setdefault(strategy, {})
    asked = neighbours, budget, max_rows, exactly, drawn
    made = known.get(asked)
    if made is None:
        made = known[asked] = _prepared(strategy, *asked)
        for one in list(known)[:-MOST_KEPT]:
            known.pop(one, None)
    return replace(made)  # with a reader of its own


def _prepared(
    strategy: Any, neighbours: Neighbours, budget: Budget, max_rows: int | None, exactly: bool | None, drawn: bool
) -> Mechanism:
    problem, kept = "", None
    for exact, cap in product((False, True) if exactly is None else (exactly,), caps_of(strategy, max_rows)):
        if exact and kept is not None:
            break
        try:
            measurement = quantise(strategy, largest_total=cap, budget=budget, factor=neighbours.factor, exactly=exact)
            noises = calibrate(measurement, neighbours.factor, budget)
        except LatticeError as error:
            problem = str(error)
            continue
        made = Mechanism(measurement, noises, budget, neighbours)
        worst, which = measurement.worst_bias(made.reader)
        if worst <= MOST_BIAS or (drawn and exact):
            kept = Mechanism(measurement, noises, budget, neighbours, worst)
            if max_rows is not None or excess(strategy, kept) <= MOST_EXCESS:
                return kept
        problem = (
            f"max_rows={cap}: {which} could be off by {worst:.2g} of its noise, more than 1 %; lower max_rows or "
            f"{budget.noise.unit}"
        )
    if kept is None:
        raise LatticeError(problem)
    return kept  # the finest, at the lowest cap


@singledispatch
def caps_of(strategy: Any, max_rows: int | None) -> Sequence[int]:
    """The public caps to try, in order: the given one alone, or the defaults of a kind of strategy."""
    return TABLE_CAPS if max_rows is None else (max_rows,)


@caps_of.register
def _(strategy: PairStrategy, max_rows: int | None) -> Sequence[int]:
    """The defaults that leave the lattice bits enough; a record is counted once in every block."""
    most = (LARGEST >> FEWEST_BITS) // len(strategy.workload.blocks)
    return (tuple(cap for cap in CAPS if cap <= most) or CAPS[-1:]) if max_rows is None else (max_rows,)


@singledispatch
def excess(strategy: Any, made: Mechanism) -> float:
    """How much larger variances are than the strategy's, because integers are rounded; of some tables."""
    return 0.0


@excess.register
def _(strategy: FactoredStrategy, made: Mechanism) -> float:
    measurement: Any = made.measurement
    if measurement.is_whole:
        return 0.0
    unit = made.budget.variance(made.neighbours.factor**2)
    found = 0.0
    for t in range(len(strategy.workload.tables))[:LOOKED_AT]:
        expected = unit * float(strategy.distinct_variances(t).mean())
        # To be broadcast: the mean stays as it is.
        if expected > 0:
            found = max(found, float(made.reader.variances(t).mean()) / expected - 1)
    return found
