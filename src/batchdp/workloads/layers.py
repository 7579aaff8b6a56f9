"""Rows of a matrix split so that columns merge.

Rows that come one after another and share no cell are a layer: most often a table, whose rows are its cells. Layers are
joined step by step by an estimate of what that costs: the cube root of the squared entries on the columns that are left
when equal ones are merged, which is noise on data. Groups share the budget, and (Σ E^⅓)³ is what they leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense, Indices

MOST_LAYERS = 128
MOST_GROUPS = 3
SAMPLE = 3000
"""Columns by which the estimate is made."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """Some rows, and for every sampled column its kind and the squares that it has there."""

    rows: tuple[int, ...]
    kind: Indices
    squares: Dense
    """By kind."""

    @cached_property
    def cost(self) -> float:
        return float(self.squares.sum() ** (1 / 3))


def layers(W: sparse.csr_array) -> list[Indices] | None:
    """Neighbouring rows that share no column; None where there are more than a few such.

    A table's first rows may fit to the end of the table before it, so that rows are gone through from both ends, and a
    layer ends where one of the two ways ends it.
    """
    m = W.shape[0]
    forward, backward = _begins(W, range(m)), _begins(W, range(m - 1, -1, -1))
    if forward is None or backward is None:
        return None
    starts = sorted({*forward, *(i + 1 for i in backward)} - {m} | {0})
    if len(starts) > MOST_LAYERS:
        return None
    return [np.arange(start, end) for start, end in pairwise([*starts, m])]


def _begins(W: sparse.csr_array, order: range) -> list[int] | None:
    """The rows that share a column with those before them, since the last such."""
    found: list[int] = []
    taken = np.zeros(W.shape[1], dtype=bool)
    for i in order:
        own = W.indices[W.indptr[i] : W.indptr[i + 1]]
        if taken[own].any():
            found.append(i)
            if len(found) > MOST_LAYERS:
                return None
            taken[:] = False
        taken[own] = True
    return found


def partitions(W: sparse.csr_array) -> Iterator[list[Indices]]:
    """Ways to split the rows into two or three groups."""
    known = layers(W)
    if known is None or len(known) < 2:
        return
    n = W.shape[1]
    sample = np.arange(n) if n <= SAMPLE else np.sort(np.random.default_rng(0).choice(n, SAMPLE, replace=False))
    columns = sparse.csr_array(sparse.csc_array(W)[:, sample])
    groups = [_layer(columns, rows) for rows in known]
    for found in grouped(groups, _joined, lambda layer: layer.cost, MOST_GROUPS):
        yield [np.sort(np.array(group.rows, dtype=np.int64)) for group in found]


def _layer(columns: sparse.csr_array, rows: Indices) -> _Layer:
    """Kind 0 has none of the rows; the others one each, by its place and its entry."""
    kind, entry = np.zeros(columns.shape[1], dtype=np.int64), np.zeros(columns.shape[1])
    for place, i in enumerate(rows.tolist(), start=1):
        span = slice(columns.indptr[i], columns.indptr[i + 1])
        kind[columns.indices[span]], entry[columns.indices[span]] = place, columns.data[span]
    both = np.stack([kind.astype(float), entry], axis=1)
    distinct, kinds = np.unique(both, axis=0, return_inverse=True)
    return _Layer(tuple(rows.tolist()), kinds.reshape(-1).astype(np.int64), np.square(distinct[:, 1]))


def _joined(one: _Layer, other: _Layer) -> _Layer:
    width = len(other.squares)
    keys, kind = np.unique(one.kind * width + other.kind, return_inverse=True)
    squares = one.squares[keys // width] + other.squares[keys % width]
    return _Layer(one.rows + other.rows, kind.astype(np.int64), squares)


Piece = TypeVar("Piece", bound=Hashable)


def grouped(
    pieces: Iterable[Piece], join: Callable[[Piece, Piece], Piece], cost: Callable[[Piece], float], most: int
) -> Iterator[list[Piece]]:
    """Pieces joined step by step, where that adds least to the cost: ways to split them into `most` groups to two.

    Each of these comes with all in which two of its groups are joined; the coarse ones come last.
    """
    groups, together = list(pieces), cache(join)

    def loss(pair: tuple[int, int]) -> float:
        one, other = (groups[place] for place in pair)
        return cost(together(one, other)) - cost(one) - cost(other)

    while True:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        if len(groups) <= most:
            yield list(groups)
            for a, b in pairs if len(groups) > 2 else []:
                yield [*(own for k, own in enumerate(groups) if k not in (a, b)), together(groups[a], groups[b])]
        if len(groups) == 2:
            return
        a, b = min(pairs, key=loss)
        groups[b] = together(groups[a], groups[b])
        del groups[a]
