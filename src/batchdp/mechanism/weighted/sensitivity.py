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
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

MOST_KINDS = 200_000
"""Combinations of values that are looked at one by one; beyond, the largest change of every table adds up."""
MOST_RECORDS = 5_000_000
"""Combinations of all values, where what is measured of several columns is no product of them."""
MOST_COMPARED = 2_000
"""Values of a column that are compared with one another."""


@dataclass(frozen=True, eq=False)
class Change:
    """What a record changes of a measured table: the weight times the product of its columns' norms."""

    weight: int
    norms: tuple[tuple[tuple[int, ...], Integers], ...]
    """Columns with a norm for every value of theirs; the same array where they are measured in the same way."""

    @property
    def largest(self) -> int:
        """Of all records."""
        return self.weight * prod(int(norms.max()) for _, norms in self.norms)


def largest_change(changes: Iterable[Change]) -> int:
    """The largest sum of changes over all records; never below it, and above only where there are too many kinds."""
    listed = list(changes)
    apart = sum(change.largest for change in listed)
    exact = np.int64 if apart < 2**62 else object  # every sum is at most what they are apart
    weights: dict[tuple[tuple[tuple[int, ...], int], ...], int] = {}
    ways: dict[tuple[int, ...], dict[int, Integers]] = {}
    for change in listed:
        for columns, norms in change.norms:
            ways.setdefault(columns, {})[id(norms)] = norms
        key = tuple((columns, id(norms)) for columns, norms in change.norms)
        weights[key] = weights.get(key, 0) + change.weight
    single = all(len(columns) == 1 for columns in ways)
    kinds = {columns: _kinds(own) if single else own for columns, own in ways.items()}
    shapes = [(columns, norms.shape) for columns, own in kinds.items() for norms in own.values()]
    sizes = {i: n for columns, shape in shapes for i, n in zip(columns, shape, strict=True)}
    several = sorted(i for i, n in sizes.items() if n > 1)
    if prod(sizes[i] for i in several) > (MOST_KINDS if single else MOST_RECORDS):
        return apart
    total: NDArray[Any] = np.zeros([sizes[i] for i in several], dtype=exact)
    for key, weight in weights.items():
        part: NDArray[Any] = np.full((1,) * len(several), weight, dtype=exact)
        for columns, name in key:
            own = kinds[columns][name].astype(exact)
            part = part * own.reshape([sizes[i] if i in columns else 1 for i in several])
        total = np.asarray(total + part)
    return int(total.max())


def _kinds(ways: dict[int, Integers]) -> dict[int, Integers]:
    """The norms of a column's values, without values of which another has norms as large in every way."""
    if len(ways) == 1:
        return {name: norms.max(keepdims=True) for name, norms in ways.items()}
    found = np.unique(np.stack(list(ways.values())), axis=1)
    if found.shape[1] <= MOST_COMPARED:
        below = np.ones((found.shape[1],) * 2, dtype=bool)
        for norms in found:
            below &= norms[:, None] <= norms  # distinct, so that no two are below each other
        found = found[:, below.sum(axis=1) == 1]
    return dict(zip(ways, found, strict=True))
