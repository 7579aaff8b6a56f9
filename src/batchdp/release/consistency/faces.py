"""What holds tables together: their faces, which are their margins over all columns but one, and a price for each.

Every table is fitted by itself, min q/2 ‖x − t‖² − μ Σ log x under prices u on its faces. With s = t − (⊕ u) / q, where
⊕ spreads the faces' prices over the cells, that is x = (s + √(s² + 4μ/q)) / 2, in closed form; for μ = 0, max(s, 0).
Prices are right where every face of every table is what the shared components say. That is the minimum of a convex
function of the prices whose second derivative weighs every cell with dx/ds: 1 where it is well above 0, next to nothing
where it is held at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense, Indices

# ── Tables as sums of components: what a set of columns says beyond its subsets.
#
# A table over the columns A is the sum over all C ⊆ A of its component z_C, an array over C whose sums along every
# axis are 0, spread evenly over the columns of A that are not in C. Components are orthogonal, and any list of them
# gives tables that agree: the margin of a table over C is made of the components of C's subsets, whichever table it
# is of.

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


def split_table(table: Dense, columns: Columns, shares: Shares | None = None) -> dict[Columns, Dense]:
    """The components of a table; also of each, n_{A∖C} times the adjoint of `join_components`.

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
        even = even / part.shape[place] if shares is None else even * lay_along(shares[columns[axis]], part.ndim, place)
        into(part - even, axis - 1, (columns[axis], *kept))

    into(np.asarray(table, dtype=np.float64), len(columns) - 1, ())
    return found


def join_components(parts: Parts, columns: Columns, sizes: tuple[int, ...], shares: Shares | None = None) -> Dense:
    """The table that these components add up to, spread as `split_table` has it."""

    def over(axis: int, kept: Columns) -> Dense:
        """The sum over all subsets of the columns before this axis, together with what is kept of the others."""
        if axis < 0:
            return parts[kept]
        with_axis = over(axis - 1, (columns[axis], *kept))
        without = np.expand_dims(over(axis - 1, kept), axis)  # axes before are there already, those after are kept
        if shares is None:
            return with_axis + without / sizes[columns[axis]]
        return with_axis + without * lay_along(shares[columns[axis]], with_axis.ndim, axis)

    return over(len(columns) - 1, ())


def lay_along(values: Dense, axes: int, axis: int) -> Dense:
    """One-dimensional values along an axis of an array of so many."""
    return values.reshape([-1 if a == axis else 1 for a in range(axes)])


def project(table: NDArray[Any], columns: Columns, own: Columns) -> NDArray[Any]:
    """The margin of a table over some of its columns."""
    return np.asarray(table.sum(axis=tuple(axis for axis, i in enumerate(columns) if i not in own)))


def margin_along(table: NDArray[Any], axis: int) -> NDArray[Any]:
    """The margin of a table over one axis."""
    return project(table, tuple(range(table.ndim)), (axis,))


def spread(own: Columns, columns: Columns, sizes: tuple[int, ...]) -> int:
    """n_{A∖C}: over how many cells of the table each entry of the component is spread."""
    return prod(sizes[i] for i in columns if i not in own)


BLOCK_CELLS = 65_536
"""Of a table, that are looked at at a time, so that they stay in the processor's cache."""


def faces_of(columns: Columns) -> list[Columns]:
    """One for every column, the one that is summed over."""
    return [columns[:axis] + columns[axis + 1 :] for axis in range(len(columns))]


@dataclass(frozen=True, eq=False)
class Shared:
    """The components that tables share: a pull of the prices moves each from its centre by pull / stiffness."""

    centres: Parts
    stiffness: Mapping[Columns, float]
    held: Parts
    """Those that no pull moves."""

    def pulled(self, pull: Parts) -> dict[Columns, Dense]:
        """Where the tables are under a pull."""
        return {**{C: c + pull[C] / self.stiffness[C] for C, c in self.centres.items()}, **self.held}

    def cost(self, pull: Parts) -> float:
        """Their part of the function of the prices."""
        found = sum(float((pull[C] * part).sum()) for C, part in self.held.items())
        for C, c in self.centres.items():
            found += float((pull[C] * c).sum()) + float(np.square(pull[C]).sum()) / (2 * self.stiffness[C])
        return found


@dataclass(frozen=True, eq=False)
class Fit:
    """The tables at some prices."""

    prices: Dense
    cost: float
    """Σ q/2 ‖x‖² + μ Σ log x."""
    margins: Dense
    """Of all tables on all their faces, laid out as prices are."""
    weights: dict[Columns, Dense]
    """dx/ds of every cell."""


