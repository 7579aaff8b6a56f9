"""What is measured under shaped noise, as integers: the bodies are the hulls of ± the integer columns themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from scipy import sparse

from batchdp.errors import LatticeError
from batchdp.mechanism.lattice import Integers, Lattice, by_distinct_cells, quantise
from batchdp.mechanism.knorm.body import Body
from batchdp.strategies.shape import Shape
from batchdp.strategies.strategy import Strategy


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
    def columns(self) -> tuple[Integers, ...]:
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
        return tuple(Body(columns.astype(object)) for columns in self.columns)

    @property
    def thinnest(self) -> float:
        """The least standard deviation of the noise at ε = 1 in any direction, in steps."""
        return float(np.sqrt(max(np.linalg.eigvalsh(self.shape.covariance)[0], 0.0)))

    def measured(self, counts: Integers) -> list[int]:
        """Q x, exactly and never clamped: a clamp can move two neighbours further apart in the norm of a body."""
        return self.product(self.merged(counts))


def shaped_lattice(strategy: Strategy, *, largest_total: int, exactly: bool = False) -> ShapedLattice:
    """The measurements of a strategy with a shape as integers, on the lattice that any strategy would have."""
    assert strategy.shape is not None
    lattice = quantise(strategy, largest_total=largest_total, exactly=exactly)
    top = float(abs(sparse.csr_array(by_distinct_cells(strategy)[1])).max()) or 1.0
    held = {one.name: getattr(lattice, one.name) for one in fields(Lattice)}
    return ShapedLattice(**held, shape=strategy.shape.scaled(2.0**lattice.bits / top))
