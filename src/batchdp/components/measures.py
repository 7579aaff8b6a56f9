"""The measure by which split columns are averaged, as a variable.

Components add up to (Σ_g √E_g)², and every E_g moves with the measures: a column that is averaged adds s(μ) = ‖F μ‖²
as a factor, one that is kept E(μ), the optimum for F (I − μ 1ᵀ). How much each of these matters is found by moving it a
little; then every column's measure is moved for Σ α log s + β log E by a quasi-Newton method. With v the dual weights
of the column's optimum, S = R diag(v) Rᵀ and R = F (I − μ 1ᵀ), the gradient of E is −2 tr S^½ · Fᵀ S^-½ R v. Where
columns of a group are tied, no gradient is at hand, and the mass of one orbit after the other is moved by trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from batchdp.components.columns import Column, view
from batchdp.components.groups import TableWeights, group_terms, one_column, separate, solve_group
from batchdp.components.search import Batch, Found, split_by
from batchdp.strategies.account import UNLIMITED, Account

Dense = NDArray[np.float64]
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


@dataclass(eq=False)
class _Known:
    """Columns' optima, by column, factor and measure, so that each is found once; and who pays for them."""

    account: Account
    optima: dict[tuple[int, int, bytes], float] = field(default_factory=dict)


def improve_measures(
    batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], account: Account = UNLIMITED
) -> dict[int, Dense] | None:
    """Better measures for the same split; None where columns of a group are tied to one another."""
    measures = dict(measures)
    known = _Known(account.lasting_share())
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
            alpha = {kind: _force(batch, terms, measures, [(j, kind) for j in twins], best, known) for kind in kinds}
            own = {kind: sum(beta.get((j, kind), 0.0) for j in twins) for kind in kinds}
            made = _column(
                batch.columns[i], alpha, {kind: b for kind, b in own.items() if b > 0}, i, measures[i], known
            )
            found |= dict.fromkeys(twins, made)
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
    roots = 0.0
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
            if key not in known.optima:
                known.optima[key] = one_column(i, kind, views[i], LOOSE, known.account).lower
            value *= known.optima[key]
        plain = {i: one for i, one in views.items() if i not in dict(apart)}
        root = float(np.sqrt(value * solve_group(rest, plain, account=known.account).upper))
        roots += root
        if beta is not None:
            for pair in apart:
                beta[pair] = beta.get(pair, 0.0) + root / 2
    return roots


def _force(
    batch: Batch,
    terms: TableWeights,
    measures: Mapping[int, Dense],
    pairs: list[tuple[int, int]],
    now: float,
    known: _Known,
) -> float:
    """How Σ √E_g moves with log s of a factor, on all columns that are alike."""
    there = _total(batch, terms, measures, dict.fromkeys(pairs, 1 + NUDGE), known)
    assert there is not None
    return (there - now) / float(np.log1p(NUDGE))


def _twins(batch: Batch, columns: list[int]) -> list[list[int]]:
    """Columns with the same factors: they get the same measure, which is sought once."""
    found: dict[tuple[bytes, ...], list[int]] = {}
    for i in columns:
        own = batch.columns[i]
        key = (own.spread.tobytes(), own.counts.tobytes(), *(F.tobytes() for F in own.rows))
        found.setdefault(key, []).append(i)
    return list(found.values())


def _column(
    column: Column, alpha: Mapping[int, float], beta: Mapping[int, float], i: int, start: Dense, known: _Known
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
            answer = one_column(i, kind, seen, LOOSE, known.account, warm.get(kind))
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


def improve_by_trial(
    batch: Batch, terms: TableWeights, measures: Mapping[int, Dense], account: Account = UNLIMITED
) -> Found:
    """The best components that are found by moving the mass of one orbit after the other, from these measures."""
    logs = {i: np.log(mu) for i, mu in measures.items()}
    lasting = account.lasting_share()
    best = split_by(batch, terms, measures, account=lasting)
    steps = {(i, o): FIRST_STEP for i, mu in measures.items() for o in range(1, len(mu))}
    trials = 0
    for _ in range(TRIAL_SWEEPS):
        for i, o in steps:
            for step in (steps[i, o], -steps[i, o]):
                if trials >= MOST_TRIALS or account.over():
                    return best
                trials += 1
                moved = logs[i].copy()
                moved[o] += step
                found = split_by(batch, terms, {**best.measures, i: _measure(moved)}, account=lasting)
                if found.total < best.total:
                    best, logs[i], steps[i, o] = found, moved, step * LONGER
                    break
            else:
                steps[i, o] *= SHORTER
    return best


def _measure(logs: Dense) -> Dense:
    mu = np.exp(logs - logs.max())
    return np.asarray(mu / mu.sum())