class Faces:
    """All faces of all tables, as slices of one vector: of each face one copy for every table that has it."""

    def __init__(
        self, targets: Parts, weights: Mapping[Columns, float], sizes: tuple[int, ...], empty: Mapping[int, Indices]
    ) -> None:
        self.t, self.q, self.sizes = targets, weights, sizes
        self.there = {i: np.ones(sizes[i]) for i in empty}
        """Of every column's values 1, or 0 where the margin is 0 and so is every cell."""
        for i, none in empty.items():
            self.there[i][none] = 0.0
        owners: dict[Columns, list[Columns]] = {}
        for A in targets:
            for F in faces_of(A):
                owners.setdefault(F, []).append(A)
        self.shape = {F: tuple(sizes[i] for i in F) for F in owners}
        self.copies = {F: len(own) for F, own in owners.items()}
        self.start: dict[Columns, int] = {}
        self.place: dict[tuple[Columns, Columns], slice] = {}
        self.length = 0
        for F, own in owners.items():
            self.start[F] = self.length
            for A in own:
                self.place[A, F] = slice(self.length, self.length + prod(self.shape[F]))
                self.length += prod(self.shape[F])
        self.unit = np.empty(self.length)
        """1 / q of every price's table: what one cell above 0 adds to the second derivative."""
        for (A, _), place in self.place.items():
            self.unit[place] = 1 / weights[A]

    def of(self, vector: Dense, A: Columns) -> list[Dense]:
        """A table's faces, one for every axis: views."""
        return [vector[self.place[A, F]].reshape(self.shape[F]) for F in faces_of(A)]

    def all_of(self, vector: Dense, F: Columns) -> Dense:
        """A face's copies, one a row."""
        n = self.copies[F] * prod(self.shape[F])
        return vector[self.start[F] : self.start[F] + n].reshape(self.copies[F], -1)

    def fit(self, prices: Dense, softness: float) -> Fit:
        """All tables at these prices, of which only what a step needs is kept; μ is the softness."""
        cost, margins, weights = 0.0, np.zeros(self.length), {}
        for A, t in self.t.items():
            own, w = self.of(margins, A), np.empty_like(t)
            for rows, s in self._uncut_blocks(prices, A):
                x, w[rows] = self._cut(s, A, rows, softness)
                cost += self.q[A] * float(np.vdot(x, x)) / 2
                if softness > 0:
                    cost += softness * float(np.log(x[x > 0]).sum())
                _add_sums(x, rows, own)
            weights[A] = w
        return Fit(prices, cost, margins, weights)

    def tables(self, prices: Dense, softness: float) -> Iterator[tuple[Columns, Dense, Dense]]:
        """One by one: columns, cells, and s, which they are cut from."""
        for A, t in self.t.items():
            x, uncut = np.empty_like(t), np.empty_like(t)
            for rows, s in self._uncut_blocks(prices, A):
                uncut[rows] = s
                x[rows] = self._cut(s, A, rows, softness)[0]
            yield A, x, uncut

    def _uncut_blocks(self, prices: Dense, A: Columns) -> Iterator[tuple[slice, Dense]]:
        """s = t − (⊕ u) / q, some rows at a time."""
        u = [face / -self.q[A] for face in self.of(prices, A)]
        for rows in _split_blocks(self.t[A].shape):
            s = _spread_over(u, rows)
            s += self.t[A][rows]
            yield rows, s

    def _cut(self, s: Dense, A: Columns, rows: slice, softness: float) -> tuple[Dense, Dense]:
        """x and dx/ds of some rows; nothing where a column's margin is 0."""
        x, w = soften(s, softness / self.q[A])
        for axis, i in enumerate(A):
            there = self.there[i]
            if not there.all():
                own = lay_along(there[rows] if axis == 0 else there, x.ndim, axis)
                x *= own
                w *= own
        return x, w

    def weighed(self, weights: Parts, vector: Dense | None = None) -> Dense:
        """What the cells make of the second derivative, times a vector; its diagonal where there is none."""
        found = np.zeros(self.length)
        for A, w in weights.items():
            d, own = None if vector is None else self.of(vector, A), self.of(found, A)
            for rows in _split_blocks(w.shape):
                block = w[rows]
                if d is not None:
                    block = _spread_over(d, rows)
                    block *= w[rows]
                _add_sums(block, rows, own)
        found *= self.unit
        return found

    def pulls(self, prices: Dense, wanted: Parts) -> dict[Columns, Dense]:
        """What prices on faces do to these components."""
        found = {C: np.zeros_like(part) for C, part in wanted.items()}
        for F in self.shape:
            for C, part in split_table(self.all_of(prices, F).sum(axis=0).reshape(self.shape[F]), F).items():
                found[C] += part / spread(C, F, self.sizes)
        return found

    def spread_out(self, parts: Parts) -> Dense:
        """The faces that components make, in every copy."""
        found = np.empty(self.length)
        for F in self.shape:
            self.all_of(found, F)[:] = join_components(parts, F, self.sizes).reshape(-1)
        return found


def soften(s: Dense, least: float) -> tuple[Dense, Dense]:
    """x = (s + √(s² + 4 least)) / 2 and dx/ds; max(s, 0) where `least` is 0."""
    if least == 0:
        return np.maximum(s, 0.0), (s > 0).astype(np.float64)
    root = np.square(s)
    root += 4 * least
    np.sqrt(root, out=root)
    x = np.abs(s)
    x += root
    x /= 2
    np.divide(least, x, out=x, where=s < 0)  # the other root of the same equation, without cancellation
    np.divide(x, root, out=root)
    return x, root


def _split_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    rows = max(1, BLOCK_CELLS // max(1, prod(shape[1:])))
    return (slice(first, min(first + rows, shape[0])) for first in range(0, shape[0], rows))


def _spread_over(faces: list[Dense], rows: slice) -> Dense:
    """⊕: the sum of the faces over some rows of the table."""
    found = faces[0][None] + np.expand_dims(faces[1][rows], 1)
    for axis, face in enumerate(faces[2:], start=2):
        found += np.expand_dims(face[rows], axis)
    return np.asarray(found)


def _add_sums(block: Dense, rows: slice, faces: list[Dense]) -> None:
    """Add the sums along every axis of some rows of a table to its faces; by BLAS, which is faster than `sum`."""
    n = block.shape
    faces[0] += (np.ones(n[0]) @ block.reshape(n[0], -1)).reshape(n[1:])
    for axis in range(1, block.ndim):
        before, after = prod(n[:axis]), prod(n[axis + 1 :])
        ones = np.ones(n[axis])
        sums = block.reshape(before, -1) @ ones if after == 1 else ones @ block.reshape(before, n[axis], after)
        faces[axis][rows] = sums.reshape(n[:axis] + n[axis + 1 :])
