"""Tables that nearly agree made to agree exactly, at any time: for a search that is stopped.

Every table first gets its one-way margins (`with_margins`), then the averages of the margins that it shares, which may
leave cells below 0. What is missing there is added to the whole as if it were records whose other columns are spread
as these columns' margins are. Sums of non-negative tables that agree are non-negative and agree; scaled until no margin
is too large, and filled up with the product of what the margins then lack, they have the same one-way margins and the
same total as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp.consistency.components import Columns, Parts, along, closure, joined, split

Dense = NDArray[np.float64]


def with_margins(table: Dense, margins: list[Dense]) -> Dense:
    """A non-negative table near this one with these one-way margins, which have one total: what is too much is scaled
    down axis by axis, and what then lacks is added as a product (Altschuler, Weed and Rigollet 2017)."""
    found = table.copy()
    for axis, wanted in enumerate(margins):
        there = _margin(found, axis)
        found *= along(np.divide(wanted, there, out=np.ones_like(wanted), where=there > wanted), found.ndim, axis)
    lacking = [np.maximum(wanted - _margin(found, axis), 0.0) for axis, wanted in enumerate(margins)]
    return np.asarray(found + _product(lacking))


def lifted(tables: Parts, margins: Mapping[int, Dense]) -> tuple[dict[Columns, Dense], float]:
    """Tables that agree exactly and are not negative, and which share of all records had to be moved for that.

    Args:
        tables: non-negative, over two columns or more.
        margins: of every column, at least 0, all with one total above 0.
    """
    found = {A: with_margins(x, [margins[i] for i in A]) for A, x in tables.items()}
    entangled = [A for A in found if len(A) > 2]  # tables of two columns share no more than their margins
    if not entangled:
        return found, 0.0
    total = float(next(iter(margins.values())).sum())
    shares = {i: margin / total for i, margin in margins.items()}
    sizes = tuple(len(margins[i]) if i in margins else 0 for i in range(max(margins) + 1))
    _agree(found, entangled, shares)
    added = {C: np.zeros([sizes[i] for i in C]) for C in closure(entangled)}
    for A in entangled:
        for C, part in split(np.maximum(-found[A], 0.0), A, shares).items():
            added[C] += part
    grown = {i: margins[i] + joined(added, (i,), sizes, shares) for i in {i for A in entangled for i in A}}
    kept = min(float((margins[i][own > 0] / own[own > 0]).min()) for i, own in grown.items())
    lacking = {i: np.maximum(margins[i] - kept * own, 0.0) for i, own in grown.items()}
    for A in entangled:
        own = kept * (found[A] + joined(added, A, sizes, shares)) + _product([lacking[i] for i in A])
        found[A] = np.maximum(own, 0.0)  # what rounding leaves
    return found, 1.0 - kept


def _agree(tables: dict[Columns, Dense], entangled: list[Columns], shares: Mapping[int, Dense]) -> None:
    """In place: every margin of two columns or more becomes its average over the tables, the small ones first."""
    for C in closure(entangled):
        own = [A for A in entangled if set(C) < set(A)]
        if len(C) < 2 or len(own) + (C in entangled) < 2:
            continue
        margins = [_onto(tables[A], A, C) for A in own]
        average = np.mean(margins, axis=0)
        for A, margin in zip(own, margins, strict=True):
            difference = average - margin
            for axis, i in enumerate(A):
                if i not in C:
                    difference = np.expand_dims(difference, axis)
                    difference = difference * along(shares[i], difference.ndim, axis)
            tables[A] = tables[A] + difference


def _onto(table: Dense, columns: Columns, own: Columns) -> Dense:
    return np.asarray(table.sum(axis=tuple(axis for axis, i in enumerate(columns) if i not in own)))


def _margin(table: Dense, axis: int) -> Dense:
    return np.asarray(table.sum(axis=tuple(a for a in range(table.ndim) if a != axis)))


def _product(margins: list[Dense]) -> Dense:
    """The table with these margins in which columns have nothing to do with one another."""
    total = float(np.mean([margin.sum() for margin in margins]))
    if total <= 0:
        return np.zeros([len(margin) for margin in margins])
    parts = [along(margin / total, len(margins), axis) for axis, margin in enumerate(margins)]
    return np.asarray(total * prod(parts[1:], start=parts[0]))
