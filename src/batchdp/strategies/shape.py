"""A shape of noise: groups of measurements, each with its share of ε, and what is known of their noise.

The noise of a group at ε = 1 is z = G b / share with G ~ Gamma(k) and b on the boundary of its body K, the hull of ±
whatever one record can add to its measurements. It has no closed form. What is known of it is a sample: points b in
random directions d, weighted by the part of the body that lies there, ‖d‖_K^-k. No privacy rests on the sample: bodies
are made from the columns themselves.

**What one record can add.** In one block of cells it adds a column. It has at most one cell in each of several blocks,
so it adds a sum of columns, at most one from every block, over blocks that can meet in a record (`joint_columns`). An
amount between two cells adds a mixture of their two columns, which the hull holds because it is convex.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cholesky, eigvalsh, qr, solve_triangular

from batchdp.errors import StrategyError, check_finite, check_whole
from batchdp.linalg.l1_ball import gauges
from batchdp.linalg.matrix import Dense, Plain, dense
from batchdp.privacy import LAPLACE

WRITTEN = re.compile(r"[0-9]{1,18}(/[1-9][0-9]{0,17})?")
"""A share in a file."""
ROUNDING = 1e-9
"""Of weights that add up to 1, in floats."""
MOST_JOINT = 100_000
"""Sums of columns, one per block, that a body is made of at the most."""
CLOSE, MOST_ROUNDS = 1e-2, 300
"""How far the farthest column may be outside of an ellipsoid, squared and relative: it is a proposal and no more."""
LOOKED, OFF = 16, 1e-4
"""Points of a sample that are compared with the body, and how far their norms may be from 1: columns of a lattice of 20
bits are not those that were sampled."""
DIRECTIONS, TRIES = 1000, 3
"""Of a new sample, and how many are made before one is refused: that of a thin body may be off by chance."""
MEAN, LARGEST = (0.67, 1.5), 6.0
"""Variances of a new sample over those of the one in the file: on average, and in the worst direction."""

Sets = tuple[tuple[int, ...], ...]
"""Sets of blocks, by their numbers."""


@dataclass(frozen=True)
class ShapeLimits:
    """Limits of `shape="any"`; a batch beyond them is answered by the best pair."""

    rank: int = 16
    """The most measurements that may share one body. Each further one makes a draw take two or three times as long."""
    groups: int = 3
    """The most bodies among which the measurements of one block may be divided."""
    columns: int = 5000
    """The most different columns of what is measured that a body may be built from."""
    seconds: float = 60.0
    """How many seconds one draw of all noise may take, as the plan estimates it."""
    directions: int = 4096
    """How many directions of the body are sampled for its error, which is then known to one over their root."""
    clearly: float = 3.0
    """A shape is taken if it is better than the best pair by this many standard errors of its simulated error."""

    def __post_init__(self) -> None:
        checked: dict[str, int | float] = {
            name: check_whole(name, getattr(self, name), least)
            for name, least in (("rank", 1), ("groups", 1), ("columns", 1), ("directions", 100))
        }
        checked["seconds"] = check_finite("seconds", self.seconds, above=0)
        checked["clearly"] = check_finite("clearly", self.clearly, least=0)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


DEFAULT = ShapeLimits()


def joint_columns(by_block: Sequence[NDArray[Any]], meetings: Iterable[Iterable[int]]) -> NDArray[Any]:
    """Every change of some measurements by one record, each once and none of them nothing.

    A record has at most one cell in every block, so it adds a sum of columns, none or one from each of the blocks that
    can meet in it. Numbers are added as they are: whole numbers of any size stay exact.

    Args:
        by_block: for every block its columns, one measurement per row.
        meetings: sets of blocks that one record can have a cell in at once.
    """
    own = [_distinct(columns) for columns in by_block]
    found = [own[0][:, :0]]
    for met in meetings:
        sums = np.zeros((len(own[0]), 1), dtype=own[0].dtype)
        for block in met:
            if sums.shape[1] * (1 + own[block].shape[1]) > MOST_JOINT:
                raise StrategyError(f"records in several blocks can add more than {MOST_JOINT} different sums")
            options = np.hstack([np.zeros_like(own[block], shape=(len(sums), 1)), own[block]])
            sums = (sums[:, :, None] + options[:, None, :]).reshape(len(sums), -1)
        found.append(sums)
    return _distinct(np.hstack(found))


def _distinct(columns: NDArray[Any]) -> NDArray[Any]:
    """Columns that are not nothing, each once."""
    columns = columns[:, np.any(columns != 0, axis=0)]
    if columns.dtype != object:
        return np.unique(columns, axis=1)
    kept = sorted(set(map(tuple, columns.T.tolist())))
    return np.array(kept, dtype=object).reshape(len(kept), len(columns)).T


def by_blocks(matrix: NDArray[Any], blocks: Sequence[int]) -> list[NDArray[Any]]:
    """The columns of every block; refused where these are not all."""
    if sum(blocks) != matrix.shape[1]:
        raise StrategyError(f"shape: blocks of {sum(blocks)} cells are not {matrix.shape[1]} columns")
    return np.split(matrix, np.cumsum(blocks)[:-1], axis=1)


def rounded(columns: Dense) -> tuple[Dense, Dense]:
    """L and C with columns = C L, where the smallest ellipsoid around ± the columns of L is nearly the unit ball."""
    k, c = columns.shape
    Q, R = qr(columns.T, mode="economic", check_finite=False)  # no condition number is squared
    G, weights = np.ascontiguousarray(Q.T), np.full(c, 1 / c)
    for _ in range(MOST_ROUNDS):
        M = (G * weights) @ G.T
        lengths = np.einsum("ij,ij->j", G, np.linalg.solve(M, G))
        weights = weights * lengths / k
        if lengths.max() <= k * (1 + CLOSE):
            break
    H = cholesky((G * weights) @ G.T, lower=True, check_finite=False)
    L = solve_triangular(H, G, lower=True, check_finite=False)
    top = float(np.linalg.norm(L, axis=0).max())
    return np.asarray(L / top), np.asarray(R.T @ H * top)


def sampled(columns: Dense, directions: int, rng: np.random.Generator) -> tuple[Dense, Dense]:
    """Points of the boundary of the hull of ± columns in random directions, and how much of it lies in each."""
    k = columns.shape[0]
    d = rng.standard_normal((directions, k))
    d /= np.linalg.norm(d, axis=1)[:, None]
    norms = gauges(columns, d)
    logs = -k * np.log(norms)
    weights = np.exp(logs - logs.max())
    return d / norms[:, None], weights / weights.sum()


@dataclass(frozen=True, eq=False)
class Group:
    """Measurements that share a body.

    Args:
        share: of ε.
        points: of the boundary of K, one per row and one measurement per column, in the measurements' units.
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

    One record moves every group by at most its body, whatever blocks it has a cell in, so all of them lose at most the
    sum of their shares of ε.

    Args:
        groups: in the order of the measurements.
        seconds: what a draw of all noise takes, estimated when it was planned.
        blocks: how many cells each block has; nothing where there is one.
        meetings: sets of blocks that one record can have a cell in at once.
    """

    groups: tuple[Group, ...]
    seconds: float = 0.0
    blocks: tuple[int, ...] = ()
    meetings: Sets = ()

    def __post_init__(self) -> None:
        shares = sum((group.share for group in self.groups), Fraction(0))
        if not self.groups or shares > 1:
            raise StrategyError(
                f"the shares of ε of {len(self.groups)} groups add up to {shares}; they must to at most 1"
            )
        if {block for met in self.meetings for block in met} != set(range(len(self.blocks))):
            raise StrategyError(f"shape: meetings={self.meetings} do not name each of {len(self.blocks)} blocks")

    @property
    def ranks(self) -> tuple[int, ...]:
        """Measurements of every group."""
        return tuple(group.rank for group in self.groups)

    @property
    def parts(self) -> list[tuple[slice, Group]]:
        """Every group with its measurements."""
        ends = np.cumsum(self.ranks).tolist()
        return [(slice(end - group.rank, end), group) for end, group in zip(ends, self.groups, strict=True)]

    def columns(self, measure: Dense) -> Iterator[Dense]:
        """For every group the different changes of its measurements by one record, of which its body is the hull."""
        blocks, meetings = (self.blocks, self.meetings) if self.blocks else ((measure.shape[1],), ((0,),))
        for own, _ in self.parts:
            yield joint_columns(by_blocks(measure[own], blocks), meetings)

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
        header: dict[str, Any] = {"shares": [str(group.share) for group in self.groups], "seconds": self.seconds}
        if self.blocks:
            header |= {"blocks": list(self.blocks), "meetings": [list(met) for met in self.meetings]}
        return header, arrays

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
        blocks = tuple(check_whole("blocks", size, 1) for size in header.get("blocks", ()))
        meetings = tuple(
            tuple(check_whole("meetings", block, 0) for block in met) for met in header.get("meetings", ())
        )
        return cls(tuple(groups), check_finite("seconds", header["seconds"], least=0), blocks, meetings)

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


def check_sample(shape: Shape, columns: Iterable[Dense]) -> None:
    """Refuse a sample that is not of the hulls of ± the columns of the groups: standard errors follow from it alone.

    Places and directions are drawn afresh, so that nobody can prepare a file for them.
    """
    for group, own in zip(shape.groups, columns, strict=True):
        if own.shape[1] < group.rank:
            raise StrategyError(f"shape: {own.shape[1]} columns span no body of rank {group.rank}")
        rng = np.random.default_rng()
        places = rng.integers(len(group.points), size=LOOKED)
        on_boundary = np.allclose(gauges(own, group.points[places]), 1.0, atol=OFF)
        if not on_boundary or not any(_alike(group, own, rng) for _ in range(TRIES)):
            raise StrategyError("shape: its sample is not of the body that it says")


def _alike(group: Group, columns: Dense, rng: np.random.Generator) -> bool:
    """Whether a new sample has about the same variances."""
    L, C = rounded(columns[:, np.any(columns, axis=0)])
    points, weights = sampled(L, DIRECTIONS, rng)
    points = points @ C.T
    said, seen = ((p.T * w) @ p for p, w in ((group.points, group.weights), (points, weights)))
    try:
        ratios = eigvalsh(seen, said)
    except np.linalg.LinAlgError:  # no variance at all in some direction
        return False
    return bool(MEAN[0] < ratios.mean() < MEAN[1] and ratios.max() < LARGEST)
