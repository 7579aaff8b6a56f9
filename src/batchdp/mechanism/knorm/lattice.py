"""What is measured under K-norm noise, as integers: the bodies are the hulls of ± the integer columns themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy import sparse

from batchdp.errors import LatticeError
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.lattice import Lattice, by_distinct_cells, quantise_cells
from batchdp.mechanism.measurement import Dense, Integers
from batchdp.strategies.shape import Group, Shape
from batchdp.strategies.strategy import Strategy


@dataclass(frozen=True, eq=False)
class BodyGroup:
    """Measurements that share a body, and so a draw of noise.

    One record moves them by one column. It is at most once the body, which holds all columns, so `moved` is 1.
    """

    body: Body
    rows: sparse.csr_array
    """Of Q: what is measured, whatever the body was made of."""
    shaped: Group
    bits: int

    moved = 1
    columns = ()

    @property
    def share(self) -> Fraction:
        """Of ε."""
        return self.shaped.share

    @property
    def thinnest(self) -> float:
        """The least standard deviation of noise of scale 1 in any direction, in steps."""
        return float(np.sqrt(max(np.linalg.eigvalsh(self.shaped.covariance)[0], 0.0))) * float(self.share)

    def column_outside(self) -> list[int] | None:
        """A column of its rows that is not inside the body; None if all are. Proven in whole numbers."""
        vertices = set(map(tuple, self.body.vertices.T.tolist()))
        columns = np.ascontiguousarray(self.rows.T.toarray().astype(np.int64))
        for raw in {column.tobytes() for column in columns}:
            column = tuple(np.frombuffer(raw, dtype=np.int64).tolist())
            opposite = tuple(-q for q in column)
            if column in vertices or opposite in vertices or not any(column):
                continue
            if not self.body.contains(column):
                return list(column)
        return None


@dataclass(frozen=True, eq=False)
class ShapedLattice(Lattice):
    """A lattice of which every group of measurements has a body, which holds all of its integer columns.

    Args:
        shape: of the noise; its sample is in steps of the lattice.
    """

    shape: Shape = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(self.shape.ranks) != self.integers.shape[0] or len(self.workload.blocks) > 1:
            raise LatticeError(
                f"groups of {self.shape.ranks} do not fit {self.integers.shape[0]} measurements of a block"
            )

    @property
    def sensitivity(self) -> int:
        """One record moves Q x by one column: at most once the bodies, with their shares of ε."""
        return 1

    @cached_property
    def record_columns(self) -> tuple[Integers, ...]:
        """For every group the different columns of its rows of Q that are not zero."""
        found = []
        for own, _ in self.shape.parts:
            rows = sparse.csc_array(self.integers[own])
            touched = np.flatnonzero(np.diff(rows.indptr))
            found.append(np.unique(rows[:, touched].toarray().astype(np.int64), axis=1))
        return tuple(found)

    @cached_property
    def bodies(self) -> tuple[Body, ...]:
        """Of every group: the hull of ± its columns."""
        return tuple(Body(columns.astype(object)) for columns in self.record_columns)

    @cached_property
    def groups(self) -> tuple[BodyGroup, ...]:  # type: ignore[override]
        """Measurements that share a body."""
        found = zip(self.bodies, self.shape.parts, strict=True)
        return tuple(BodyGroup(body, self.integers[own], group, self.bits) for body, (own, group) in found)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Of ε."""
        return tuple(group.share for group in self.shape.groups)

    @property
    def sizes(self) -> Integers:
        """How many measurements every group has."""
        return np.array(self.shape.ranks, dtype=np.int64)

    def law(self, scales: Dense) -> ShapedLaw:
        """Of the noise in the answers: the scales of all groups are one, divided by their shares."""
        scale = float(scales[0]) * float(self.shape.groups[0].share)
        return ShapedLaw(self.reconstruct, scale / 2.0**self.bits, self.noise, shape=self.shape)


def quantise_shaped(strategy: Strategy, *, largest_total: int, exactly: bool = False) -> ShapedLattice:
    """The measurements of a strategy with a shape as integers, on the lattice that any strategy would have."""
    assert strategy.shape is not None
    lattice = quantise_cells(strategy, largest_total=largest_total, exactly=exactly)
    top = float(abs(sparse.csr_array(by_distinct_cells(strategy)[1])).max()) or 1.0
    held = {one.name: getattr(lattice, one.name) for one in fields(Lattice)}
    return ShapedLattice(**held, shape=strategy.shape.scaled(2.0**lattice.bits / top))
