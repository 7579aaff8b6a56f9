"""A matrix that is kept as its two factors and applied, never multiplied out.

With a million cells L itself is too large to hold, but it is L_R M: a few distinct columns, and for each cell which of
them it has and how many times (one entry per column of M). Likewise B = U B_R where the queries far outnumber their
rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Dense = NDArray[np.float64]
Plain = Dense | sparse.csr_array | sparse.csc_array
"""A matrix that is held entry by entry."""


@dataclass(frozen=True, eq=False)
class CellMap:
    """For every cell the class that it belongs to, and the multiple of the class's column that it has.

    Two maps are equal that say the same, whoever made them.
    """

    classes: NDArray[np.int64]
    factors: Dense
    count: int
    """How many classes there are, whether or not a cell belongs to them."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CellMap):
            return NotImplemented
        return self is other or (
            self.count == other.count
            and np.array_equal(self.classes, other.classes)
            and np.array_equal(self.factors, other.factors)
        )

    def __hash__(self) -> int:
        return hash((self.count, len(self.classes)))

    @cached_property
    def squares(self) -> Dense:
        """For every class the sum of squares of the factors of its cells."""
        return np.bincount(self.classes, self.factors**2, minlength=self.count).astype(np.float64, copy=False)

    def matrix(self) -> sparse.csc_array:
        """M: for every cell the one row that it has an entry in, and that entry; none where the factor is 0."""
        kept = self.factors != 0
        ends = np.concatenate([[0], np.cumsum(kept)])
        return sparse.csc_array((self.factors[kept], self.classes[kept], ends), shape=(self.count, len(self.classes)))


@dataclass(frozen=True, eq=False)
class Product:
    """The product left @ right, never multiplied out."""

    left: Plain
    right: Plain

    __array_ufunc__ = None  # NumPy leaves array @ product to the product

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns it has."""
        return int(self.left.shape[0]), int(self.right.shape[1])

    @cached_property
    def cell_map(self) -> CellMap | None:
        """For every column the one column of `left` that it is a multiple of, and the factor; None if there are more.

        A column of zeros is 0 times the first.
        """
        return cell_map_of(self.right)

    def __matmul__(self, other: Any) -> Any:
        return self.left @ (self.right @ other)

    def __rmatmul__(self, other: Any) -> Any:
        return (other @ self.left) @ self.right

    def rows(self, part: slice) -> Plain:
        """Neighbouring rows, multiplied out."""
        return self.left[part] @ self.right

    def columns(self, part: slice | NDArray[Any]) -> Plain:
        """Some columns, multiplied out."""
        if self.cell_map is None:
            return self.left @ columns_of(self.right, part)
        chosen, factors = self.cell_map.classes[part], self.cell_map.factors[part]
        if isinstance(self.left, np.ndarray):
            return self.left[:, chosen] * factors
        return sparse.csc_array(columns_of(self.left, chosen) @ sparse.diags_array(factors))


def cell_map_of(matrix: Plain) -> CellMap | None:
    """What a right factor says about the cells, if it has at most one entry per column."""
    if isinstance(matrix, np.ndarray):
        return None
    columns = sparse.csc_array(matrix)
    filled = np.diff(columns.indptr)
    if np.any(filled > 1):
        return None
    chosen, factors = np.zeros(columns.shape[1], dtype=np.int64), np.zeros(columns.shape[1])
    chosen[filled == 1], factors[filled == 1] = columns.indices, columns.data
    return CellMap(chosen, factors, columns.shape[0])


def columns_of(matrix: Plain, part: slice | NDArray[Any]) -> Plain:
    """Some columns of a matrix."""
    entries: Any = matrix
    return entries[:, part]  # type: ignore[no-any-return]
