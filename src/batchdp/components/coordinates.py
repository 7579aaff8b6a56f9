"""Measures by trial, one orbit at a time: where columns of a group are tied, so that no gradient is at hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from batchdp.components.groups import Terms
from batchdp.components.search import Batch, Found, split_by
from batchdp.strategies.account import UNLIMITED, Account

Dense = NDArray[np.float64]

MOST_TRIALS = 40
SWEEPS = 3
FIRST_STEP = 1.0
"""Of the logarithm of an orbit's mass."""
LONGER, SHORTER = 1.5, 0.4


def searched(batch: Batch, terms: Terms, measures: Mapping[int, Dense], account: Account = UNLIMITED) -> Found:
    """The best components that are found by moving the mass of one orbit after the other, from these measures."""
    logs = {i: np.log(mu) for i, mu in measures.items()}
    lasting = account.lasting_share()
    best = split_by(batch, terms, measures, account=lasting)
    steps = {(i, o): FIRST_STEP for i, mu in measures.items() for o in range(1, len(mu))}
    trials = 0
    for _ in range(SWEEPS):
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
