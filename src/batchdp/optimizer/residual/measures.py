"""The measure by which split columns are averaged, as a variable.

Components add up to (Σ_g √E_g)², and every E_g moves with the measures: a column that is averaged adds s(μ) = ‖F μ‖²
as a factor, one that is kept E(μ), the optimum for F (I − μ 1ᵀ). How much each of these matters is found by moving it a
little; then every column's measure is moved for the least Σ a s + b E at these prices, which the sum is never above.
E is the least trace of an ellipsoid about the points f_j − F μ, (f_j − F μ)ᵀ P⁻¹ (f_j − F μ) ≤ 1, which is convex in P
and μ together, and so is s: with P and the dual weights v the best μ is that of a quadratic form, and all are moved in
turn. Where columns of a group are tied no form is at hand, and the mass of one orbit after the other is moved by trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.groups import Likeness, likeness, separate, solve_column, solve_group, view_of
from batchdp.optimizer.residual.search import Found, split_by
from batchdp.optimizer.residual.solver import ROUND_SECONDS, block_price
from batchdp.optimizer.residual.splits import Batch, Split, TableWeights, squared_mean
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.strategies.residual.columns import Column

Forces = dict[tuple[int, int], float]
"""By column and factor."""
Prices = dict[int, float]
"""By factor: what the whole moves by, for a little of something of it."""

SWEEPS = 20
STEPS = (1.0, 0.5, 0.2)
ENOUGH = 3e-5
"""Gained in a sweep, relative, from which another one follows."""
TURNS, ROUNDS = 15, 2
"""For one column: of its measure, and of the ellipsoids about its averages in each."""
STEP = 0.7
"""Of the way to the measure that would be best if nothing else moved."""
SETTLED = 3e-3
"""How far a measure moves, added up, when it is done."""
NUDGE = 1e-2
LOOSE = 1e-4
"""Tolerance of the optima on the way."""
MOST_BESIDE = 400
"""Classes of columns that are not split, up to which groups are solved again and again."""
FEWEST_PARTS = 1024
"""That a measure is made of."""
SMALLEST = 1e-6
"""Of a measure, relative to the uniform one."""


_Known = tuple[Account, dict[tuple[int, int, bytes], float]]
"""Who pays for columns' optima; and these, by column, factor and measure, so that each is found once."""


def improve_measures(
    batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], account: Account = UNLIMITED
) -> dict[int, Dense] | None:
    """Better measures for the same split; None where columns of a group are tied to one another."""
    measures = dict(measures)
    known: _Known = account.lasting_share(), {}
    best = _total(batch, terms, measures, {}, known)
    if best is None:
        return None
    start = best
    alike = [own for own in ([i for i in twins if i in measures] for twins in batch.twins) if own]
    duals: dict[int, dict[int, Dense]] = {own[0]: {} for own in alike}
    for _ in range(SWEEPS):
        before = best
        beta: Forces = {}
        _total(batch, terms, measures, {}, known, beta)
        found: dict[int, Dense] = {}
        for twins in alike:
            if account.over():
                return measures if best < start else None
            i = twins[0]
            column, mu = batch.columns[i], measures[i]
            of_means, of_optima = Prices(), Prices()
            for kind in range(1, len(column.rows)):
                # How Σ √E_g moves with s and E of a factor, on all columns that are alike.
                nudged = _total(batch, terms, measures, {(j, kind): 1 + NUDGE for j in twins}, known)
                mean = squared_mean(column.rows[kind], mu)
                assert nudged is not None
                if nudged > best and mean > 0:
                    of_means[kind] = (nudged - best) / (NUDGE * mean)
                force = sum(beta.get((j, kind), 0.0) for j in twins)
                if force > 0:
                    of_optima[kind] = force / known[1][i, kind, mu.tobytes()]
            found |= dict.fromkeys(twins, _balanced(column, of_means, of_optima, mu, duals[i], known[0]))
        for step in STEPS:  # the forces are those of the start: not so far if it does not pay
            moved = {i: (1 - step) * mu + step * found[i] for i, mu in measures.items()}
            value = _total(batch, terms, moved, {}, known)
            if value is not None and value < best:
                measures, best = moved, value
                break
        if best > before * (1 - ENOUGH):
            break
    return measures if best < start else None


def in_fractions(measure: Dense) -> Dense:
    """The nearest measure of whole parts of a power of two, none of them 0: integers can be centred by it exactly."""
    D = FEWEST_PARTS
    while 4 * len(measure) > D:
        D *= 2
    parts = np.maximum(1, np.floor(measure * D))
    order = np.argsort(parts - measure * D)  # those that lost most come first
    left = int(D - parts.sum())
    if left >= 0:
        parts[order[:left]] += 1
    else:
        large = np.argsort(-parts)
        for place in range(-left):
            parts[large[place % len(large)]] -= 1
    return np.asarray(parts / D) if parts.min() >= 1 else measure


