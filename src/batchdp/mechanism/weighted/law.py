"""How the noise in answers from weighted tables is distributed: for every answer what it makes of each Laplace draw.

Along a column of which each value is measured by itself, queries with the same coefficients in any order have one law:
where each value is asked, a draw counts in one of two ways, at the answer's own value and at any other. Draws are listed
by kind, each with how often it occurs. Tables with thousands of answers that all differ, from as many draws, have the law of equal draws that
have their variance and kurtosis instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp.components.terms import kron
from batchdp.mechanism.law import laplace_quantiles
from batchdp.mechanism.weighted.integers import IntegerInside
from batchdp.mechanism.weighted.reading import Looked, TablesReading

Dense = NDArray[np.float64]

MOST_LISTED = 100_000_000
"""Answers times draws up to which every draw is looked at by itself."""
MOST_SUMMED = 10_000_000_000
"""Answers times draws up to which they are summed up; beyond, an answer is taken to rest on a single draw."""
MOST_ANSWERS = 5_000
"""Up to which the law of each is inverted."""
AT_ONCE = 5_000_000
GRID = np.geomspace(1, 1e4, 60)
"""Numbers of equal draws for which the law is inverted where there are more answers."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """What answers make of the draws along one column: answer × kind of draw."""

    average: Dense
    rest: Dense
    times: Dense
    """How many draws are of each kind."""


def half_widths(reading: TablesReading, table: int, confidence: float) -> Dense:
    """For a table's answers the h with |noise| ≤ h, for noise of scale 1; to be broadcast to its shape."""
    looked = reading.looked(table)
    answers = [len(_kinds(one, reading.measure.insides[i]).average) for i, one in looked.items()]
    signs = _signatures(reading, looked)
    if not signs:  # its queries count nothing, and nothing is measured for them
        return np.zeros(answers)
    draws = sum(
        len(outside) * prod(len(_kinds(looked[i], reading.measure.insides[i]).times) for i in sign[0])
        for sign, (outside, _) in signs.items()
    )
    size = prod(answers) * draws
    if size > MOST_SUMMED:
        single, many = laplace_quantiles(np.ones((2, 1)), confidence, GRID[[0, -1], None]) / np.sqrt(2 * GRID[[0, -1]])
        return np.asarray(np.sqrt(2 * reading.squared(table)) * max(single, many))
    components = list(reading.components(looked))
    places = np.indices(answers).reshape(len(answers), prod(answers))
    found = np.zeros(places.shape[1])
    step = max(1, AT_ONCE // max(1, draws))
    for start in range(0, len(found), step):
        own = slice(start, start + step)
        terms = list(_terms(reading, looked, components, signs, places[:, own]))
        B, times = np.concatenate([b for b, _ in terms], axis=1), np.concatenate([n for _, n in terms])
        if size <= MOST_LISTED and len(found) <= MOST_ANSWERS:
            found[own] = laplace_quantiles(B, confidence, times)
        else:
            found[own] = _by_moments(B, times, confidence)
    return found.reshape(answers)


def _by_moments(B: Dense, times: Dense, confidence: float) -> Dense:
    """From so many equal draws, of which there need not be a whole number, that variance and kurtosis are right."""
    squares = np.square(B)
    second, fourth = squares @ times, np.square(squares) @ times
    equal = np.divide(second**2, fourth, out=np.ones(len(B)), where=fourth > 0)
    widths = laplace_quantiles(np.ones((len(GRID), 1)), confidence, GRID[:, None]) / np.sqrt(GRID)
    return np.asarray(np.sqrt(second) * np.interp(np.log(equal), np.log(GRID), widths))


Sign = tuple[tuple[int, ...], tuple[int, ...]]
"""Which of an asked table's columns a measured table tells apart, and of which it takes the difference."""


def _signatures(reading: TablesReading, looked: dict[int, Looked]) -> dict[Sign, tuple[Dense, Dense]]:
    """By signature what every draw of the measured tables is weighted with along other columns, and how often."""
    tables, theta = reading.measure.tables, reading.measure.group.theta
    inside = np.isin(np.arange(tables.apart.shape[1]), list(looked))
    usable = np.flatnonzero(~np.any(tables.difference & ~inside, axis=1) & (theta > 0))
    found: dict[Sign, list[tuple[Dense, Dense]]] = {}
    for k in usable.tolist():
        sign = tuple(tuple(i for i in looked if flags[k, i]) for flags in (tables.apart, tables.difference))
        weights, times = np.full(1, float(theta[k])), np.ones(1)
        for i in reading.measure.apart(k):
            if i not in looked:
                own = reading.measure.insides[i].inside
                if own.measure is None or own.inverse is None:
                    weights, times = weights / own.tau, times * own.tau
                else:
                    along = own.measure @ own.inverse.sum(axis=1) / own.tau
                    weights, times = np.outer(weights, along).reshape(-1), np.repeat(times, len(along))
        found.setdefault((sign[0], sign[1]), []).append((weights, times))
    return {
        sign: (np.concatenate([w for w, _ in own]), np.concatenate([n for _, n in own])) for sign, own in found.items()
    }


def _kinds(one: Looked, own: IntegerInside) -> Kinds:
    """Along a column that both tell apart."""
    F, inside, n = one.axis.matrix, own.inside, own.values
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
    X1 = inside.inverse.sum(axis=1)
    rows = np.eye(n) if F is None else F
    average = np.outer(rows @ X1, inside.measure @ X1) / inside.tau**2
    return Kinds(average, rows @ inside.inverse @ inside.measure.T / inside.tau - average, np.ones(len(inside.measure)))


def _terms(
    reading: TablesReading,
    looked: dict[int, Looked],
    components: list[tuple[tuple[int, ...], float]],
    signs: dict[Sign, tuple[Dense, Dense]],
    places: NDArray[np.int64],
) -> Iterator[tuple[Dense, Dense]]:
    """For some answers what they make of the draws, answer × kind of draw, and how often each kind occurs."""
    kinds = {i: _kinds(one, reading.measure.insides[i]) for i, one in looked.items()}
    at = dict(zip(looked, places, strict=True))
    for (apart, difference), (outside, often) in signs.items():
        times = kron([kinds[i].times[None] for i in apart])[0]
        found = np.zeros((places.shape[1], len(times)))
        for kept, eigenvalue in components:
            if not set(difference) <= set(kept) <= {*apart, *difference}:
                continue
            term = np.full((places.shape[1], 1), 1 / eigenvalue)
            for i, one in looked.items():
                if i in apart:
                    own = (kinds[i].rest if i in kept else kinds[i].average)[at[i]]
                    term = (term[:, :, None] * own[:, None, :]).reshape(len(term), -1)
                elif i in difference:
                    F = np.eye(2)[:1] if one.axis.matrix is None else one.axis.matrix
                    term = term * ((F[:, 0] - F[:, 1]) / 2)[at[i]][:, None]
                else:
                    term = term * np.broadcast_to(one.average, one.axis.rows)[at[i]][:, None]
            found += term
        yield (found[:, :, None] * outside).reshape(len(found), -1), np.outer(times, often).reshape(-1)
