"""How the noise in answers from weighted tables is distributed: for every answer what it makes of each Laplace draw.

Along a column of which each value is measured by itself, queries with the same coefficients in any order have one law:
where each value is asked, a draw counts in one of two ways, at the answer's own value and at any other. Draws are
listed by kind, each with how often it occurs. Tables with thousands of answers that all differ, from as many draws,
have the law of equal draws that have their variance and kurtosis instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.law import laplace_quantiles
from batchdp.mechanism.marginal.lattice import IntegerInside, IntegerTables
from batchdp.mechanism.measurement import Integers
from batchdp.strategies.marginal.columns import ColumnStrategy
from batchdp.strategies.residual.columns import Axis, along, axes_of
from batchdp.strategies.residual.terms import kron
from batchdp.workloads.kronecker import KroneckerWorkload

MOST_KEPT = 20_000_000
"""Numbers of components that are kept while tables are read."""
MOST_LISTED = 100_000_000
"""Answers times draws up to which every draw is looked at by itself."""
MOST_SUMMED = 10_000_000_000
"""Answers times draws up to which they are summed up; beyond, an answer is taken to rest on a single draw."""
MOST_ANSWERS = 5_000
"""Up to which the law of each is inverted."""
AT_ONCE = 5_000_000
GRID = np.geomspace(1, 1e4, 60)
"""Numbers of equal draws for which the law is inverted where there are more answers."""

Sign = tuple[tuple[int, ...], tuple[int, ...]]
"""Which of an asked table's columns a measured table tells apart, and of which it takes the difference."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """What answers make of the draws along one column: answer × kind of draw."""

    average: Dense
    rest: Dense
    times: Dense
    """How many draws are of each kind."""


@dataclass(frozen=True, eq=False)
class Looked:
    """How an asked table looks at a column, as the group measures it."""

    axis: Axis
    own: IntegerInside

    @cached_property
    def average(self) -> Dense:
        """F X 1 / τ: what every query has of the average; one number where all have the same."""
        F, inside = self.axis.matrix, self.own.inside
        if F is None:
            return (
                np.full(1, 1 / self.own.values) if inside.inverse is None else inside.inverse.sum(axis=1) / inside.tau
            )
        return inside.averages(F)

    @cached_property
    def halves(self) -> Dense:
        """What every query makes of half the difference of two values."""
        F = np.eye(2) if self.axis.matrix is None else self.axis.matrix
        return np.asarray((F[:, 0] - F[:, 1]) / 2)

    @cached_property
    def kinds(self) -> Kinds:
        """Of draws along a column that both tell apart."""
        F, inside, n = self.axis.matrix, self.own.inside, self.own.values
        if inside.measure is None or inside.inverse is None:
            if F is None:
                average = np.full((1, 2 if n > 1 else 1), 1 / n**2)
                rest = np.array([[1 - 1 / n, -1 / n]])[:, : average.shape[1]] / n
                return Kinds(average, rest, np.array([1.0, n - 1])[: average.shape[1]])
            times = np.ones(n)
            if np.all(np.sort(F, axis=1) == np.sort(F[:1], axis=1)):  # the same numbers in every row: one law for all
                values, counts = np.unique(F[0], return_counts=True)
                F, times = values[None], counts.astype(np.float64)
            average = np.repeat((F @ times)[:, None] / n**2, len(times), axis=1)
            return Kinds(average, F / n - average, times)
        rows = np.eye(n) if F is None else F
        average, rest = (inside.recovered(rows, rest=rest) for rest in (False, True))
        return Kinds(average, rest, np.ones(len(inside.measure)))

    def rows(self, values: Dense, axis: int) -> Dense:
        """F along an axis of values that are told apart."""
        F = self.axis.matrix
        return values if F is None else np.moveaxis(np.moveaxis(values, axis, -1) @ F.T, -1, axis)