def _total(
    batch: Batch,
    terms: TableWeights,
    measures: Mapping[int, Dense],
    nudged: Mapping[tuple[int, int], float],
    known: _Known,
    beta: Forces | None = None,
) -> float | None:
    """Σ √E_g, some averages nudged; `beta` collects how it moves with the logarithm of every kept column's optimum."""
    roots, (account, optima) = 0.0, known
    first = {j: twins[0] for twins in batch.twins for j in twins}
    split = Split(batch, measures, nudged)
    wide = {i for i, c in enumerate(batch.columns) if c.orbits > 1 and i not in measures}
    seen: dict[Likeness, tuple[float, list[tuple[int, int]]]] = {}  # the root, and what is apart by place and factor
    for kept, own in split.groups(terms):
        views = split.views(kept, own)
        alike, columns = likeness(own, views)
        if alike not in seen:
            rest, apart = separate(own, views)
            alone = {i: kind for i, kind in apart if isinstance(i, int)}
            if any(i not in alone for i in kept) or prod(batch.columns[i].orbits for i in wide) > MOST_BESIDE:
                return None
            value = 1.0
            for i, kind in alone.items():
                key = first[i], kind, measures[i].tobytes() if i in measures else b""
                if key not in optima:
                    optima[key] = solve_column(i, {kind: 1.0}, view_of(views, i), LOOSE, account).lower
                value *= optima[key]
            plain = {i: one for i, one in views.items() if i not in alone}
            root = float(np.sqrt(value * solve_group(rest, plain, tolerance=LOOSE / 10, account=account).upper))
            seen[alike] = root, [(columns.index(i), kind) for i, kind in alone.items()]
        root, places = seen[alike]
        roots += root
        if beta is not None:
            for pair in ((columns[place], kind) for place, kind in places):
                beta[pair] = beta.get(pair, 0.0) + root / 2
    return roots


def _balanced(
    column: Column, of_means: Prices, of_optima: Prices, start: Dense, duals: dict[int, Dense], account: Account
) -> Dense:
    """The measure of one column for the least Σ a s + b E at these prices, from a start; `duals` are the weights v."""
    mu, uniform = start, column.counts / column.counts.sum()
    plain = sum((a * column.grams[kind] for kind, a in of_means.items()), np.zeros((len(mu), len(mu))))
    round_price = ROUND_SECONDS + sum(block_price(*column.rows[kind].shape) for kind in of_optima)
    for _ in range(TURNS):
        account.charge(ROUNDS * round_price)
        H, g = plain, np.zeros(len(mu))
        for kind, b in of_optima.items():
            v = duals.get(kind, uniform)
            for _ in range(ROUNDS):  # the ellipsoid about these averages
                inverse, v = _ellipsoid(column, kind, mu, v)
            duals[kind] = v
            drawn = b * column.rows[kind].T @ inverse @ column.rows[kind]
            H, g = H + drawn, g + drawn @ v
        moved = _least_quadratic(H, g)
        far = float(np.abs(moved - mu).sum())
        mu = (1 - STEP) * mu + STEP * moved
        if far < SETTLED:
            break
    return np.asarray((mu + SMALLEST * uniform) / (1 + SMALLEST))


def _ellipsoid(column: Column, kind: int, mu: Dense, v: Dense) -> tuple[Dense, Dense]:
    """At weights v of the classes tr P · P⁻¹ for what is left of a factor without its average, and better weights."""
    F = column.rows[kind]
    R = F - (F @ mu)[:, None]
    squares, U = np.linalg.eigh((R * v) @ R.T)
    there = squares > 1e-12 * max(squares[-1], 0.0)
    l, U = np.sqrt(squares[there]), U[:, there]
    spread = np.sqrt(np.maximum(column.spread[kind], 0) * (column.counts - 1) ** 2 / column.counts * v)
    trace = float(l.sum() + spread.sum())
    used = np.einsum("ij,ij->j", (U.T @ R) / l[:, None], U.T @ R) + spread / v
    v = np.maximum(v * used / trace, SMALLEST / len(v))
    return (U / l) @ U.T * trace, v / v.sum()


def _least_quadratic(H: Dense, g: Dense) -> Dense:
    """The measure μ with the least μᵀ H μ − 2 gᵀ μ among those on as many places as are found to matter."""
    kept = np.arange(len(g))
    ridge = 1e-12 * max(float(np.trace(H)) / len(g), np.finfo(float).tiny)
    while True:
        K = np.ones((len(kept) + 1, len(kept) + 1))
        K[:-1, :-1] = H[np.ix_(kept, kept)] + ridge * np.eye(len(kept))
        K[-1, -1] = 0.0
        found = np.linalg.solve(K, np.append(g[kept], 1.0))[:-1]
        if found.min() >= 0:
            mu = np.zeros(len(g))
            mu[kept] = found / found.sum()
            return mu
        kept = kept[found >= 0]


MOST_TRIALS = 40
TRIAL_SWEEPS = 3
FIRST_STEP = 1.0
"""Of the logarithm of an orbit's mass."""
LONGER, SHORTER = 1.5, 0.4


def improve_by_trial(batch: Batch, terms: TableWeights, measures: Mapping[int, Dense]) -> Found:
    """The best components that are found by moving the mass of one orbit after the other, from these measures."""
    logs = {i: np.log(mu) for i, mu in measures.items()}
    best = split_by(batch, terms, measures)
    steps = {(i, o): FIRST_STEP for i, mu in measures.items() for o in range(1, len(mu))}
    trials = 0
    for _ in range(TRIAL_SWEEPS):
        for i, o in steps:
            for step in (steps[i, o], -steps[i, o]):
                if trials >= MOST_TRIALS:
                    return best
                trials += 1
                moved = logs[i].copy()
                moved[o] += step
                mu = np.exp(moved - moved.max())
                found = split_by(batch, terms, {**best.measures, i: mu / mu.sum()})
                if found.total < best.total:
                    best, logs[i], steps[i, o] = found, moved, step * LONGER
                    break
            else:
                steps[i, o] *= SHORTER
    return best
