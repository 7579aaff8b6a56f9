"""How much one record can change all measurements of a group together, exactly: every sensitivity is computed here.

| measurement | norm | function |
|---|---|---|
| of cells, in one block or several | L1, L2 | `cell_sums`, `cell_squares`, then `over_blocks` |
| of amounts between cells | L1, L2 | `amount_changes`, then `over_blocks` |
| residual, of many columns | L2 | `largest_squares` |
| weighted tables, of many columns | L1 | `largest_change` |

In the norm of a body every column is at most 1 because it is inside; that is proven where the noise is calibrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import rows_span
from batchdp.mechanism.measurement import Integers
from batchdp.strategies.residual.columns import Column
from batchdp.workloads.matrix import MatrixWorkload

if TYPE_CHECKING:
    from batchdp.mechanism.residual.integers import IntegerPiece

LIMB = 20
"""Bits of the halves in which squares are summed exactly."""
MOST_KINDS = 200_000
"""Combinations of values that are looked at one by one; beyond, the largest change of every table adds up."""
MOST_RECORDS = 5_000_000
"""Combinations of all values, where what is measured of several columns is no product of them."""
MOST_COMPARED = 2_000
"""Values of a column that are compared with one another."""


def cell_sums(Q: sparse.csr_array) -> Integers:
    """Σ_i |Q_ij| of every cell."""
    return np.asarray(abs(Q).sum(axis=0, dtype=np.int64)).ravel()


def cell_squares(Q: sparse.csr_array) -> NDArray[np.object_]:
    """Σ_i Q_ij² of every cell. Halves of 20 bits keep every partial sum in 64 bits."""
    columns = sparse.csc_array(Q)
    magnitudes = np.abs(columns.data.astype(np.int64))
    high, low = magnitudes >> LIMB, magnitudes & ((1 << LIMB) - 1)
    parts = []
    for products in (high * high, high * low, low * low):
        part = sparse.csc_array((products, columns.indices, columns.indptr), shape=columns.shape)
        parts.append(np.asarray(part.sum(axis=0, dtype=np.int64)).ravel())
    squares = [(int(hh) << 2 * LIMB) + (int(hl) << LIMB + 1) + int(ll) for hh, hl, ll in zip(*parts, strict=True)]
    return np.array(squares, dtype=object)


def over_blocks(workload: MatrixWorkload, by_cell: NDArray[Any], rows: sparse.csr_array | None = None) -> int:
    """The most that a record changes, which has at most one cell in every block, over blocks that it can be in at once.

    Args:
        workload: whose blocks these are.
        by_cell: what a record in every cell changes: sums of magnitudes, or of squares where `rows` are given.
        rows: the measurements; squares add up where none of them sees two blocks. Else every choice of a cell or none
            in each block is looked at, or where these are too many, roots add up, rounded up.
    """
    by_block = workload.largest_by_block(by_cell)
    if rows is not None and len(by_block) > 1 and rows_span(rows, workload.blocks):
        if (choices := workload.choices()) is not None:
            return int(max(cell_squares(sparse.csr_array(rows @ choices))))
        return workload.most_together([root_above(square) for square in by_block]) ** 2
    return workload.most_together(by_block.tolist())


def amount_changes(
    levels: Sequence[Mapping[int, int]],
    uppers: Sequence[Mapping[int, int]],
    ends: Sequence[tuple[int, int, int]],
    shift: int,
    power: int,
) -> list[int]:
    """For every cell the most that Σ |z|^power is of a record in it, or between it and another.

    z is the change of a coarse measurement: at most (|α + β u| + 2^s − 1) / 2^s, whose sums and sums of squares are
    convex in u as well. Measurements that neither end changes are left out: they do not change between.
    """
    below = (1 << shift) - 1

    def most(column: Mapping[int, int], rows: set[int]) -> int:
        return sum((abs(column.get(i, 0)) + below) ** power for i in rows)

    found = [most(level, {i for i, q in level.items() if q}) for level in levels]
    for upper, (low, high, _) in zip(uppers, ends, strict=True):
        level = levels[low] if low >= 0 else {}
        rows = {i for i in level.keys() | upper.keys() if level.get(i, 0) or upper.get(i, 0)}
        worst = max(most(level, rows), most(upper, rows))
        for cell in (low, high):
            if cell >= 0:
                found[cell] = max(found[cell], worst)
    # A sum of whole numbers is at most the whole part of what it is at most.
    return [total >> power * shift for total in found]


def root_above(square: int) -> int:
    """The square root, rounded up, exactly."""
    return isqrt(square - 1) + 1 if square > 0 else 0


def exact_squares(K: Integers) -> list[int]:
    """Σ_i K_ij² of every column, exactly: halves of 20 bits keep every partial sum in 64 bits."""
    top = max(int(K.max(initial=0)), -int(K.min(initial=0)))  # the absolute value of −2^63 has no 64 bits
    if len(K) >= 2**22 or top >= 2 ** (2 * LIMB):
        raise LatticeError("a measurement is too large for its squares to be summed in 64 bits")
    return list(cell_squares(sparse.csr_array(K)))


def largest_squares(pieces: Sequence[IntegerPiece], columns: Sequence[Column]) -> int:
    """How much one record can change all pieces of a list: the largest sum of squared columns, exactly.

    A record has one orbit in each column, in every combination; a spread sees it only if its orbit is there.
    """
    own = sorted({i for piece in pieces for i in piece.columns})
    total = np.zeros([columns[i].orbits for i in own], dtype=object)
    for piece in pieces:
        shape = [columns[i].orbits if i in piece.matrix else 1 for i in own]
        used = np.array(exact_squares(piece.measure), dtype=object).reshape(shape)
        for i, orbit in piece.spread:
            n = int(columns[i].counts[orbit])
            there = np.zeros(columns[i].orbits, dtype=object)
            there[orbit] = n * (n - 1)
            used = used * there.reshape([-1 if j == i else 1 for j in own])
        total = total + used
    return int(np.max(total))


@dataclass(frozen=True, eq=False)
class Change:
    """What a record changes of a measured table: the weight times the product of its columns' norms."""

    weight: int
    norms: tuple[tuple[tuple[int, ...], Integers], ...]
    """Columns with a norm for every value of theirs; the same array where they are measured in the same way."""

    @property
    def largest(self) -> int:
        """The largest change that any record can make."""
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
