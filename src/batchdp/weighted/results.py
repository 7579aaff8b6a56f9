"""Noise on results for a batch over many columns: how much one record can change all answers together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchdp.components.groups import Terms
from batchdp.components.search import Batch

Dense = NDArray[np.float64]

MOST_KINDS = 2_000_000
"""Combinations of kinds of values that are looked at one by one."""


def absolute_sums(batch: Batch) -> list[Dense]:
    """For every column, factor × value that is told apart: Σ |F| over the factor's queries."""
    found = []
    for column, factors in zip(batch.columns, batch.workload.factors, strict=True):
        first = np.unique(column.value, return_index=True)[1]
        sums = [np.ones(len(first))]
        for factor in factors:
            whole = factor.given is None
            sums.append(np.ones(len(first)) if whole else np.abs(factor.matrix[:, first]).sum(axis=0))
        found.append(np.array(sums))
    return found


def largest_change(batch: Batch, terms: Terms) -> float:
    """The largest Σ_t Π_i Σ |F_ti| over all records, each table as often as it is asked; an upper bound where the
    records are too many kinds to be looked at one by one: then the tables' own largest add up.
    """
    sums = absolute_sums(batch)
    times = {kinds: float(len(own)) for kinds, own in batch.tables.items() if kinds in terms}
    looked = sorted({i for kinds in times for i, _ in kinds})
    kinds_of = {i: np.unique(sums[i].T, axis=0).T for i in looked}
    several = [i for i in looked if kinds_of[i].shape[1] > 1]
    if float(np.prod([float(kinds_of[i].shape[1]) for i in several])) > MOST_KINDS:
        return sum(count * _product([float(sums[i][k].max()) for i, k in kinds]) for kinds, count in times.items())
    total = np.zeros([kinds_of[i].shape[1] for i in several])
    for kinds, count in times.items():
        own = dict(kinds)
        alike = _product([float(kinds_of[i][k, 0]) for i, k in kinds if i not in several])
        part = np.full((1,) * len(several), count * alike)
        for axis, i in enumerate(several):
            if i in own:
                shape = [1] * len(several)
                shape[axis] = -1
                part = part * kinds_of[i][own[i]].reshape(shape)
        total = total + part
    return float(total.max())


def _product(values: Sequence[float]) -> float:
    found = 1.0
    for value in values:
        found *= value
    return found
