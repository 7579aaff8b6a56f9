"""Everything that can be refused before the ledger is charged: the lattice, the noise on it, and the bias beside it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np

from batchdp.errors import LatticeError
from batchdp.measuring.amounts import AmountLattice, lattice_of
from batchdp.measuring.cap import caps_for, excess_bias
from batchdp.measuring.lattice import Lattice
from batchdp.measuring.law import NoiseLaw
from batchdp.measuring.mechanism import Mechanism, mechanism
from batchdp.measuring.neighbours import Neighbours
from batchdp.measuring.shaping.lattice import ShapedLattice
from batchdp.measuring.shaping.law import law_of
from batchdp.measuring.shaping.mechanism import shaped_mechanism
from batchdp.privacy import Budget
from batchdp.strategies.strategy import Strategy

LEAST_SCALE = 64.0
"""Of the noise in lattice steps: above it, discrete noise has the law of continuous noise to many digits."""


def prepared(
    strategy: Strategy,
    neighbours: Neighbours,
    budget: float,
    max_rows: int | None,
    *,
    drawn: bool = False,
) -> tuple[Lattice | AmountLattice, Mechanism, NoiseLaw]:
    """The lattice, the noise on it and its law; refused unless the bias is below 1 % of every answer's noise.

    Where the noise was `drawn` before, for a release that is asked for again, there is nothing left to refuse. Queries
    are answered exactly, with more noise, only where nothing else keeps the bias small.
    """
    caps = caps_for(strategy.workload, max_rows)
    for exact, cap in product((False, True), caps):
        lattice = lattice_of(strategy, largest_total=cap, exactly=exact)
        noise, steps = _noise(lattice, neighbours, budget)
        if steps < LEAST_SCALE and lattice.sensitivity and not drawn:
            raise LatticeError(
                f"a budget of {budget:g} leaves noise of {steps:.2g} lattice steps, too little to hide behind; "
                "lower the budget"
            )
        law = law_of(lattice, noise.scale)
        over = excess_bias(lattice, law)
        if (drawn and exact) or np.all(over <= 0):
            return lattice, noise, law
    worst = int(np.argmax(over))
    raise LatticeError(
        f"max_rows={cap}: query {strategy.workload.names[worst]!r} could be off by {lattice.bias_bound[worst]:.3g} "
        f"beside noise of {law.standard_errors[worst]:.3g}, more than 1 %; lower max_rows or the budget"
    )


def _noise(lattice: Lattice | AmountLattice, neighbours: Neighbours, budget: float) -> tuple[Mechanism, float]:
    """The noise, and how large it is in steps of the lattice."""
    if isinstance(lattice, ShapedLattice):
        noise = shaped_mechanism(lattice, neighbours.factor, budget)
        return noise, noise.scale * lattice.thinnest
    # A workload of zeros measures nothing; noise for a sensitivity of 1 is then added to nothing.
    plain = mechanism(lattice.privacy, max(1, lattice.sensitivity * neighbours.factor), budget)
    return plain, plain.scale


def exact_charge(budget: float) -> tuple[Decimal, float]:
    """The decimal number that the user wrote, which is charged, and the largest float not above it, for the noise.

    The float 0.1 is a little more than 1/10. Charged as it is it would cost 0.100000001, and ten such releases would
    not fit into 1.
    """
    charge = Decimal(repr(budget))
    return charge, budget if Fraction(budget) <= Fraction(charge) else math.nextafter(budget, 0.0)


def checked_budget(strategy: Strategy, epsilon: float | None, rho: float | None) -> float:
    """The budget of the strategy's kind, checked."""
    return float(Budget.of(strategy.noise, epsilon=epsilon, rho=rho))
