"""Tables that nearly agree made to agree exactly, at any time: for a search that is stopped.

Every table first gets its one-way margins (`with_margins`), then the averages of the margins that it shares, which may
leave cells below 0. What is missing there is added to the whole as if it were records whose other columns are spread
as these columns' margins are. Sums of non-negative tables that agree are non-negative and agree; scaled until no margin
is too large but for a slack, and filled up with the product of what the margins then lack, they have the same total
and, but for that slack, the same one-way margins as before.
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


def lifted(
    tables: Parts, margins: Mapping[int, Dense], slack: Mapping[int, float] | None = None
) -> tuple[dict[Columns, Dense], float]:
    """Tables that agree exactly and are not negative, and which share of all records had to be moved for that.

    Args:
        tables: non-negative, over two columns or more.
        margins: of every column, at least 0, all with one total above 0.
        slack: how many records of a column may be where its margin has none for them; none where left out.
    """
    entangled = [A for A in tables if len(A) > 2]  # tables of two columns share no more than their margins
    found: dict[Columns, Dense] = {}
    moved, settled = 0.0, dict(margins)
    if entangled:
        found, moved = _entangled({A: tables[A] for A in entangled}, margins, slack or {})
        settled |= {i: _margin(x, axis) for A, x in found.items() for axis, i in enumerate(A)}
    for A, x in tables.items():
        if A not in found:
            found[A] = with_margins(x, [settled[i] for i in A])
    return found, moved


def _entangled(
    tables: Parts, margins: Mapping[int, Dense], slack: Mapping[int, float]
) -> tuple[dict[Columns, Dense], float]:
    """The tables that share more than the margins of one column."""
    found = {A: with_margins(x, [margins[i] for i in A]) for A, x in tables.items()}
    total = float(next(iter(margins.values())).sum())
    shares = {i: margin / total for i, margin in margins.items()}
    sizes = tuple(len(margins[i]) if i in margins else 0 for i in range(max(margins) + 1))
    _agree(found, list(found), shares)
    added = {C: np.zeros([sizes[i] for i in C]) for C in closure(found)}
    for A, x in found.items():
        for C, part in split(np.maximum(-x, 0.0), A, shares).items():
            added[C] += part
    grown = {i: margins[i] + joined(added, (i,), sizes, shares) for i in {i for A in found for i in A}}
    most = total / (total + float(added[()]))
    kept = min(_scale(own, margins[i], slack.get(i, 0.0), most) for i, own in grown.items())
    lacking = {i: np.maximum(margins[i] - kept * own, 0.0) for i, own in grown.items()}
    missing = total - kept * (total + float(added[()]))
    lacking = {i: own * (missing / max(float(own.sum()), 1e-300)) for i, own in lacking.items()}
    for A, x in found.items():
        own = kept * (x + joined(added, A, sizes, shares)) + _product([lacking[i] for i in A])
        found[A] = np.maximum(own, 0.0)  # what rounding leaves
    return found, 1.0 - kept


def _scale(grown: Dense, margin: Dense, slack: float, most: float) -> float:
    """The largest scale up to `most` at which a grown margin exceeds the right one by no more than the slack in all."""
    allowed = slack + 1e-12 * float(margin.sum())
    low, high = 0.0, 2 * most
    while high - low > 1e-12 * most:
        middle = (low + high) / 2
        if middle <= most and float(np.maximum(middle * grown - margin, 0.0).sum()) <= allowed:
            low = middle
        else:
            high = middle
    return low


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
