"""How much one record can change all measurements together, in the L1 norm, exactly.

A record has one value in every column. It changes a measured table by the table's weight times the product over the
columns of the L1 norm that the column's integers have at the record's value; all tables add up. Norms are never
negative, so that only values count whose norms no other value has as large in every table: where a column is
measured in one way only, that is a value of the largest norm, whatever the other columns have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

MOST_KINDS = 200_000
"""Combinations of values that are looked at one by one; beyond, the largest change of every table adds up."""
MOST_COMPARED = 2_000
"""Values of a column that are compared with one another."""


@dataclass(frozen=True, eq=False)
class Change:
    """What a record changes of a measured table: the weight times the product of its columns' norms."""

    weight: int
    norms: tuple[tuple[int, Integers], ...]
    """Columns with a norm for every value of theirs; the same array where a column is measured in the same way."""

    @property
    def largest(self) -> int:
        """Of all records."""
        return self.weight * prod(int(norms.max()) for _, norms in self.norms)


def largest_change(changes: Iterable[Change]) -> int:
    """The largest sum of changes over all records; never below it, and above only where there are too many kinds."""
    ways: dict[int, dict[int, Integers]] = {}  # by column, the arrays of norms that it has
    weights: dict[tuple[tuple[int, int], ...], int] = {}
    for change in changes:
        for i, norms in change.norms:
            ways.setdefault(i, {})[id(norms)] = norms
        key = tuple((i, id(norms)) for i, norms in change.norms)
        weights[key] = weights.get(key, 0) + change.weight
    kinds = {i: _kinds(list(own.values())) for i, own in ways.items()}
    rows = {i: {name: row for row, name in enumerate(own)} for i, own in ways.items()}
    largest = {i: [int(n) for n in own.max(axis=1)] for i, own in kinds.items()}
    apart = sum(weight * prod(largest[i][rows[i][name]] for i, name in key) for key, weight in weights.items())
    several = [i for i, own in kinds.items() if own.shape[1] > 1]
    if not several or prod(kinds[i].shape[1] for i in several) > MOST_KINDS:
        return apart
    # Every sum is at most what they are apart: 64 bits will do if that fits.
    exact = np.int64 if apart < 2**62 else object
    total = np.zeros([kinds[i].shape[1] for i in several], dtype=exact)
    for key, weight in weights.items():
        part = np.full((1,) * len(several), 1, dtype=exact)
        for i, name in key:
            own = kinds[i][rows[i][name]].astype(exact)
            part = part * own.reshape([-1 if j == i else 1 for j in several] if i in several else [1] * len(several))
        total = total + weight * part
    return int(total.max())


def _kinds(ways: list[Integers]) -> Integers:
    """Way × kind: the norms of values, without those that another value has as large in every way."""
    if len(ways) == 1:
        return np.array([[ways[0].max()]])
    found = np.unique(np.stack(ways), axis=1)
    if found.shape[1] > MOST_COMPARED:
        return found
    below = np.ones((found.shape[1],) * 2, dtype=bool)
    for norms in found:
        below &= norms[:, None] <= norms  # distinct, so that no two are below each other
    return np.asarray(found[:, below.sum(axis=1) == 1])
