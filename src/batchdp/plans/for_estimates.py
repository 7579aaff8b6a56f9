"""Weights of tables for plans whose answers will be denoised: chosen by simulation on invented populations.

Denoised tables lean on the smaller ones below them, and large tables say little beyond these. So small tables are worth
more than their own errors, and large ones less. Tables of k columns weigh `orders[k]` on average, and those of several
columns go with (cells)^−by_size. Both are tried on invented populations of the batch's sizes, mixtures of
classes with skewed columns, of about so many records: margins on the simplex, larger tables shrunk toward what their
faces imply with the best strength. That is the plainest denoiser; the better ones of a release rank plans as it does.
Nothing here looks at data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from scipy.special import wrightomega

from batchdp.errors import PlanError, check_whole
from batchdp.linalg.matrix import Dense, Indices
from batchdp.linalg.threads import one_thread
from batchdp.optimizer import optimize
from batchdp.privacy import Budget
from batchdp.strategies.residual.strategy import closure, is_whole, least_sum
from batchdp.text import Progress
from batchdp.workloads.kronecker import KroneckerWorkload

ORDERS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 5000.0)
"""Weights of tables of fewer columns than the largest."""
BY_SIZE = (0.0, 0.4, 0.75, 1.1, 1.5)
STRENGTHS = (0.03, 0.3, 1.0, 3.0, 30.0)
"""λ of the shrinking; the best for every table is taken."""
POPULATIONS = 2
CLASSES = 12
MOST_RECORDS = 100_000
"""That are invented; noise is scaled where there will be more."""
MOST_CELLS = 150_000
"""Of the tables that are simulated for every population."""
MOST_TABLES = 20_000
"""Beyond which nothing is simulated."""
MOST_ROUNDS = 4
SEARCHED = 0.2
"""Seconds that a Laplace strategy is looked for by every choice."""
FITTED = 10
"""Rounds of proportional fitting of a table to its faces."""
LEAST = 1e-9
Columns = tuple[int, ...]
NOTHING = (
    "Nothing is weighed for estimates: that needs whole tables of one column and of several, such as --marginals 2 "
    "asks for. Raw and denoised answers are those of the plan without."
)


@dataclass(frozen=True)
class ForEstimates:
    """How much tables count in a plan for estimates: what was asked, and what simulations chose.

    Args:
        records: roughly how many there will be.
        orders: the weights of tables of 0, 1, 2, … columns; none where there is nothing to weigh.
        by_size: how much less large tables count, as a power of their cells.
        distance: the L1 distance over the number of records that simulations had, the mean over tables.
        without: the same by the weights that a plan has without this.
        raw_loss: by how many times the plan makes the standard errors of raw answers larger, all tables together.
    """

    records: int
    orders: tuple[float, ...] = field(default=(), compare=False)
    by_size: float = field(default=0.0, compare=False)
    distance: float = field(default=0.0, compare=False)
    without: float = field(default=0.0, compare=False)
    raw_loss: float = field(default=1.0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", check_whole("records", self.records, 1, PlanError))
        object.__setattr__(self, "orders", tuple(float(one) for one in self.orders))  # from a file

    def weights(self, batch: KroneckerWorkload) -> Dense | None:
        """Of the tables of a batch; None where there is nothing to weigh."""
        return weights_by(self.orders, self.by_size, batch) if self.orders else None

    def sentence(self) -> str:
        """What was chosen, and what raw answers lose by it."""
        if not self.orders:
            return NOTHING
        return (
            f"Weighed for estimates from some {self.records:,} records: on invented populations denoised tables were "
            f"off by {self.distance:.3g} of all records on average, {self.without:.3g} by the plan without. Raw "
            f"answers lose by it: their standard errors are {self.raw_loss:.3g} times those of the plan without (root "
            "mean square, every table alike)."
        )


def weights_by(orders: Sequence[float], by_size: float, batch: KroneckerWorkload) -> Dense:
    """Of every table by its columns and cells."""
    many = np.diff(batch.starts)
    found = np.where(many > 1, np.power(batch.table_sizes(), -by_size), 1.0)
    for k in np.unique(many).tolist():
        found[many == k] *= orders[k] / found[many == k].mean()
    return found


def can_be_weighed(workload: Any) -> bool:
    """Whether a batch has whole tables of one column and of several."""
    batch = getattr(workload, "structure", None)
    if batch is None or not is_whole(batch) or len(batch.tables) > MOST_TABLES:
        return False
    many = np.diff(batch.starts)
    return bool(many.max() > 1 and (many == 1).any())


@one_thread
def choose_weights(
    batch: KroneckerWorkload,
    budget: Budget,
    records: int,
    usual: Dense,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> ForEstimates:
    """The weights with the least simulated distance for the tables of several columns, one after the other.

    Args:
        batch: whole tables; `can_be_weighed` says whether there is anything to choose.
        budget: for one record.
        records: roughly how many there will be.
        usual: the weights that the batch has without this.
        seed: of the invented populations and their noise.
        progress: called with (share done, what is being done).
    """
    rng, many = np.random.default_rng(seed), np.diff(batch.starts)
    tables = _simulated(batch, rng)
    if not tables:
        return ForEstimates(records)
    worlds = [_World(batch.sizes, records, tables, np.random.default_rng([seed, k])) for k in range(POPULATIONS)]
    noise_of, known = VARIANCES[budget.noise.name](batch, budget), {}

    def distance(weights: Dense) -> float:
        t = noise_of(weights)
        return float(np.mean([world.distance(t) for world in worlds]))

    def tried(at: tuple[float, ...]) -> float:
        if at not in known:
            known[at] = distance(weights_by((at[0], *at[:-1], 1.0), at[-1], batch))
            if progress is not None:
                progress(min(0.95, len(known) / 60), "Weighing for estimates, on invented populations")
        return known[at]

    best = (*[1.0] * (int(many.max()) - 1), 0.0)  # of one column, two, …, and by size
    for _ in range(MOST_ROUNDS):
        before = best
        for place in range(len(best)):
            choices = BY_SIZE if place == len(best) - 1 else ORDERS
            best = min(((*best[:place], one, *best[place + 1 :]) for one in choices), key=tried)
        if best == before:
            break
    return ForEstimates(records, (best[0], *best[:-1], 1.0), best[-1], known[best], distance(usual))


def _simulated(batch: KroneckerWorkload, rng: np.random.Generator) -> list[Columns]:
    """Tables of several columns: all, or some where they have very many cells."""
    asked = {tuple(i for i in table.columns if batch.sizes[i] > 1) for table in batch.tables}
    large = sorted(own for own in asked if len(own) > 1)
    order = [large[k] for k in rng.permutation(len(large))]
    ends = np.cumsum([prod(batch.sizes[i] for i in own) for own in order])
    kept = [own for own, end in zip(order, ends, strict=True) if end <= MOST_CELLS]
    least = min(large, key=lambda own: prod(batch.sizes[i] for i in own), default=())
    return kept or [own for own in [least] if own and prod(batch.sizes[i] for i in own) <= 20 * MOST_CELLS]


# ── How large the noise is, by the weights.


def _gaussian(batch: KroneckerWorkload, budget: Budget) -> Callable[[Dense], dict[Columns, float]]:
    """t of every component, by the best plan for some weights."""
    found = closure(batch)
    columns = [found.columns_of(a) for a in range(found.size)]

    def variances(weights: Dense) -> dict[Columns, float]:
        shares, _ = least_sum(found, weights)
        return dict(zip(columns, (budget.variance(1.0) * found.freedom / shares).tolist(), strict=True))

    return variances


def _laplace(batch: KroneckerWorkload, budget: Budget) -> Callable[[Dense], dict[Columns, float]]:
    """t of every component, from the errors of the tables that a short search finds for some weights.

    A cell of a table over T has the variance Σ_A (N_A / N_T)² t_A D_A / N_A, so that smaller tables come first.
    """
    numbers = {table.columns: t for t, table in enumerate(batch.tables)}
    sets = sorted({own for C in numbers for k in range(len(C) + 1) for own in combinations(C, k)}, key=len)
    cells = {C: prod(batch.sizes[i] for i in C) for C in sets}
    freedom = {C: prod(1 - 1 / batch.sizes[i] for i in C) for C in sets}

    def variances(weights: Dense) -> dict[Columns, float]:
        found = optimize(replace(batch, weights=weights), privacy=budget.noise.privacy, seconds=SEARCHED)
        errors = budget.variance(1.0) * found.mean_variances()
        t: dict[Columns, float] = {}
        for C in sets:
            below = (A for k in range(len(C)) for A in combinations(C, k))
            rest = sum((cells[A] / cells[C]) ** 2 * t[A] * freedom[A] for A in below)
            own = errors[numbers[C]] - rest if C in numbers else 0.0
            t[C] = max(float(own), 0.0) / freedom[C] if freedom[C] > 0 else 0.0
        return t

    return variances


VARIANCES: Mapping[str, Callable[[KroneckerWorkload, Budget], Callable[[Dense], dict[Columns, float]]]] = {
    "Gaussian": _gaussian,
    "Laplace": _laplace,
}


# ── Invented populations.


class _World:
    """An invented population with noise of variance 1, which is the same for all weights that are tried."""

    def __init__(self, sizes: Sequence[int], records: int, tables: Sequence[Columns], rng: np.random.Generator) -> None:
        self.tables, self.count = tables, min(records, MOST_RECORDS)
        self.scale = self.count / records
        codes = _invent(sizes, self.count, rng)
        sets = {own for A in tables for k in range(1, len(A) + 1) for own in combinations(A, k)}
        self.truth = {C: _count(codes, sizes, C) for C in sorted(sets)}
        self.noise = {C: _own(rng.standard_normal(x.shape)) for C, x in self.truth.items()}

    def distance(self, t: Mapping[Columns, float]) -> float:
        """The mean over tables of the L1 distance of denoised to true ones, over the number of records."""
        found: dict[Columns, Dense] = {}
        for C in sorted(self.truth, key=len):
            found[C] = self._fit(C, max(self.scale * t[C] ** 0.5, LEAST), found)
        return float(np.mean([np.abs(found[A] - self.truth[A]).sum() for A in self.tables])) / self.count

    def _fit(self, C: Columns, s: float, smaller: Mapping[Columns, Dense]) -> Dense:
        truth, noise = self.truth[C], s * self.noise[C]
        if len(C) == 1:
            return _simplex(truth + noise, self.count)
        faces = [smaller[C[:axis] + C[axis + 1 :]] for axis in range(len(C))]
        P = np.maximum(_implied(faces, truth.shape, self.count), LEAST * self.count / truth.size)
        y = P + _own(truth + noise - P)
        tried = (P, *_shrunk(y, P, s, self.count))
        return min(tried, key=lambda x: float(np.abs(x - truth).sum()))


def _invent(sizes: Sequence[int], count: int, rng: np.random.Generator) -> Indices:
    """Codes of records of a dozen classes with skewed columns: record × column."""
    own = np.sort(rng.choice(CLASSES, count, p=rng.dirichlet(np.ones(CLASSES))))
    many, columns = np.bincount(own, minlength=CLASSES), []
    for n in sizes:
        base = np.arange(1, n + 1.0) ** -rng.uniform(0.3, 2.0)
        base = rng.permutation(base) if rng.random() < 0.5 else base
        within = rng.dirichlet(np.maximum(base / base.sum() * n * rng.uniform(0.3, 3.0), 1e-3), size=CLASSES)
        columns.append(np.concatenate([rng.choice(n, k, p=p) for k, p in zip(many.tolist(), within, strict=True)]))
    return np.column_stack(columns)


def _count(codes: Indices, sizes: Sequence[int], columns: Columns) -> Dense:
    """The table of some columns."""
    shape = tuple(sizes[i] for i in columns)
    place = np.ravel_multi_index(tuple(codes[:, i] for i in columns), shape)
    return np.bincount(place, minlength=prod(shape)).reshape(shape).astype(np.float64)


# ── The plainest denoiser.


def _own(table: Dense) -> Dense:
    """What a table says beyond its margins."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _implied(faces: Sequence[Dense], shape: tuple[int, ...], total: float) -> Dense:
    """The table that says nothing beyond its faces."""
    found = np.full(shape, total / prod(shape))
    for _ in range(1 if len(shape) == 2 else FITTED):
        for axis, face in enumerate(faces):
            now = found.sum(axis=axis)
            found = found * np.expand_dims(np.divide(face, now, out=np.zeros_like(now), where=now > 0), axis)
    return found


def _shrunk(y: Dense, target: Dense, s: float, total: float) -> Iterator[Dense]:
    """x with x − y + c log(x/P) = 0 for every strength, scaled to the total."""
    for strength in STRENGTHS:
        c = strength * s
        x = c * wrightomega(np.maximum(y / c + np.log(target / c), -700.0))
        yield x * (total / max(float(x.sum()), 1e-300))


def _simplex(values: Dense, total: float) -> Dense:
    """The closest values that are not negative and have this total."""
    falling = np.sort(values)[::-1]
    lowered = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - lowered[np.flatnonzero(falling > lowered)[-1]], 0.0))
