"""What no strategy is below: by products of measures, by a sample of records, by single tables.

For every distribution μ of records, with w a record's column of W and S = E_μ[w wᵀ], no Gaussian strategy has an error
below (tr S^½)² at ρ = ½. For a product of columns' measures S follows from the factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.groups import (
    MOST_CLASSES,
    TooManyClassesError,
    Views,
    assemble,
    assembly_price,
    blocks_of,
    columns_in,
    freedom,
    likeness,
    separate,
    solve_group,
    view_of,
)
from batchdp.optimizer.residual.nuclear import norm_of_pairs
from batchdp.optimizer.residual.search import solve_table
from batchdp.optimizer.residual.solver import certify
from batchdp.optimizer.residual.splits import Batch, GroupTerms, Left, Split, TableWeights, Where
from batchdp.strategies.account import FLOPS, UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, ColumnView, averaged, without_rounding
from batchdp.strategies.residual.terms import kron

ANGLES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, np.pi / 2)
"""From F μ to what it has outside of the rest's range."""
NEAR = 1.01
"""Times a limit, where no better one is sought."""
RECORDS = 300
"""That are drawn."""
SAMPLE_SECONDS = 1.5e-3
"""Nominal seconds of their inner products, for every factor of a table; measured."""
MOST_TERMS_ALONE = 2000


def limit_of(
    batch: Batch,
    terms: TableWeights,
    measures: Sequence[Mapping[int, Dense]],
    account: Account = UNLIMITED,
    seed: int = 0,
    known: float = np.inf,
) -> float:
    """The best limit that is found: by products of each of the measures, by a sample of records, by single tables.

    It ends where an error that is `known` to be possible is near.
    """
    found, lasting = 0.0, account.lasting_share()
    uniform = {i: batch.uniform(i) for i in range(len(batch.columns))}
    between = {i: np.mean([mu.get(i, uniform[i]) for mu in measures], axis=0) for i in batch.wide() if measures}
    for mu in (*measures, between) if measures else ():
        if (account.over() and found > 0) or found * NEAR >= known:
            return found
        value = in_full(batch, terms, mu, lasting)
        if value == 0 and mu is not between and not batch.joint:
            value = _by_angles(batch, terms, mu, account)
        found = max(found, value)
    for kinds, weight in list(terms.items())[:MOST_TERMS_ALONE] if found == 0 else []:
        with suppress(TooManyClassesError):
            found = max(found, solve_table(batch, kinds, weight, account=lasting).lower)
    if not account.over() and found * NEAR < known and (found == 0 or len(batch.wide()) > 0):
        found = max(found, by_sample(batch, terms, {**uniform, **(measures[0] if measures else {})}, seed, lasting))
    return found


def _by_angles(batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], account: Account) -> float:
    """The best of `by_products`."""
    best, lasting = 0.0, account.lasting_share()
    for angle in ANGLES:
        if account.over() and best > 0:
            break
        try:
            value = by_products(batch, terms, measures, angle, lasting)
        except TooManyClassesError:
            break
        if value < best:  # the angles have one best between them
            break
        best = value
    return best


def by_products(
    batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], angle: float, account: Account = UNLIMITED
) -> float:
    """The limit of a product of columns' measures; the columns without one are taken uniformly."""
    wide = {i: measures.get(i, batch.uniform(i)) for i in batch.wide()}
    first = {j: twins[0] for twins in batch.twins for j in twins}
    once = {(first[i], mu.tobytes()): (i, mu) for i, mu in wide.items()}
    each = {same: _turned(batch.columns[i], mu, angle) for same, (i, mu) in once.items()}
    turned = {i: each[first[i], mu.tobytes()] for i, mu in wide.items()}
    total, known = 0.0, dict[Any, float]()
    ratios = {(i, kind): ratio for i, (_, own) in turned.items() for kind, ratio in own.items()}
    for kept, own in Split(batch, wide, ratios).groups(terms):
        looked = {i for left in own for i, _ in left if isinstance(i, int) and i not in wide}
        views: Views = {i: turned[i][0] if i in kept else batch.view(i, None) for i in sorted(looked.union(kept))}
        alike, columns = likeness(own, views)
        same = alike, tuple(wide[i].tobytes() if i in wide else b"" for i in columns)
        if same not in known:
            rest, apart = separate(own, views)
            value = 1.0
            for i, kind in apart:
                value *= _nuclear({((i, kind),) if kind else (): 1.0}, {i: views[i]}, wide, account)
            value *= _nuclear(rest, {i: one for i, one in views.items() if i not in dict(apart)}, wide, account)
            known[same] = value
        total += known[same]
    return total**2


