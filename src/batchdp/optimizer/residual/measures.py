"""The measure by which split columns are averaged, as a variable.

Components add up to (Σ_g √E_g)², and every E_g moves with the measures: a column that is averaged adds s(μ) = ‖F μ‖²
as a factor, one that is kept E(μ), the optimum for F (I − μ 1ᵀ). How much each of these matters is found by moving it a
little; then every column's measure is moved for Σ α log s + β log E by a quasi-Newton method. With v the dual weights
of the column's optimum, S = R diag(v) Rᵀ and R = F (I − μ 1ᵀ), the gradient of E is −2 tr S^½ · Fᵀ S^-½ R v. Where
columns of a group are tied, no gradient is at hand, and the mass of one orbit after the other is moved by trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.groups import (
    MOST_CLASSES,
    TableWeights,
    TooManyClassesError,
    alone,
    assemble,
    assembly_price,
    blocks_of,
    group_terms,
    separate,
    solve_column,
    solve_group,
)
from batchdp.optimizer.residual.search import Batch, Found, split_by
from batchdp.optimizer.residual.solver import certify
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, ColumnView, view, without_rounding
from batchdp.strategies.residual.terms import kron

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
            views = {i: batch.view(i, None) for i, _ in kinds}
            found = max(found, solve_group({kinds: weight}, views, account=lasting).lower)
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


Forces = dict[tuple[int, int], float]
"""By column and factor."""

SWEEPS = 4
ROUNDS = 12
"""Of the quasi-Newton method for one column."""
NUDGE = 1e-4
LOOSE = 5e-4
"""Tolerance of the optima on the way."""
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
    alike = _twins(batch, list(measures))
    for _ in range(SWEEPS):
        before = best
        beta: Forces = {}
        _total(batch, terms, measures, {}, known, beta)
        found: dict[int, Dense] = {}
        for twins in alike:
            if account.over():
                return measures if best < start else None
            i = twins[0]
            kinds = range(1, len(batch.columns[i].rows))
            alpha = {}  # how Σ √E_g moves with log s of a factor, on all columns that are alike
            for kind in kinds:
                nudged = _total(batch, terms, measures, {(j, kind): 1 + NUDGE for j in twins}, known)
                assert nudged is not None
                alpha[kind] = (nudged - best) / float(np.log1p(NUDGE))
            own = {kind: sum(beta.get((j, kind), 0.0) for j in twins) for kind in kinds}
            kept = {kind: b for kind, b in own.items() if b > 0}
            found |= dict.fromkeys(twins, _column(batch.columns[i], alpha, kept, i, measures[i], known[0]))
        for step in (1.0, 0.5, 0.2):  # the forces are those of the start: not so far if it does not pay
            moved = {i: (1 - step) * mu + step * found[i] for i, mu in measures.items()}
            value = _total(batch, terms, moved, {}, known)
            if value is not None and value < best:
                measures, best = moved, value
                break
        if best > before * (1 - 2e-4):
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
    first = {j: twins[0] for twins in _twins(batch, list(range(len(batch.columns)))) for j in twins}
    for kept, own in group_terms(terms, batch.columns, measures, nudged):
        looked = {i for kinds in own for i, _ in kinds}
        wide = {i for i, c in enumerate(batch.columns) if c.orbits > 1 and i not in measures}
        views = {i: batch.view(i, None) for i in (looked | wide) - set(measures)}
        views |= {i: batch.view(i, measures[i]) for i in kept}
        rest, apart = separate(own, views)
        if any(i not in dict(apart) for i in (*kept, *wide)):
            return None
        value = 1.0
        for i, kind in apart:
            key = first[i], kind, measures[i].tobytes() if i in measures else b""
            if key not in optima:
                optima[key] = solve_column(i, {kind: 1.0}, views[i], LOOSE, account).lower
            value *= optima[key]
        plain = {i: one for i, one in views.items() if i not in dict(apart)}
        root = float(np.sqrt(value * solve_group(rest, plain, account=account).upper))
        roots += root
        if beta is not None:
            for pair in apart:
                beta[pair] = beta.get(pair, 0.0) + root / 2
    return roots


def _twins(batch: Batch, columns: list[int]) -> list[list[int]]:
    """Columns with the same factors: they get the same measure, which is sought once."""
    found: dict[tuple[bytes, ...], list[int]] = {}
    for i in columns:
        own = batch.columns[i]
        key = (own.spread.tobytes(), own.counts.tobytes(), *(F.tobytes() for F in own.rows))
        found.setdefault(key, []).append(i)
    return list(found.values())


def _column(
    column: Column, alpha: Mapping[int, float], beta: Mapping[int, float], i: int, start: Dense, account: Account
) -> Dense:
    """The measure of one column for the least Σ α log s + β log E, from a start."""
    uniform = column.counts / column.counts.sum()
    warm: dict[int, Dense] = {}

    def measure(x: Dense) -> Dense:
        mu = np.exp(x - x.max()) + SMALLEST * uniform
        return np.asarray(mu / mu.sum())

    def value(x: Dense) -> tuple[float, Dense]:
        mu = measure(x)
        total, gradient = 0.0, np.zeros(len(mu))
        for kind, force in alpha.items():
            F = column.rows[kind]
            s = float(np.square(F @ mu).sum())
            if force > 0 and s > 0:
                total += force * np.log(s)
                gradient += force * 2 * (F.T @ (F @ mu)) / s
        for kind, force in beta.items():
            seen = view(column, mu)
            answer = solve_column(i, {kind: 1.0}, seen, LOOSE, account, warm.get(kind))
            assert answer.weights is not None
            warm[kind] = answer.weights
            total += force * np.log(answer.lower)
            gradient += force * _slope(column, kind, mu, answer.weights) / answer.lower
        return total, mu * (gradient - gradient @ mu)

    x = np.log(np.maximum(start, SMALLEST * uniform))
    found = minimize(value, x, jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS, "maxfun": 2 * ROUNDS})
    return measure(found.x)


def _slope(column: Column, kind: int, mu: Dense, v: Dense) -> Dense:
    """The gradient of the optimum for a factor without its average, by the measure."""
    F = column.rows[kind]
    R = F - (F @ mu)[:, None]
    squares, U = np.linalg.eigh((R * v) @ R.T)
    there = squares > 1e-12 * squares[-1]
    l, U = np.sqrt(squares[there]), U[:, there]
    counts = column.counts
    spread = np.sqrt(np.maximum(column.spread[kind], 0) * (counts - 1) ** 2 / counts * v)
    trace = float(l.sum() + spread.sum())
    return np.asarray(-2 * trace * (F.T @ (U @ ((U.T @ (R @ v)) / l))))


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
