"""A shape of noise: groups of measurements, each with its share of ε, and what is known of their noise.

The noise of a group at ε = 1 is z = G b / share with G ~ Gamma(k) and b on the boundary of its body K, the hull of ±
its columns. It has no closed form. What is known of it is a sample: points b in random directions d, weighted by the
part of the body that lies there, ‖d‖_K^-k. No privacy rests on the sample: bodies are made from the columns themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from batchdp.checks import check_finite
from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, Plain, dense
from batchdp.privacy import LAPLACE

WRITTEN = re.compile(r"[0-9]{1,18}(/[1-9][0-9]{0,17})?")
"""A share in a file."""
ROUNDING = 1e-9
"""Of weights that add up to 1, in floats."""


@dataclass(frozen=True, eq=False)
class Group:
    """Measurements that share a body.

    Args:
        share: of ε.
        points: of the boundary of K, one a row and one measurement a column, in the measurements' units.
        weights: of the points, 1 in all.
    """

    share: Fraction
    points: Dense
    weights: Dense

    def __post_init__(self) -> None:
        points, weights = np.asarray(self.points, np.float64), np.asarray(self.weights, np.float64)
        if not isinstance(self.share, Fraction) or not 0 < self.share <= 1:
            raise StrategyError(f"share={self.share!r} must be a fraction above 0 and at most 1")
        if points.ndim != 2 or weights.shape != points.shape[:1] or 0 in points.shape:
            raise StrategyError(f"points {points.shape} and weights {weights.shape} of a group do not fit together")
        if not (np.isfinite(points).all() and np.all(weights >= 0) and abs(weights.sum() - 1) <= ROUNDING):
            raise StrategyError("the sample of a group is not of finite points with weights that add up to 1")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)

    @property
    def rank(self) -> int:
        """k: how many measurements share the body."""
        return int(self.points.shape[1])

    @property
    def moment(self) -> float:
        """E G² / share²: from squares of boundary points to squares of the noise at ε = 1."""
        return self.rank * (self.rank + 1) / float(self.share) ** 2

    @cached_property
    def covariance(self) -> Dense:
        """Of the noise at ε = 1."""
        return np.asarray(self.moment * (self.points.T * self.weights) @ self.points)

    def spread(self, reconstruct: Dense, importance: Dense | None = None) -> float:
        """The standard error of the total Σ importance · variance that the sample says of B z."""
        squares = np.square(self.points @ reconstruct.T)
        own = self.moment * (squares.sum(axis=1) if importance is None else squares @ importance)
        return float(np.linalg.norm(self.weights * (own - self.weights @ own)))


@dataclass(frozen=True, eq=False)
class Shape:
    """Noise in the shape of the batch: groups of consecutive measurements, which share ε.

    Args:
        groups: in the order of the measurements.
        seconds: what a draw of all noise takes, estimated when it was planned.
    """

    groups: tuple[Group, ...]
    seconds: float = 0.0

    def __post_init__(self) -> None:
        shares = sum((group.share for group in self.groups), Fraction(0))
        if not self.groups or shares > 1:
            raise StrategyError(
                f"the shares of ε of {len(self.groups)} groups add up to {shares}; they must to at most 1"
            )

    @property
    def ranks(self) -> tuple[int, ...]:
        """Measurements of every group."""
        return tuple(group.rank for group in self.groups)

    @property
    def parts(self) -> list[tuple[slice, Group]]:
        """Every group with its measurements."""
        ends = np.cumsum(self.ranks).tolist()
        return [(slice(end - group.rank, end), group) for end, group in zip(ends, self.groups, strict=True)]

    @cached_property
    def covariance(self) -> Dense:
        """Of the noise of all measurements at ε = 1."""
        return np.asarray(block_diag(*(group.covariance for group in self.groups)))

    def row_squares(self, reconstruct: Plain | Any) -> Dense:
        """What ‖B_i‖² is to Laplace noise of sensitivity 1: the variance of B_i z at ε = 1 over that of such noise."""
        B = dense(reconstruct)
        return np.asarray(np.einsum("ij,ij->i", B @ self.covariance, B) / LAPLACE.variance_at_one)

    def relative_spread(self, reconstruct: Plain | Any, importance: Dense | None = None) -> float:
        """The standard error of the total expected squared error, relative to it: it is simulated."""
        B, squares = dense(reconstruct), self.row_squares(reconstruct)
        total = LAPLACE.variance_at_one * float(squares.sum() if importance is None else importance @ squares)
        spreads = [group.spread(B[:, own], importance) for own, group in self.parts]
        return float(np.linalg.norm(spreads)) / total if total > 0 else 0.0

    def scaled(self, factor: float) -> Shape:
        """The same for measurements in other units."""
        return replace(self, groups=tuple(replace(one, points=factor * one.points) for one in self.groups))

    def written(self) -> tuple[dict[str, Any], dict[str, Dense]]:
        """For files: a header and arrays of numbers."""
        arrays: dict[str, Dense] = {}
        for number, group in enumerate(self.groups):
            arrays |= {f"shape_{number}_points": group.points.ravel(), f"shape_{number}_weights": group.weights}
        return {"shares": [str(group.share) for group in self.groups], "seconds": self.seconds}, arrays

    @classmethod
    def read(cls, header: Mapping[str, Any], numbers: Callable[[str], Dense]) -> Shape:
        """From a file, where anything can stand; `numbers` gives an array by its name."""
        groups = []
        for number, share in enumerate(header["shares"]):
            weights = numbers(f"shape_{number}_weights")
            points = numbers(f"shape_{number}_points").reshape(len(weights), -1)
            if not WRITTEN.fullmatch(str(share)):
                raise StrategyError("shape: a share must be a plain fraction")
            groups.append(Group(Fraction(str(share)), points, weights))
        return cls(tuple(groups), check_finite("seconds", header["seconds"], least=0))

    def __str__(self) -> str:
        """As certificates have it: the measurements of every group, its share of ε, and a digest of the sample."""
        digest = hashlib.sha256()
        for group in self.groups:
            digest.update(np.ascontiguousarray(group.points).tobytes() + group.weights.tobytes())
        return f"{self.groups_text}; sample {digest.hexdigest()[:16]}"

    @property
    def groups_text(self) -> str:
        """The measurements of every group, and its share of ε."""
        return "; ".join(f"{group.rank} measurements with {group.share} of ε" for group in self.groups)