def _turned(column: Column, mu: Dense, angle: float) -> tuple[ColumnView, dict[int, float]]:
    """What is left of a column's factors, and by what their squared averages are to be multiplied."""
    rows, ratios = [], {}
    for kind, F in enumerate(column.rows):
        mean = F @ mu
        left = F - mean[:, None]
        size = float(np.linalg.norm(mean))
        if kind == 0 or size <= 1e-12 * float(np.abs(F).max(initial=0.0)):
            rows.append(without_rounding(left, np.abs(F).max(initial=0.0)))
            continue
        U, sigma, _ = np.linalg.svd(left * np.sqrt(mu), full_matrices=False)
        U = U[:, sigma > 1e-10 * sigma[0]] if sigma[0] > 0 else U[:, :0]
        h = mean / size
        outside = h - U @ (U.T @ h)
        outside -= U @ (U.T @ outside)
        if float(np.linalg.norm(outside)) > 1e-6:
            h = np.cos(angle) * h + np.sin(angle) * outside / float(np.linalg.norm(outside))
            h /= float(np.linalg.norm(h))
        rows.append(without_rounding(left - np.outer(h, h @ left), np.abs(F).max()))
        ratios[kind] = float(h @ mean) ** 2 / size**2
    return ColumnView(tuple(rows), np.zeros(0), column.spread, column.counts), ratios


def _nuclear(terms: GroupTerms, views: Views, measures: Mapping[int, Dense], account: Account) -> float:
    """The sum of the blocks' nuclear norms at the product measure."""
    shared = [i for i, own in views.items() if isinstance(i, int) and own.rows is not None]
    if not shared:
        return float(np.sqrt(solve_group(terms, views, account=account).upper))
    if np.prod([view_of(views, i).classes for i in shared]) > MOST_CLASSES:
        raise TooManyClassesError
    v = kron(measures[i][None] for i in shared)[0]
    total = 0.0
    for key, own in blocks_of(terms, views, shared).items():
        made = assemble(key, own, views, shared)
        account.charge(2 * assembly_price(made))
        block = made.block
        there = block.column >= 0
        weights = np.bincount(block.column[there], v[there], minlength=block.R.shape[1])
        total += float(np.linalg.svd(block.R * np.sqrt(weights), compute_uv=False).sum())
    return total


MOST_QUERIES = 3000
"""Of a block whose nuclear norm is taken in full."""
EIGENVALUES = 3.0
"""Operations that the eigenvalues of a symmetric matrix take, as a multiple of its rows' third power; measured."""


def in_full(batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], account: Account = UNLIMITED) -> float:
    """The limit of a product of columns' measures, from E[w wᵀ] itself; 0 where that is too large."""
    wide = {i: measures.get(i, batch.uniform(i)) for i in batch.wide()}
    split = Split(batch, {})
    ((_, own),) = split.groups(terms)
    views = split.views((), own)
    total = 0.0
    for key, block in blocks_of(own, views, []).items():  # columns that a table does not look at are not asked
        asked = {left: weight for left, weight in block.items() if weight > 0}
        root = norm_of_pairs([_table(left, weight, views) for left, weight in asked.items()], wide, account)
        root = _of_queries(asked, views, wide, account) if root is None else root
        if root is None:
            return 0.0
        times, norm = freedom(key, views)
        mass = float(np.prod([wide[i][o] if i in wide else 1.0 for i, o in key]))
        total += float(np.sqrt(times * norm * mass)) * root
    return total**2


def _table(left: Left, weight: float, views: Views) -> tuple[tuple[int, ...], tuple[Dense, ...], float]:
    """What is left of a table: its columns, its factors, its weight."""
    asked = [(where, kind) for where, kind in left if kind or isinstance(where, tuple)]
    columns = tuple(c for where, _ in asked for c in columns_in(where))
    return columns, tuple(_wide_rows(where, kind, views) for where, kind in asked), weight


