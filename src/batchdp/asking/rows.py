"""One query on the atoms of the columns that it looks at: a product of rows, one a column, or one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp.cells.atoms import Atoms
from batchdp.cells.classes import Classes, TooManyClassesError, classes_of
from batchdp.errors import QueryError
from batchdp.queries import Query

Dense = NDArray[np.float64]

MOST_STATES = 8192
"""Classes of records that one query may tell apart."""
MOST_TOGETHER = 10_000
"""Combinations of the values of columns that are taken together."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A query on the columns of atoms that it looks at: as a product of rows, or as one array where it is none."""

    rows: dict[int, Dense] | None
    looked: tuple[int, ...]
    whole: Dense


def rows_of(query: Query, atoms: Sequence[Atoms], alive: Sequence[NDArray[np.int64]]) -> Rows:
    """What the query adds, by the atoms that records can have."""
    try:
        classes = classes_of(query, atoms, MOST_STATES)
    except TooManyClassesError:
        raise QueryError(
            f"query {query.name!r} tells more than {MOST_STATES} classes of records apart; split it into several"
        ) from None
    looked = tuple(i for i, table in enumerate(classes.transitions) if table is not None)
    kinds, groups = [], []
    for i in looked:
        table = classes.transitions[i]
        assert table is not None
        _, first, inverse = np.unique(table[:, alive[i]], axis=1, return_index=True, return_inverse=True)
        kinds.append(alive[i][first])
        groups.append(inverse.reshape(-1))
    whole = _values(classes, looked, kinds)
    rows = _product(whole)
    spread = None if rows is None else {i: row[own] for i, row, own in zip(looked, rows, groups, strict=True)}
    return Rows(spread, looked, whole[np.ix_(*groups)] if spread is None else whole)


def _values(classes: Classes, looked: tuple[int, ...], kinds: list[NDArray[np.int64]]) -> Dense:
    """What the query adds for every combination of the atoms that it tells apart."""
    shape = [len(own) for own in kinds]
    if prod(shape) > 100 * MOST_TOGETHER:
        raise QueryError(f"a query looks at {len(looked)} columns in {prod(shape):,} ways; split it into several")
    states = np.zeros((1,) * len(looked), dtype=np.int64)
    for place, i in enumerate(looked):
        table = classes.transitions[i]
        assert table is not None
        along = [1] * len(looked)
        along[place] = shape[place]
        states = table[states, kinds[place].reshape(along)].astype(np.int64)
    amounts = classes.amounts[[0]].toarray()[0]
    return np.asarray(amounts[np.broadcast_to(states, shape)])


def _product(whole: Dense) -> list[Dense] | None:
    """Rows whose product the array is; None if it is not one. The first has the size, the others 1 at the pivot."""
    pivot = np.unravel_index(int(np.argmax(np.abs(whole))), whole.shape)
    top = float(whole[pivot])
    if top == 0:
        return [np.zeros(n) for n in whole.shape]
    rows = []
    for axis in range(whole.ndim):
        at = tuple(slice(None) if other == axis else int(place) for other, place in enumerate(pivot))
        rows.append(np.asarray(whole[at]) / (top if axis else 1.0))
    found = np.full((1,) * whole.ndim, 1.0 if whole.ndim else top)
    for axis, row in enumerate(rows):
        found = found * row.reshape([-1 if other == axis else 1 for other in range(whole.ndim)])
    return rows if np.allclose(found, whole, rtol=1e-13, atol=0) else None
