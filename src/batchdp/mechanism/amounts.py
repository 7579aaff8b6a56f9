"""Measurements of amounts, as integers: a record between two ends adds α + β u, with whole α, β and number of steps u.

α and β stand on a fine lattice, where they lose nothing that float64 holds, and are summed over all records exactly.
The total alone is cut to the coarser lattice that noise is added on, which leaves 64 bits room for all records. This
moves a measurement by less than one coarse step, and one record changes it by at most |α + β u| in coarse steps,
rounded up. As |α + β u| is convex in u, no record between two ends changes more than one at either end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense, Plain, dense, plain, row_maxima
from batchdp.mechanism.lattice import LARGEST_REFIT, OneGroup, bits_for, refit, worst_by_block
from batchdp.mechanism.sensitivity import amount_changes
from batchdp.privacy import Noise
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload

SPARE = 64
"""Bits of the fine lattice beyond those of the longest stretch: more than float64 has."""
MOST_REFIT = 16_000_000
"""Measurements times cells, and queries times cells, up to which B is fitted anew."""

Column = dict[int, int]
"""Whole numbers of any size, by measurement."""


@dataclass(frozen=True, eq=False)
class AmountLattice(OneGroup):
    """Integer measurements of a workload whose records can lie between cells, and how to read them.

    Args:
        workload: the batch W, with pairs of ends.
        levels: for every cell its column of the fine integers: α of records there.
        slopes: for every pair of the workload's ends, β: what a step from the lower one adds.
        reconstruct: B, for answers B (measurements + noise) / 2^bits.
        bits: of the coarse lattice, which noise is added on.
        fine: bits of the fine one.
        largest_total: the public cap on the number of records that 64 bits have room for.
        noise: the kind of noise that the sensitivity is for.
    """

    workload: MatrixWorkload
    levels: tuple[Column, ...]
    slopes: tuple[Column, ...]
    reconstruct: Plain
    bits: int
    fine: int
    largest_total: int
    noise: Noise

    def __post_init__(self) -> None:
        if (len(self.levels), len(self.slopes)) != (self.workload.cells, len(self.workload.ends)):
            raise LatticeError("levels and slopes do not have one column for every cell and every pair of ends")
        if not 0 <= self.bits <= self.fine:
            raise LatticeError(f"fine={self.fine} bits are fewer than the {self.bits} of the lattice for noise")

    @property
    def cells(self) -> int:
        """Of the tables that can be measured: counts of all cells, then sums of steps of all ends."""
        return len(self.levels) + len(self.slopes)

    @property
    def shift(self) -> int:
        """Bits by which a total is cut."""
        return self.fine - self.bits

    def level(self, cell: int) -> Column:
        """α of a record in a cell; nothing for −1."""
        return self.levels[cell] if cell >= 0 else {}

    def upper(self, pair: int) -> Column:
        """What a record at the upper end of a pair adds, by the lower end's α and the slope."""
        low, _, steps = self.workload.ends[pair]
        level, slope = self.level(low), self.slopes[pair]
        return {i: level.get(i, 0) + steps * slope.get(i, 0) for i in level.keys() | slope.keys()}

    @cached_property
    def uppers(self) -> tuple[Column, ...]:
        """The same for every pair."""
        return tuple(self.upper(pair) for pair in range(len(self.slopes)))

    def by_cell(self, power: int) -> NDArray[Any]:
        """For every cell the most that Σ |z|^power is of a record in it, or between it and another."""
        return np.array(amount_changes(self.levels, self.uppers, self.workload.ends, self.shift, power), dtype=object)

    @property
    def rows(self) -> sparse.csr_array:
        """On the fine lattice: what is less than a coarse step is summed all the same."""
        return self._matrix(list(self.levels), self.fine)

    @property
    def measures_something(self) -> bool:
        """Whether any fine integer is not 0."""
        return any(q for column in (*self.levels, *self.slopes) for q in column.values())

    @cached_property
    def measure(self) -> sparse.csr_array:
        """L on the cells, cut to the coarse lattice toward zero."""
        return self._matrix([{i: _cut(q, self.shift) for i, q in level.items()} for level in self.levels], self.bits)

    @cached_property
    def integers(self) -> sparse.csr_array:
        """The same in coarse steps."""
        return sparse.csr_array((self.measure * 2.0**self.bits).astype(np.int64))

    def _matrix(self, columns: list[Column], bits: int) -> sparse.csr_array:
        entries = [(i, j, q) for j, column in enumerate(columns) for i, q in column.items() if q]
        rows, places, values = zip(*entries, strict=True) if entries else ((), (), ())
        shape = (self.measurements, len(columns))
        # A whole number of any size is rounded once as it becomes a float; a power of two divides it exactly.
        data = np.ldexp(np.array(values, dtype=object).astype(np.float64), -bits)
        return sparse.csr_array(sparse.coo_array((data, (np.array(rows, int), np.array(places, int))), shape=shape))

    @cached_property
    def extremes(self) -> tuple[sparse.csr_array, sparse.csr_array, tuple[int, ...]]:
        """W and L of records at every cell and at the upper end of every pair, and the block of each."""
        L = self._matrix([*self.levels, *self.uppers], self.fine)
        W = sparse.csc_array(plain(self.workload.matrix))
        nothing = sparse.csc_array((W.shape[0], 1))
        places = [high if high >= 0 else W.shape[1] for _, high, _ in self.workload.ends]
        ends = sparse.csc_array(sparse.hstack([W, nothing]))[:, places]
        block_of = np.repeat(np.arange(len(self.workload.blocks)), self.workload.blocks)
        own = [int(block_of[max(low, high)]) for low, high, _ in self.workload.ends]
        return sparse.csr_array(sparse.hstack([W, ends])), L, (*block_of.tolist(), *own)

    @cached_property
    def bias_per_record(self) -> Dense:
        """For every query the most that one record adds to |(W − B L) x|: what is affine is largest at an end."""
        W, L, block_of = self.extremes
        worst = worst_by_block(W - sparse.csr_array(self.reconstruct) @ L, np.array(block_of))
        # Rounding of the products themselves, here and when the answers are computed, as for other lattices.
        rounding = 2 * np.finfo(float).eps * (self.measurements + 64)
        sums = float(np.abs(L.data).max(initial=0.0)) * L.shape[0]
        return np.asarray(worst + rounding * row_maxima(self.reconstruct) * sums)

    @property
    def bias_bound(self) -> Dense:
        """For every answer, how far it can be off apart from the noise, with no more than `largest_total` records."""
        B = sparse.csr_array(self.reconstruct)
        sizes = np.add.reduceat(np.append(np.abs(B.data), 0.0), B.indptr[:-1]) * (np.diff(B.indptr) > 0)
        return np.asarray(super().bias_bound + sizes / 2.0**self.bits)  # totals are cut


