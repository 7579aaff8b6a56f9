"""What no Gaussian strategy is below, for batches whose classes of records are too many to be solved together.

For every distribution μ over records none is below (tr S^½)² at ρ = ½, S = E_μ[w wᵀ], w a record's column; tr S^½
is the nuclear norm of K = W diag(μ)^½. Three ways to get at it:

- μ a product of columns' measures. In column i take the direction e = √μ_i of the values and what is at right angles
  to it, and in the queries of each factor F a direction h and what is at right angles to that. K falls into blocks, and
  a nuclear norm is at least the sum of those of the blocks on the diagonal: an average becomes hᵀ F μ, what is left of
  a column (I − h hᵀ) (F − F μ 1ᵀ). Every h is valid; it is sought between F μ itself, which leaves the averages whole,
  and what F μ has outside of the rest's range, which leaves the rest whole. Whole tables lose nothing.
- Some records, drawn at random, and the best μ on these: their Gram matrix is a sum of products, and the convex
  solver does the rest.
- One table by itself: a strategy for all answers it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from batchdp.components.columns import Column, ColumnView, without_rounding
from batchdp.components.groups import (
    MOST_CLASSES,
    Kinds,
    TableWeights,
    TooManyClassesError,
    alone,
    assemble,
    assembly_price,
    blocks_of,
    group_terms,
    separate,
    solve_group,
)
from batchdp.components.search import Batch
from batchdp.components.solver import certify
from batchdp.components.terms import kron
from batchdp.strategies.account import UNLIMITED, Account

Dense = NDArray[np.float64]

ANGLES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, np.pi / 2)
"""From F μ to what it has outside of the rest's range."""
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
) -> float:
    """The best limit that is found: by products of each of the measures, by a sample of records, by single tables."""
    found, lasting = 0.0, account.lasting_share()
    for mu in measures:
        best = 0.0
        for angle in ANGLES:
            if account.over() and found > 0:
                return found
            try:
                value = by_products(batch, terms, mu, angle, lasting)
            except TooManyClassesError:
                break
            if value < best:  # the angles have one best between them
                break
            best = value
        found = max(found, best)
    uniform = {i: batch.uniform(i) for i in range(len(batch.columns))}
    for kinds, weight in list(terms.items())[:MOST_TERMS_ALONE] if found == 0 else []:
        with suppress(TooManyClassesError):
            found = max(found, by_one_table(batch, kinds, weight, lasting))
    if not account.over() and (found == 0 or len(batch.wide()) > 0):
        found = max(found, by_sample(batch, terms, {**uniform, **(measures[0] if measures else {})}, seed, lasting))
    return found


def by_products(
    batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], angle: float, account: Account = UNLIMITED
) -> float:
    """The limit of a product of columns' measures; the columns without one are taken uniformly."""
    wide = {i: measures.get(i, batch.uniform(i)) for i in batch.wide()}
    turned = {i: _turned(batch.columns[i], mu, angle) for i, mu in wide.items()}
    total = 0.0
    ratios = {(i, kind): ratio for i, (_, own) in turned.items() for kind, ratio in own.items()}
    for kept, own in group_terms(terms, batch.columns, wide, ratios):
        looked = {i for kinds in own for i, _ in kinds} - set(wide)
        views = {i: batch.view(i, None) for i in looked} | {i: turned[i][0] for i in kept}
        rest, apart = separate(own, views)
        value = 1.0
        for i, kind in apart:
            value *= _nuclear(alone(i, {kind: 1.0}), {i: views[i]}, wide, account)
        value *= _nuclear(rest, {i: one for i, one in views.items() if i not in dict(apart)}, wide, account)
        total += value
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


def _nuclear(
    terms: TableWeights, views: Mapping[int, ColumnView], measures: Mapping[int, Dense], account: Account
) -> float:
    """The sum of the blocks' nuclear norms at the product measure."""
    shared = [i for i, own in views.items() if own.rows is not None]
    if not shared:
        return float(np.sqrt(solve_group(terms, views, account=account).upper))
    if np.prod([views[i].classes for i in shared]) > MOST_CLASSES:
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
                grams[i, kind] = _inner(batch.columns[i], kind, *drawn[i])
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


def by_one_table(batch: Batch, kinds: Kinds, weight: float, account: Account = UNLIMITED) -> float:
    """What no strategy for one table by itself is below."""
    return solve_group({kinds: weight}, {i: batch.view(i, None) for i, _ in kinds}, account=account).lower
