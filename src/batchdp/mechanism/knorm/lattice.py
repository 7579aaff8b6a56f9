"""What is measured under K-norm noise, as integers: a body is the hull of ± whatever one record can add to them.

**Why every record is inside.** A record has at most one cell in every block, so it adds a sum of integer columns, at
most one from each of the blocks that can meet in it. All these sums are vertices of the body of every group, as far as
the group sees them. A record between two cells adds α + β u with whole u between 0 and the number of steps: a mixture
of α and α + β · steps, which both are columns here, so the sum that it adds is a mixture of vertices, and a body is
convex. Nothing is cut or clamped on the way from records to measurements, which would be a contraction in no such norm.
So one record moves every group by at most once its body, and all groups together lose at most the sum of their ε.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.amounts import AmountLattice, quantise_amounts
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.lattice import Lattice, OneGroup, merge_cells, quantise_cells
from batchdp.mechanism.measurement import Integers
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import Group, Shape, by_blocks, joint_columns

COARSE = 40
"""Bits of what is shown of measurements on a finer lattice."""


@dataclass(frozen=True, eq=False)
class BodyGroup:
    """Measurements that share a body, and so a draw of noise.

    One record moves them by at most once the body, which holds whatever it can add, so `moved` is 1.
    """

    body: Body
    cells: tuple[NDArray[Any], ...]
    """For every block what a record in each of its cells, or at an end, adds to them, whatever the body was made of."""
    meetings: tuple[tuple[int, ...], ...]
    """Blocks that meet in a record."""
    shaped: Group
    bits: int

    moved = 1
    columns = ()

    @property
    def share(self) -> Fraction:
        """What part of ε it has."""
        return self.shaped.share

    @property
    def thinnest(self) -> float:
        """The least standard deviation of noise of scale 1 in any direction, in steps."""
        return float(np.sqrt(max(np.linalg.eigvalsh(self.shaped.covariance)[0], 0.0))) * float(self.share)

    def column_outside(self) -> list[int] | None:
        """What some record adds that is not inside the body; None if all are. Proven in whole numbers."""
        vertices = set(map(tuple, self.body.vertices.T.tolist()))
        for column in map(tuple, joint_columns(self.cells, self.meetings).T.tolist()):
            opposite = tuple(-q for q in column)
            if column not in vertices and opposite not in vertices and not self.body.contains(column):
                return list(column)
        return None


class InBodies(OneGroup, ABC):
    """What measurements with K-norm noise have in common: every group of them has a body."""

    shape: Shape
    """Of the noise; its sample is in steps of the lattice."""

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]  # of the lattice that this is mixed into
        if sum(self.shape.ranks) != self.measurements:
            raise LatticeError(f"groups of {self.shape.ranks} do not fit {self.measurements} measurements")

    @abstractmethod
    def cells_of(self, own: slice) -> Sequence[NDArray[Any]]:
        """For every block the whole numbers that a record in each of its cells, or at an end, adds to measurements."""

    @property
    def sensitivity(self) -> int:
        """One record moves the measurements by at most once the bodies, with their shares of ε."""
        return 1

    @cached_property
    def record_columns(self) -> tuple[NDArray[Any], ...]:
        """For every group the different changes by one record, none of them nothing."""
        met = self.workload.meetings
        return tuple(joint_columns(self.cells_of(own), met) for own, _ in self.shape.parts)

    @cached_property
    def bodies(self) -> tuple[Body, ...]:
        """Of every group: the hull of ± what a record can add."""
        return tuple(Body(columns.astype(object)) for columns in self.record_columns)

    @cached_property
    def groups(self) -> tuple[BodyGroup, ...]:  # type: ignore[override]
        """Measurements that share a body."""
        found = zip(self.bodies, self.shape.parts, strict=True)
        met = self.workload.meetings
        return tuple(BodyGroup(body, tuple(self.cells_of(own)), met, group, self.bits) for body, (own, group) in found)

    @property
    def sizes(self) -> Integers:
        """How many measurements every group has."""
        return np.array(self.shape.ranks, dtype=np.int64)

    def law(self, scales: Dense) -> ShapedLaw:
        """Of the noise in the answers: the scales of all groups are one, divided by their shares."""
        scale = float(scales[0]) * float(self.shape.groups[0].share)
        return ShapedLaw(self.reconstruct, scale / 2.0**self.bits, self.noise, shape=self.shape)


@dataclass(frozen=True, eq=False)
class ShapedLattice(InBodies, Lattice):
    """A lattice of which every group of measurements has a body."""

    shape: Shape = field(kw_only=True)

    def cells_of(self, own: slice) -> Sequence[NDArray[Any]]:
        """The different columns of the rows of Q, block by block."""
        rows = sparse.csc_array(self.integers[own])
        if len(self.workload.blocks) > 1:
            return by_blocks(rows.toarray().astype(np.int64), self.workload.blocks)
        return (rows[:, np.flatnonzero(np.diff(rows.indptr))].toarray().astype(np.int64),)


@dataclass(frozen=True, eq=False)
class ShapedAmounts(InBodies, AmountLattice):
    """Measurements of amounts of which every group has a body, on the fine lattice: totals are not cut."""

    shape: Shape = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shift:
            raise LatticeError("totals that are cut move by more than a column; bodies are for the fine lattice")

    def cells_of(self, own: slice) -> Sequence[NDArray[Any]]:
        """α of every cell and α + β · steps of every pair of ends, block by block."""
        rows = range(*own.indices(self.measurements))
        block_of = np.repeat(np.arange(len(self.workload.blocks)), self.workload.blocks).tolist()
        found: list[list[list[int]]] = [[] for _ in self.workload.blocks]
        for cell, column in enumerate(self.levels):
            found[block_of[cell]].append([column.get(i, 0) for i in rows])
        for pair, (low, high, _) in enumerate(self.workload.ends):
            column = self.upper(pair)
            found[block_of[max(low, high)]].append([column.get(i, 0) for i in rows])
        return [np.array(columns, dtype=object).reshape(len(columns), len(rows)).T for columns in found]

    @cached_property
    def integers(self) -> sparse.csr_array:
        """What is measured of cells, in coarse steps: to be shown. The exact whole numbers are the columns."""
        return sparse.csr_array((self.measure * 2.0**COARSE).astype(np.int64))


def quantise_shaped(strategy: PairStrategy, *, largest_total: int, exactly: bool = False) -> InBodies:
    """The measurements of a strategy with a shape as integers, on the lattice that any strategy would have."""
    assert strategy.shape is not None
    if strategy.workload.ends:
        amounts = quantise_amounts(strategy, largest_total=largest_total, cut=False)
        shape = strategy.shape.scaled(2.0**amounts.bits / _largest(plain(strategy.measurement)))
        return ShapedAmounts(**_held(amounts), shape=shape)
    lattice = quantise_cells(strategy, largest_total=largest_total, exactly=exactly)
    shape = strategy.shape.scaled(2.0**lattice.bits / _largest(merge_cells(strategy)[1]))
    return ShapedLattice(**_held(lattice), shape=shape)


def _held(lattice: Any) -> dict[str, Any]:
    return {one.name: getattr(lattice, one.name) for one in fields(lattice)}


def _largest(measurement: Any) -> float:
    return float(abs(sparse.csr_array(measurement)).max()) or 1.0
