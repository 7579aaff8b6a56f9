"""Queries that are measured themselves, in integers.

A table's integers are the product of its factors' where these become whole, or all but one do. Where more would be
rounded, each in a part of the bits, the product is rounded instead, in all of them, if it can be held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from batchdp.components.pieces import kron
from batchdp.mechanism.sensitivity import Change
from batchdp.mechanism.weighted.integers import IntegerFactor, denominator, quantise_factor
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_JOINT = 4_000_000
"""Entries of a table whose factors are multiplied out."""
SPARE = 8
"""Bits that are left for weights where one factor is rounded."""
LESS = 1 - 2.0**-10
"""Of all the room, for what is rounded up."""


@dataclass(frozen=True, eq=False)
class IntegerResults:
    """The queries themselves in integers."""

    workload: KroneckerWorkload
    factors: tuple[tuple[IntegerFactor, ...], ...]
    """Of every column, as in the workload."""
    weights: Integers
    """Of every asked table; 1 for those in `joint`."""
    joint: Mapping[int, Integers] = field(default_factory=dict)
    """Tables whose factors are multiplied out: query × combination of values."""
    joint_scale: float = 1.0
    """What queries are multiplied by in these."""

    serves: ClassVar[None] = None

    def __len__(self) -> int:
        return len(self.weights)

    def factors_of(self, k: int) -> dict[int, IntegerFactor]:
        """The factor of every column that a table looks at."""
        batch = self.workload
        span = slice(batch.starts[k], batch.starts[k + 1])
        own = zip(batch.columns[span].tolist(), batch.chosen[span].tolist(), strict=True)
        return {i: self.factors[i][c] for i, c in own}

    def shape(self, k: int) -> tuple[int, ...]:
        """Of a table's measurements."""
        return tuple(one.factor.rows for one in self.factors_of(k).values())

    def largest(self, k: int) -> int:
        """The largest entry of a table's integers."""
        if k in self.joint:
            return int(np.abs(self.joint[k]).max(initial=0))
        return int(self.weights[k]) * prod(one.largest for one in self.factors_of(k).values())

    def scale(self, k: int) -> float:
        """What a table's queries are multiplied by."""
        if k in self.joint:
            return self.joint_scale
        return float(self.weights[k]) * prod(one.scale for one in self.factors_of(k).values())

    def changes(self) -> Iterator[Change]:
        """What a record changes of each table."""
        for k, weight in enumerate(self.weights.tolist()):
            own = self.factors_of(k)
            if k in self.joint:
                yield Change(weight, ((tuple(own), self._joint_norms[k]),))
            else:
                norms = ((i, one.norms) for i, one in own.items())
                yield Change(weight, tuple(((i,), found) for i, found in norms if found is not None))

    @cached_property
    def _joint_norms(self) -> dict[int, Integers]:
        found = {}
        for k, Q in self.joint.items():
            found[k] = np.abs(Q).sum(axis=0).reshape([self.workload.sizes[i] for i in self.factors_of(k)])
        return found

    def missed(self, k: int) -> Dense:
        """For every query of a table the most that it is off for a record."""
        own = list(self.factors_of(k).values())
        if k in self.joint:
            F = _product(self.workload, k)
            off = np.abs(F - self.joint[k] / self.joint_scale) + 8 * np.finfo(float).eps * np.abs(F)
            return np.asarray(off.max(axis=1)).reshape(self.shape(k))
        kept = whole = np.ones(())
        for one in own:
            kept, whole = np.multiply.outer(kept, one.tops), np.multiply.outer(whole, one.tops + one.missed)
        return np.asarray(whole - kept)


def _product(batch: KroneckerWorkload, k: int) -> Dense:
    return kron([factor.matrix for factor in batch.factors_of(k).values()])


def quantise_results(batch: KroneckerWorkload, bits: int) -> IntegerResults:
    """All queries on one lattice, the largest entry in so many bits."""
    rough = [np.array([denominator(factor) is None for factor in own], dtype=bool) for own in batch.factors]
    rounded = np.array([rough[i][c] for i, c in zip(batch.columns.tolist(), batch.chosen.tolist(), strict=True)])
    ends = np.concatenate([[0], np.cumsum(rounded)])[batch.starts]
    many = np.diff(ends)  # factors of every table that are rounded
    together = [k for k in np.flatnonzero(many > 1).tolist() if _entries(batch, k) <= MOST_JOINT]
    many[together] = 0
    each = max(1, (bits - SPARE) // max(1, int(many.max())))
    factors = tuple(tuple(quantise_factor(factor, each) for factor in own) for own in batch.factors)
    made = IntegerResults(batch, factors, np.ones(len(batch.tables), dtype=np.int64))
    tables = range(len(made))
    top = max(prod(float(one.tops.max(initial=0.0)) for one in made.factors_of(k).values()) for k in tables) or 1.0
    fine = 2.0**bits / top * LESS
    weights = np.maximum(1, np.rint(fine / np.array([made.scale(k) for k in tables]))).astype(np.int64)
    weights[together] = 1
    joint = {k: np.rint(_product(batch, k) * fine).astype(np.int64) for k in together}
    return replace(made, weights=weights, joint=joint, joint_scale=fine)


def _entries(batch: KroneckerWorkload, k: int) -> int:
    return prod(factor.rows * factor.size for factor in batch.factors_of(k).values())
