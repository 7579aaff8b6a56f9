"""Reads tables from the noisy measurements of a Laplace strategy over many columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.law import laplace_quantiles
from batchdp.mechanism.marginal.lattice import IntegerResults, WeightedLattice
from batchdp.mechanism.marginal.law import Reading, TablesReading
from batchdp.mechanism.measurement import Integers
from batchdp.mechanism.tables import ROUNDING, LatticeReader
from batchdp.strategies.marginal.strategy import Results


class ResultsReading:
    """Reads tables of queries that were measured themselves."""

    is_exact = False

    def __init__(self, measure: IntegerResults, starts: Integers) -> None:
        self.measure, self.starts = measure, starts

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        own = noisy[self.starts[table] : self.starts[table + 1]].astype(np.float64)
        return np.asarray(own / self.measure.scale(table)).reshape(self.measure.shape(table))

    def weights(self, table: int, at: dict[int, Integers], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers make of the measurements: one draw each."""
        results = Results(self.measure.workload, self.measure.scale(table))
        found = results.weights(results.workload, table, at, places)
        return ((int(self.starts[k]), own) for k, own in found)

    def squared(self, table: int) -> Dense:
        """The variance of a table's answers where that of the noise is 1, to be broadcast to its shape."""
        return np.full((1,) * len(self.measure.shape(table)), self.measure.scale(table) ** -2)

    def half_widths(self, table: int, confidence: float) -> Dense:
        """The h with |noise| ≤ h, for noise of scale 1: an answer rests on one draw."""
        return np.asarray(np.sqrt(self.squared(table)) * laplace_quantiles(np.ones((1, 1)), confidence)[0])

    def missed(self, table: int) -> Dense:
        """How much of every answer is off, per record, because factors are rounded; to be broadcast."""
        return self.measure.missed(table)

    def length(self, table: int) -> int:
        """Of the sums in which answers are made: there are none."""
        return 64


class WeightedReader(LatticeReader):
    """Reads tables from the noisy measurements of weighted tables, or of the queries themselves."""

    lattice: WeightedLattice

    def __init__(self, lattice: WeightedLattice, scales: Dense) -> None:
        super().__init__(lattice, scales)
        self._readings: list[Reading] = [
            ResultsReading(own, starts)
            if isinstance(own, IntegerResults)
            else TablesReading(own, starts, lattice.workload)
            for own, starts in zip(lattice.measures, lattice.starts, strict=True)
        ]

    @property
    def scale(self) -> float:
        """λ of every draw, in lattice steps."""
        return float(self.scales[0])

    @cached_property
    def _serving(self) -> dict[int, int]:
        """The group of every table that not all groups serve."""
        found: dict[int, int] = {}
        for g, own in enumerate(self.lattice.measures):
            for t in own.serves or ():
                found.setdefault(t, g)
        return found

    def _reading(self, table: int) -> Reading:
        return self._readings[self._serving.get(table, 0)]

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        self.shape(table)
        return self._reading(table).values(table, noisy)

    def variances(self, table: int) -> Dense:
        """Of a table's answers, to be broadcast to its shape: a whole table has one for all."""
        return np.asarray(2 * self.scale**2 * self._reading(table).squared(table))

    def half_widths(self, table: int, confidence: float) -> Dense:
        """Of the intervals of a table's answers, by the law of sums of Laplace draws; to be broadcast to its shape."""
        return np.asarray(self.scale * self._reading(table).half_widths(table, confidence))

    def weights(self, table: int, at: dict[int, Integers], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers make of every measured table, times the scale of the noise."""
        return ((start, self.scale * own) for start, own in self._reading(table).weights(table, at, places))

    def bias_share(self, table: int) -> float:
        """The most that an answer of a table can be off apart from noise, as a share of its standard error."""
        reading, moved = self._reading(table), float(self.lattice.sensitivity)
        lost = np.zeros(1)
        if not reading.is_exact:
            missed, errors = np.broadcast_arrays(reading.missed(table), np.sqrt(self.variances(table)))
            lost = np.divide(missed, errors, out=np.zeros(errors.shape), where=errors > 0)
        # Rounding in floats: at most |B| |Q| per record, so at most ‖B‖ Δ, and the noise has √2 λ ‖B‖.
        rounding = ROUNDING * reading.length(table) * moved / (1.414 * self.scale)
        return self.lattice.largest_total * (float(lost.max(initial=0.0)) + rounding)