def quantise_amounts(strategy: PairStrategy, *, largest_total: int, cut: bool = True) -> AmountLattice:
    """The strategy on the finest lattice on which `largest_total` records cannot overflow.

    Args:
        strategy: what to measure.
        largest_total: the public cap on the number of records.
        cut: totals to the coarse lattice; else noise is added on the fine one, and totals may be of any size.
    """
    workload = strategy.workload
    bits = bits_for(workload, largest_total)
    longest = max(steps for _, _, steps in workload.ends)
    fine = bits + SPARE + longest.bit_length()
    bits = bits if cut else fine
    L = sparse.csc_array(plain(strategy.measurement)).astype(np.float64)
    L.sum_duplicates()
    top = float(np.abs(L.data).max(initial=0.0)) or 1.0
    data = _scaled(L.data / top, fine)  # entries of at most 1, as elsewhere
    levels: list[Column] = []
    for start, end in zip(L.indptr[:-1], L.indptr[1:], strict=True):
        levels.append(dict(zip(L.indices[start:end].tolist(), data[start:end], strict=True)))
    slopes = []
    for low, high, steps in workload.ends:
        below, above = (levels[cell] if cell >= 0 else {} for cell in (low, high))
        slopes.append({i: _cut_by(above.get(i, 0) - below.get(i, 0), steps) for i in below.keys() | above.keys()})
    B = plain(strategy.reconstruction) * top
    made = AmountLattice(workload, tuple(levels), tuple(slopes), B, bits, fine, int(largest_total), strategy.noise)
    return _refit(made)


def _refit(lattice: AmountLattice) -> AmountLattice:
    """With B fitted to what is really measured; as it is where it fits already, or where that would take too long."""
    W, L, _ = lattice.extremes
    if L.shape[0] > LARGEST_REFIT or max(L.shape[0], W.shape[0]) * L.shape[1] > MOST_REFIT:
        return lattice
    wanted = dense(W)
    better = refit(wanted, lattice.reconstruct, L)
    if better is None:
        return lattice
    better[~np.any(wanted, axis=1)] = 0.0  # no record adds to these: rounding would be more than their noise
    found = replace(lattice, reconstruct=better)
    found.__dict__.update(uppers=lattice.uppers, extremes=lattice.extremes)  # which do not look at B
    return found


def _scaled(values: Dense, bits: int) -> list[int]:
    """Every value · 2^bits, toward zero, exactly: a float is a whole number of 53 bits times a power of two."""
    parts, powers = np.frexp(values)
    whole, shifts = np.ldexp(parts, 53).astype(np.int64), powers.astype(np.int64) + (bits - 53)
    pairs = zip(whole.tolist(), shifts.tolist(), strict=True)
    return [number << by if by >= 0 else _cut(number, -by) for number, by in pairs]


def _cut(number: int, bits: int) -> int:
    return _cut_by(number, 1 << bits)


def _cut_by(number: int, divisor: int) -> int:
    """A quotient of whole numbers, toward zero."""
    return number // divisor if number >= 0 else -(-number // divisor)