class Reading(Protocol):
    """How asked tables are read from the noisy measurements of one group."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded."""
        ...

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        ...

    def weights(self, table: int, at: dict[int, Integers], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers make of the measurements, as `LatticeReader.weights`, for noise of scale 1."""
        ...

    def squared(self, table: int) -> Dense:
        """The variance of a table's answers where that of the noise is 1, to be broadcast to its shape."""
        ...

    def half_widths(self, table: int, confidence: float) -> Dense:
        """The h with |noise| ≤ h, for noise of scale 1."""
        ...

    def missed(self, table: int) -> Dense:
        """How much of every answer is off, per record, because numbers are rounded; to be broadcast."""
        ...

    def length(self, table: int) -> int:
        """How long the sums are in which answers are made."""
        ...


@dataclass(eq=False)
class TablesReading:
    """Reads asked tables from the noisy measurements of one group of weighted tables."""

    measure: IntegerTables
    starts: Integers
    """Where the measurements of every table begin, and the last end."""
    workload: KroneckerWorkload
    _of: Integers | None = field(default=None, repr=False)
    _kept: dict[tuple[int, ...], Dense] = field(default_factory=dict, repr=False)

    def looked(self, table: int) -> dict[int, Looked]:
        """How a table looks at its columns."""
        axes = axes_of(self.workload, table, self.measure.columns)
        return {i: Looked(axis, self.measure.insides[i]) for i, axis in axes.items() if isinstance(axis, Axis)}

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        looked = self.looked(table)
        found = np.zeros(tuple(one.axis.rows for one in looked.values()))
        for kept, eigenvalue in self.measure.group.components(looked):
            share = self._component(kept, eigenvalue, noisy)
            for axis, i in enumerate(kept):
                share = looked[i].rows(share, axis)
            share = share.reshape([share.shape[kept.index(i)] if i in kept else 1 for i in looked])
            for i, one in looked.items():
                if i not in kept:
                    share = share * along(looked, i, one.average)
            found += share
        return found

    def _component(self, kept: tuple[int, ...], eigenvalue: float, noisy: Integers) -> Dense:
        """The estimate of a component: an array over the values of its columns that are told apart."""
        if self._of is not noisy:
            self._of, self._kept = noisy, {}
        if kept not in self._kept:
            if sum(one.size for one in self._kept.values()) > MOST_KEPT:
                self._kept = {}
            self._kept[kept] = self._estimated(kept, noisy) / eigenvalue
        return self._kept[kept]

    def _estimated(self, kept: tuple[int, ...], noisy: Integers) -> Dense:
        tables, theta = self.measure.tables, self.measure.group.theta
        own = np.isin(np.arange(tables.apart.shape[1]), kept)
        sees = np.all(tables.looked | ~own, axis=1) & np.all(own | ~tables.difference, axis=1) & (theta > 0)
        total = np.zeros([self.measure.insides[i].values for i in kept])
        for k in np.flatnonzero(sees).tolist():
            y = np.asarray(noisy[self.starts[k] : self.starts[k + 1]], np.float64).reshape(self.measure.shape(k))
            axis = 0
            for i in self.measure.apart(k):
                inside = self.measure.insides[i].inside
                if i in kept:
                    y = _rest(y, axis, inside)
                    axis += 1
                else:
                    y = _average(y, axis, inside)
            for place, i in enumerate(kept):
                if tables.difference[k, i]:
                    y = np.stack([y / 2, -y / 2], axis=place)
            total += float(theta[k]) * y
        return total

    def weights(self, table: int, at: dict[int, Integers], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers make of every measured table, as `LatticeReader.weights`, for noise of scale 1."""
        found = self.measure.group.weights(self.workload, table, at, places)
        return ((int(self.starts[k]), own) for k, own in found)

    def squared(self, table: int) -> Dense:
        """The variance of a table's answers where that of the noise is 1, to be broadcast to its shape."""
        return self.measure.group.variances(self.workload, table)

    @cached_property
    def is_exact(self) -> bool:
        """Whether no column has a strategy inside: then there is no inverse that could be rounded."""
        return all(one.integers is None for one in self.measure.insides)

    def missed(self, table: int) -> Dense:
        """A bound on how much of every answer is off, per record, because inverses are rounded; to be broadcast.

        Every component has the weights of the tables that see it, which add up to 1, times a product over columns of an
        average or a rest. With bounds on both and on what each is off, the answer is off by no more than the product
        of all with what they are off, less the product without.
        """
        looked = self.looked(table)
        whole = kept = np.ones((1,) * len(looked))
        for i, own in enumerate(self.measure.insides):
            if own.missing is None:
                continue
            average = float(own.missing.sum(axis=0).max())  # |1ᵀ(X LᵀL − I)|
            if i not in looked:
                whole = whole * (1 + average)
                continue
            one = looked[i]
            F = np.eye(one.own.values) if one.axis.matrix is None else np.abs(one.axis.matrix)
            mean, rest = np.abs(one.average), F.max(axis=1) + np.abs(one.average)
            off = 2 * mean * average + (F @ own.missing).max(axis=1)
            kept = kept * along(looked, i, mean + rest)
            whole = whole * along(looked, i, mean + rest + off)
        if whole is kept:
            return np.zeros(whole.shape)
        found = whole - kept
        for i, one in looked.items():
            if self.measure.insides[i].missing is None:
                F = np.ones(1) if one.axis.matrix is None else np.abs(one.axis.matrix).max(axis=1)
                found = found * along(looked, i, 2 * np.abs(one.average) + F)
        return np.asarray(found)

    def length(self, table: int) -> int:
        """Of the sums in which answers are made: how often rounding adds up."""
        looked = self.looked(table)
        long = sum(one.rows + one.values for one in self.measure.insides if one.integers is not None)
        long += sum(one.axis.matrix.shape[1] for one in looked.values() if one.axis.matrix is not None)
        # Sums over values by themselves are pairwise.
        return int(64 * (1 + len(self.measure.insides)) + long + 2 ** len(looked))

    def half_widths(self, table: int, confidence: float) -> Dense:
        """For a table's answers the h with |noise| ≤ h, for noise of scale 1; to be broadcast to its shape."""
        looked = self.looked(table)
        answers = [len(one.kinds.average) for one in looked.values()]
        signs = self._signatures(looked)
        if not signs:  # its queries count nothing, and nothing is measured for them
            return np.zeros(answers)
        kinds = {i: len(one.kinds.times) for i, one in looked.items()}
        draws = sum(len(outside) * prod(kinds[i] for i in apart) for (apart, _), (outside, _) in signs.items())
        size = prod(answers) * draws
        if size > MOST_SUMMED:
            ends = GRID[[0, -1]]
            widest = max(laplace_quantiles(np.ones((2, 1)), confidence, ends[:, None]) / np.sqrt(2 * ends))
            return np.asarray(np.sqrt(2 * self.squared(table)) * widest)
        components = self.measure.group.components(looked)
        places = np.indices(answers).reshape(len(answers), prod(answers))
        found = np.zeros(places.shape[1])
        step = max(1, AT_ONCE // max(1, draws))
        for start in range(0, len(found), step):
            own = slice(start, start + step)
            terms = list(self._terms(looked, components, signs, places[:, own]))
            B, times = np.concatenate([b for b, _ in terms], axis=1), np.concatenate([n for _, n in terms])
            if size <= MOST_LISTED and len(found) <= MOST_ANSWERS:
                found[own] = laplace_quantiles(B, confidence, times)
            else:
                found[own] = _by_moments(B, times, confidence)
        return found.reshape(answers)

    def _signatures(self, looked: dict[int, Looked]) -> dict[Sign, tuple[Dense, Dense]]:
        """By signature what every draw of the measured tables is weighted with along other columns, and how often."""
        tables, theta = self.measure.tables, self.measure.group.theta
        inside = np.isin(np.arange(tables.apart.shape[1]), list(looked))
        usable = np.flatnonzero(~np.any(tables.difference & ~inside, axis=1) & (theta > 0))
        found: dict[Sign, list[tuple[Dense, Dense]]] = {}
        for k in usable.tolist():
            sign = tuple(tuple(i for i in looked if flags[k, i]) for flags in (tables.apart, tables.difference))
            weights, times = np.full(1, float(theta[k])), np.ones(1)
            for i in self.measure.apart(k):
                if i not in looked:
                    own = self.measure.insides[i].inside
                    if own.measure is None or own.inverse is None:
                        weights, times = weights / own.tau, times * own.tau
                    else:
                        along = own.average_row / own.tau
                        weights, times = np.outer(weights, along).reshape(-1), np.repeat(times, len(along))
            found.setdefault((sign[0], sign[1]), []).append((weights, times))
        return {
            sign: (np.concatenate([w for w, _ in own]), np.concatenate([n for _, n in own]))
            for sign, own in found.items()
        }

    def _terms(
        self,
        looked: dict[int, Looked],
        components: list[tuple[tuple[int, ...], float]],
        signs: dict[Sign, tuple[Dense, Dense]],
        places: Integers,
    ) -> Iterator[tuple[Dense, Dense]]:
        """For some answers what they make of the draws, answer × kind of draw, and how often each kind occurs."""
        at = dict(zip(looked, places, strict=True))
        for (apart, difference), (outside, often) in signs.items():
            times = kron([looked[i].kinds.times[None] for i in apart])[0]
            found = np.zeros((places.shape[1], len(times)))
            for kept, eigenvalue in components:
                if not set(difference) <= set(kept) <= {*apart, *difference}:
                    continue
                term = np.full((places.shape[1], 1), 1 / eigenvalue)
                for i, one in looked.items():
                    if i in apart:
                        own = (one.kinds.rest if i in kept else one.kinds.average)[at[i]]
                        term = (term[:, :, None] * own[:, None, :]).reshape(len(term), -1)
                    elif i in difference:
                        term = term * one.halves[at[i]][:, None]
                    else:
                        term = term * np.broadcast_to(one.average, one.axis.rows)[at[i]][:, None]
                found += term
            yield (found[:, :, None] * outside).reshape(len(found), -1), np.outer(times, often).reshape(-1)


def _rest(y: Dense, axis: int, inside: ColumnStrategy) -> Dense:
    """(X − X 1 1ᵀX / τ) Lᵀ y / τ along an axis."""
    w = inside.recover_values(np.moveaxis(y, axis, -1))
    X1 = np.ones(1) if inside.inverse is None else inside.inverse.sum(axis=1)
    return np.moveaxis((w - np.multiply.outer(_sum(w) / inside.tau, X1)) / inside.tau, -1, axis)


def _average(y: Dense, axis: int, inside: ColumnStrategy) -> Dense:
    """1ᵀ X Lᵀ y / τ along an axis."""
    moved = np.moveaxis(y, axis, -1)
    if inside.measure is None or inside.inverse is None:
        return _sum(moved) / inside.tau
    return np.asarray(moved @ inside.average_row / inside.tau)


def _sum(moved: Dense) -> Dense:
    """Over the last axis, pairwise: rounding grows with the logarithm of its length."""
    return np.asarray(np.ascontiguousarray(moved).sum(axis=-1))


def _by_moments(B: Dense, times: Dense, confidence: float) -> Dense:
    """From so many equal draws, of which there need not be a whole number, that variance and kurtosis are right."""
    squares = np.square(B)
    second, fourth = squares @ times, np.square(squares) @ times
    equal = np.divide(second**2, fourth, out=np.ones(len(B)), where=fourth > 0)
    widths = laplace_quantiles(np.ones((len(GRID), 1)), confidence, GRID[:, None]) / np.sqrt(GRID)
    return np.asarray(np.sqrt(second) * np.interp(np.log(equal), np.log(GRID), widths))
