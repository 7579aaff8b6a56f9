"""What is measured, as integers: noise on a lattice is exact where noise on floats leaves gaps.

Q = trunc(L · 2^b), toward zero, so that no column grows; Q x is computed exactly; sensitivities are integers; and B is
fitted to the Q that is really measured. What Q cannot express is a bias, bounded here by a public cap on the counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import (
    Dense,
    Plain,
    assemble,
    column_blocks,
    dense,
    dense_product,
    plain,
    row_maxima,
    rows_span,
    shared_cell_map,
)
from batchdp.linalg.product import Product
from batchdp.linalg.threads import one_thread
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measurement import LARGEST, Integers, OneNoise, check_cap
from batchdp.mechanism.reader import CellReader
from batchdp.mechanism.sensitivity import cell_squares, cell_sums, over_blocks, root_above
from batchdp.privacy import Noise
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload

MOST_BITS, FEWEST_BITS = 40, 20
LARGEST_REFIT = 4000
"""Measurements up to which B is fitted anew."""


class OneGroup(ABC):
    """What measurements of cells have in common: one noise for all, scaled to how much a record changes them."""

    workload: MatrixWorkload
    reconstruct: Plain
    bits: int
    largest_total: int
    noise: Noise

    slack = 0

    @property
    def sensitivity(self) -> int:
        """How much one record changes the measurements, rounded up to an integer: Δ₁ for Laplace noise, else Δ₂."""
        return self.column_sums if self.noise.norm == 1 else root_above(self.column_squares)

    @cached_property
    def column_sums(self) -> int:
        """Δ₁, exactly: the most that one record changes all measurements; over blocks as `over_blocks` says."""
        return over_blocks(self.workload, self.by_cell(1), self.rows, 1)

    @cached_property
    def column_squares(self) -> int:
        """Δ₂², the largest squared L2 norm of a column, likewise."""
        return over_blocks(self.workload, self.by_cell(2), self.rows, 2)

    @abstractmethod
    def by_cell(self, power: int) -> NDArray[Any]:
        """For every cell Σ |Q|^power of a record in it, exactly."""

    @property
    @abstractmethod
    def rows(self) -> sparse.csr_array:
        """The measurements, to see which blocks each looks at."""

    @property
    @abstractmethod
    def bias_per_record(self) -> Dense:
        """For every query the most that one record adds to |(W − B L) x|."""

    @property
    def bias_bound(self) -> Dense:
        """For every answer, how far it can be off apart from the noise, with no more than `largest_total` records."""
        return self.bias_per_record * self.largest_total

    @cached_property
    def groups(self) -> tuple[OneNoise, ...]:
        """The one group; refused where what is measured is said to change by nothing, since it would get no noise."""
        if self.sensitivity == 0 and self.measures_something:
            raise LatticeError("a sensitivity of 0 for measurements that are not all 0; do not release")
        return (OneNoise(self.sensitivity**self.noise.norm, self.bits),)

    @property
    @abstractmethod
    def measures_something(self) -> bool:
        """Whether any record changes any measurement."""

    @property
    def sizes(self) -> Integers:
        """How many measurements the noise is drawn for."""
        return np.array([self.measurements], dtype=np.int64)

    @property
    def measurements(self) -> int:
        """How many there are."""
        return int(self.reconstruct.shape[1])

    @property
    def largest_part(self) -> int:
        """Measurements, or answers, that are made at a time."""
        return max(self.measurements, self.workload.queries)

    @property
    @abstractmethod
    def measure(self) -> sparse.csr_array:
        """L, what is measured of the cells."""

    def law(self, scales: Dense) -> NoiseLaw:
        """Of the noise in the answers, for noise of this scale on the lattice."""
        return NoiseLaw(self.reconstruct, float(scales[0]) / 2.0**self.bits, self.noise)

    def reader(self, scales: Dense) -> CellReader:
        """How answers are read from measurements with noise of this scale on the lattice."""
        W = self.workload
        return CellReader(W.names, self.measure, plain(W.matrix), self.law(scales), self.bits)

    def worst_bias(self, reader: CellReader) -> tuple[float, str]:
        """The most that an answer is off apart from noise, as a share of its standard error; and which one it is."""
        bias, errors = self.bias_bound, reader.standard_errors
        # What is not a number is not small either.
        share = np.divide(bias, errors, out=np.where(bias == 0, 0.0, np.inf), where=errors > 0)
        worst = int(np.argmax(share)) if len(share) else 0
        return float(share.max(initial=0.0)), f"query {self.workload.names[worst]!r}"


@dataclass(frozen=True, eq=False)
class Lattice(OneGroup):
    """Integer measurements of a workload, and how to read them.

    Args:
        workload: the batch W.
        integers: Q, one measurement per row; L is Q / 2^bits.
        reconstruct: B, for answers B (Q x + noise) / 2^bits.
        bits: b.
        largest_total: the public cap on the number of records that Q x cannot overflow at.
        noise: the kind of noise that the sensitivity is for.
        merging: for every cell of a table which cell of the workload it belongs to, as a matrix of zeros and ones;
            None where they are the same.
    """

    workload: MatrixWorkload
    integers: sparse.csr_array
    reconstruct: Plain
    bits: int
    largest_total: int
    noise: Noise
    merging: sparse.csc_array | None = None

    def __post_init__(self) -> None:
        if not self.integers.has_canonical_format:
            raise LatticeError("integers holds an entry in several pieces, whose norm is not that of their sum")
        if self.merging is not None and not _merges(self.merging, self.integers.shape[1]):
            raise LatticeError("merging does not say for every cell which one cell of the workload it belongs to")

    @property
    def measures_something(self) -> bool:
        """Whether any entry of Q is not 0."""
        return bool(np.any(self.integers.data))

    @cached_property
    def measure(self) -> sparse.csr_array:
        """L = Q / 2^bits, exactly."""
        return sparse.csr_array(
            (self.integers.data / 2.0**self.bits, self.integers.indices, self.integers.indptr),
            shape=self.integers.shape,
        )

    def by_cell(self, power: int) -> NDArray[Any]:
        """For every cell Σ_i |Q_ij|^power."""
        return cell_sums(self.integers) if power == 1 else cell_squares(self.integers)

    @property
    def rows(self) -> sparse.csr_array:
        """The integers Q, one row per measurement."""
        return self.integers

    @property
    def cells(self) -> int:
        """Of the tables that can be measured."""
        return int((self.integers if self.merging is None else self.merging).shape[1])

    @cached_property
    def bias_per_record(self) -> Dense:
        """For every query the most that one record adds to |(W − B L) x|."""
        B, W = self.reconstruct, plain(self.workload.matrix)
        if len(blocks := self.workload.blocks) > 1:
            L = sparse.csr_array(B) @ self.measure
            worst = worst_by_block(sparse.csr_array(W) - L, np.repeat(np.arange(len(blocks)), blocks))
        elif isinstance(B, np.ndarray) or isinstance(W, np.ndarray):
            worst = np.zeros(self.workload.queries)
            columns = sparse.csc_array(self.measure)
            for block, W_block in column_blocks(W):
                E = W_block - dense_product(B, columns[:, block])
                worst = np.maximum(worst, np.abs(E).max(axis=1, initial=0.0))
        else:
            worst = row_maxima(sparse.csr_array(W - B @ self.measure))
        # Rounding of the products themselves, here and when the answers are computed: Σ_k |B_ik| |L_kj| is at most
        # the largest |B_ik| times the column norm of L.
        rounding = 2 * np.finfo(float).eps * (self.integers.shape[0] + 64)
        apart = self.workload.most_together(self.workload.largest_by_block(self.by_cell(1)).tolist())
        return np.asarray(worst + rounding * row_maxima(B) * apart / 2.0**self.bits)


def worst_by_block(E: sparse.csr_array, block_of: Integers) -> Dense:
    """The largest |E| of every query in each block, summed over the blocks."""
    columns = sparse.csc_array(E)
    parts = (columns[:, np.flatnonzero(block_of == block)] for block in np.unique(block_of))
    return np.asarray(sum(row_maxima(sparse.csr_array(part)) for part in parts))


def bits_for(workload: MatrixWorkload, largest_total: int) -> int:
    """How many bits measurements of at most 1 can have so that so many records stay in 64."""
    times = len(workload.blocks)  # a record is counted once in every block
    bits = min(MOST_BITS, (LARGEST // (check_cap(largest_total) * times)).bit_length() - 1)
    if bits < FEWEST_BITS:
        raise LatticeError(
            f"largest_total={largest_total} leaves {bits} bits for the measurements, fewer than {FEWEST_BITS}; "
            f"lower the public cap to at most {LARGEST // times >> FEWEST_BITS}"
        )
    return bits


def quantise_cells(strategy: PairStrategy, *, largest_total: int, exactly: bool = False) -> Lattice:
    """The strategy on the finest lattice of 20 to 40 bits on which `largest_total` records cannot overflow.

    With more measurements than their rank, rounding makes all of them independent. To answer `exactly`, B must then
    rest on differences that are nothing but rounding, at the price of noise; otherwise these are left to the bias.
    """
    workload, measurement, merging = merge_cells(strategy)
    bits = bits_for(workload, largest_total)
    L = sparse.csr_array(measurement).astype(np.float64)
    top = float(np.abs(L.data).max(initial=0.0)) or 1.0
    # Entries of at most 1: the scale of a measurement is free. (Dividing the sparse array would multiply by 1 / top.)
    L = sparse.csr_array((L.data / top, L.indices, L.indptr), shape=L.shape)
    Q = sparse.csr_array((np.trunc(L.data * 2.0**bits).astype(np.int64), L.indices, L.indptr), shape=L.shape, copy=True)
    Q.eliminate_zeros()
    if np.abs(Q.data).max(initial=0) > 2**bits:  # what keeps Q x within 64 bits
        raise LatticeError("measurement has entries that do not become integers of the lattice's size")
    B = plain(strategy.reconstruction) * top
    return _refit(Lattice(workload, Q, B, bits, int(largest_total), strategy.noise, merging), exactly)


def merge_cells(strategy: PairStrategy) -> tuple[MatrixWorkload, Plain, sparse.csc_array | None]:
    """W and L on the cells that they tell apart, and which of those each cell is, where both are kept that way."""
    W, L = strategy.workload, strategy.measurement
    if isinstance(W.matrix, Product) and isinstance(L, Product) and shared_cell_map(W.matrix, L) is not None:
        return MatrixWorkload(W.matrix.left, W.names, W.weights), plain(L.left), sparse.csc_array(L.right, copy=True)
    return W, plain(L), None


def _merges(merging: sparse.csc_array, cells: int) -> bool:
    """Whether every column has one entry, a 1, in one of so many rows."""
    rows, columns = merging.shape
    return (
        rows == cells
        and np.array_equal(merging.indptr, np.arange(columns + 1))
        and bool(np.all(merging.data == 1))
        and bool(np.all((merging.indices >= 0) & (merging.indices < rows)))
    )


LEAST_SINGULAR = 1e-4
"""Relative to the largest singular value: where none is smaller, Gram matrices lose nothing that refining misses."""


def _refit(lattice: Lattice, exactly: bool) -> Lattice:
    """With B + (W − B L) L⁺ for the L that Q stands for; as it is where B L is exact or too large to solve for."""
    W, B, L = plain(lattice.workload.matrix), lattice.reconstruct, lattice.measure
    if len(lattice.workload.blocks) > 1 and not rows_span(lattice.integers, lattice.workload.blocks):
        return replace(lattice, reconstruct=_refit_by_block(lattice, exactly))
    if L.shape[0] > LARGEST_REFIT:
        return lattice
    rounding = 0.0 if exactly else sqrt(prod(L.shape)) / 2.0**lattice.bits
    better = refit(dense(W), B, L, rounding)
    return lattice if better is None else replace(lattice, reconstruct=better)


@one_thread  # NumPy and SciPy in turn: beside other work, two threads took several times the processor time
def refit(W: Dense, B: Plain, L: sparse.csr_array, rounding: float = 0.0) -> Dense | None:
    """B + (W − B L) L⁺, without what L has by rounding, whose singular values are at most this; None if B L is W."""
    E = W - dense_product(B, L)
    if not np.any(E):
        return None
    M = np.asarray(L.toarray(), np.float64)
    solved = _solve_well(M, E, rounding)
    if solved is not None:
        return np.asarray(dense(B) + solved, np.float64)
    largest = sqrt(float(np.linalg.norm(M @ M.T, 2)))
    correction = np.linalg.lstsq(M.T, E.T, rcond=max(1e-13, rounding / largest if largest else 0.0))[0].T
    return np.asarray(dense(B) + correction, np.float64)


def _solve_well(M: Dense, E: Dense, rounding: float) -> Dense | None:
    """E M⁺ by the smaller Gram matrix, refined once; None where M has small singular values, or such by rounding."""
    wide = M.shape[0] <= M.shape[1]
    G = M @ M.T if wide else M.T @ M
    bound = float(np.abs(G).sum(axis=1).max())  # at least the largest eigenvalue
    try:
        cholesky(G - max(LEAST_SINGULAR**2 * bound, rounding**2) * np.eye(len(G)), check_finite=False)
        factor = cho_factor(G, check_finite=False)
    except LinAlgError:
        return None

    def solve(left: Dense) -> Dense:
        return np.asarray(cho_solve(factor, M @ left.T).T if wide else cho_solve(factor, left.T).T @ M.T)

    found = solve(E)
    return found + solve(E - found @ M)


def _refit_by_block(lattice: Lattice, exactly: bool) -> sparse.csr_array:
    """The same where every measurement sees one block: block by block, so that nothing of W's size is dense."""
    W, B, Q = (sparse.csc_array(one) for one in (plain(lattice.workload.matrix), lattice.reconstruct, lattice.integers))
    fitted, start = [], 0
    for size in lattice.workload.blocks:
        cells = slice(start, start + size)
        start += size
        measured = np.unique(Q[:, cells].indices)
        queries = np.union1d(W[:, cells].indices, B[:, measured].indices)
        if not (measured.size and queries.size):
            continue
        block = Lattice(
            MatrixWorkload(sparse.csr_array(W[:, cells])[queries]),
            sparse.csr_array(Q[:, cells])[measured],
            sparse.csr_array(B[:, measured])[queries],
            lattice.bits,
            lattice.largest_total,
            lattice.noise,
        )
        fitted.append((_refit(block, exactly).reconstruct, queries, measured))
    return assemble(fitted, B.shape)  # every column belongs to one block; those of measurements that vanished are 0