def _of_queries(asked: GroupTerms, views: Views, wide: Mapping[int, Dense], account: Account) -> float | None:
    """The nuclear norm of a block by all its queries; None where they are too many."""
    sides = [_Asked(left, views, wide, weight) for left, weight in asked.items()]
    starts = np.cumsum([0, *(side.queries for side in sides)])
    if starts[-1] > MOST_QUERIES:
        return None
    S = np.zeros((starts[-1], starts[-1]))
    for a, one in enumerate(sides):
        for b, other in enumerate(sides[: a + 1]):
            S[starts[a] : starts[a + 1], starts[b] : starts[b + 1]] = one.moments(other)
    account.charge(EIGENVALUES * len(S) ** 3 / FLOPS)
    squares = np.linalg.eigvalsh(S, UPLO="L")
    # What rounding leaves of eigenvalues that are 0 must not add up: their roots are no longer small.
    squares = squares[squares > len(S) * np.finfo(float).eps * max(float(squares[-1]), 0.0)]
    return float(np.sqrt(squares).sum())


class _Asked:
    """What is left of a table in a block, and what it is on average given some columns of a record."""

    def __init__(self, left: Left, views: Views, measures: Mapping[int, Dense], weight: float) -> None:
        self._measures = measures
        self._given: dict[tuple[int, ...], Dense] = {}
        asked = [(where, kind) for where, kind in left if kind or isinstance(where, tuple)]
        self._axes = [(columns_in(where), _wide_rows(where, kind, views)) for where, kind in asked]
        self._axes[:0] = [((), np.full((1,), np.sqrt(weight)))]
        self.columns = frozenset(c for looked, _ in self._axes for c in looked)
        self.queries = prod(len(rows) for _, rows in self._axes)

    def given(self, columns: tuple[int, ...]) -> Dense:
        """Query × combination of some columns' values, times the root of its probability."""
        if columns not in self._given:
            found: Dense = np.ones((1, 1))
            order: list[int] = []
            for looked, rows in self._axes:
                kept = [c for c in looked if c in columns]
                part = averaged(rows, looked, {c: self._measures[c] for c in looked if c not in kept})
                roots = kron(np.sqrt(self._measures[c])[None] for c in kept)
                found, order = kron([found, part * roots]), order + kept
            wide = found.reshape(-1, *(len(self._measures[c]) for c in order))
            self._given[columns] = wide.transpose(0, *(1 + np.argsort(order))).reshape(found.shape)
        return self._given[columns]

    def moments(self, other: _Asked) -> Dense:
        """E[w wᵀ] between the queries of two tables."""
        shared = tuple(sorted(self.columns & other.columns))
        return np.asarray(self.given(shared) @ other.given(shared).T)


def _wide_rows(where: Where, kind: int, views: Views) -> Dense:
    """Query × class of each column."""
    rows = views[where].rows
    assert rows is not None
    return np.asarray(rows[kind]).reshape(-1, *(view_of(views, c).classes for c in columns_in(where)))


def by_sample(
    batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], seed: int, account: Account = UNLIMITED
) -> float:
    """The best distribution on some records that are drawn: every one of these is a distribution on all."""
    rng = np.random.default_rng(seed)
    drawn: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for i, column in enumerate(batch.columns):
        orbit = rng.choice(column.orbits, size=RECORDS, p=measures[i])
        drawn.append((orbit, rng.integers(0, column.counts[orbit])))
    grams: dict[tuple[int, int], Dense] = {}
    G = np.zeros((RECORDS, RECORDS))
    for kinds, weight in terms.items():
        own = np.full((RECORDS, RECORDS), weight)
        for i, kind in kinds:
            if (i, kind) not in grams:
                joint = batch.numbers.get((i, kind))
                if joint is None:
                    grams[i, kind] = _inner(batch.columns[i], kind, *drawn[i])
                else:
                    looked, array, _ = batch.joint[joint]
                    F = array[(np.arange(len(array))[:, None], *(drawn[c][0] for c in looked))]
                    grams[i, kind] = F.T @ F
            own *= grams[i, kind]
        G += own
    squares, U = np.linalg.eigh(G)
    there = squares > 1e-10 * squares[-1]
    R = np.sqrt(squares[there])[:, None] * U[:, there].T
    account.charge(SAMPLE_SECONDS * sum(map(len, terms)))
    return float(certify(R, 1e-2, account, max_rounds=60).bound.lower_bound)


def _inner(column: Column, kind: int, orbit: NDArray[np.int64], member: NDArray[np.int64]) -> Dense:
    """Inner products of the columns that records have in a factor: by orbit, and whether it is the same value."""
    F = column.rows[kind][:, orbit]
    together = F.T @ F
    same = orbit[:, None] == orbit[None, :]
    alike = same & (member[:, None] == member[None, :])
    spread = column.spread[kind][orbit]
    return together + np.where(same, -(spread / column.counts[orbit])[:, None], 0.0) + np.where(alike, spread, 0.0)
