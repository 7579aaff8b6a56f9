"""Tables as sums of components: what a set of columns says beyond its subsets.

A table over the columns A is the sum over all C ⊆ A of its component z_C, an array over C whose sums along every axis
are 0, spread evenly over the columns of A that are not in C. Components are orthogonal, and any list of them gives
tables that agree: the margin of a table over C is made of the components of C's subsets, whichever table it is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

Dense = NDArray[np.float64]
Columns = tuple[int, ...]
Parts = Mapping[Columns, Dense]
Shares = Mapping[int, Dense]


def subsets(columns: Columns) -> list[Columns]:
    """All of them, the small ones first."""
    return [own for k in range(len(columns) + 1) for own in combinations(columns, k)]


def closure(tables: Iterable[Columns]) -> list[Columns]:
    """All subsets of the tables' columns, the small ones first."""
    return sorted({own for table in tables for own in subsets(table)}, key=lambda own: (len(own), own))


def maximal(tables: Iterable[Columns]) -> list[Columns]:
    """The tables that are no margin of another; each once."""
    found: list[Columns] = []
    held: set[Columns] = set()
    for own in sorted(set(tables), key=len, reverse=True):
        if own not in held:
            found.append(own)
            held.update(subsets(own))
    return sorted(found, key=lambda own: (len(own), own))


def split(table: Dense, columns: Columns, shares: Shares | None = None) -> dict[Columns, Dense]:
    """The components of a table; also of each, n_{A∖C} times the adjoint of `joined`.

    Args:
        table: over the columns.
        columns: of the table.
        shares: of a column's values in what is spread over them; even ones where left out.
    """
    found: dict[Columns, Dense] = {}

    def into(part: Dense, axis: int, kept: Columns) -> None:
        if axis < 0:
            found[kept] = part
            return
        place = part.ndim - len(kept) - 1  # axes before are still to come, those after are centred already
        total = part.sum(axis=place)
        into(total, axis - 1, kept)
        even = np.expand_dims(total, place)
        even = even / part.shape[place] if shares is None else even * along(shares[columns[axis]], part.ndim, place)
        into(part - even, axis - 1, (columns[axis], *kept))

    into(np.asarray(table, dtype=np.float64), len(columns) - 1, ())
    return found


def joined(parts: Parts, columns: Columns, sizes: tuple[int, ...], shares: Shares | None = None) -> Dense:
    """The table that these components add up to, spread as `split` has it."""

    def over(axis: int, kept: Columns) -> Dense:
        """The sum over all subsets of the columns before this axis, together with what is kept of the others."""
        if axis < 0:
            return parts[kept]
        with_axis = over(axis - 1, (columns[axis], *kept))
        without = np.expand_dims(over(axis - 1, kept), axis)  # axes before are there already, those after are kept
        if shares is None:
            return with_axis + without / sizes[columns[axis]]
        return with_axis + without * along(shares[columns[axis]], with_axis.ndim, axis)

    return over(len(columns) - 1, ())


def along(values: Dense, axes: int, axis: int) -> Dense:
    """One-dimensional values along an axis of an array of so many."""
    return values.reshape([-1 if a == axis else 1 for a in range(axes)])


def spread(own: Columns, columns: Columns, sizes: tuple[int, ...]) -> int:
    """n_{A∖C}: over how many cells of the table each entry of the component is spread."""
    return prod(sizes[i] for i in columns if i not in own)
