"""A batch as weighted tables see it: its components, how much of each is asked, and what one column is wanted for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from batchdp.components.groups import Terms
from batchdp.components.search import Batch
from batchdp.components.whole import closure, is_whole
from batchdp.weighted.family import Asked, Flags, Tables, plain, seen
from batchdp.weighted.inside import Inside, Wanted
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]


def asked_of(terms: Terms, insides: Sequence[Inside]) -> Asked:
    """The components of some tables, with what is asked of each."""
    amounts: dict[tuple[int, ...], float] = {}
    for kinds, weight in terms.items():
        choices = [
            [((), own.mean[k] / own.tau), *([((i,), own.rest[k] / own.tau)] if own.rest[k] > 0 else [])]
            for i, k in kinds
            for own in (insides[i],)
        ]
        for choice in product(*choices):
            value = weight
            for _, part in choice:
                value *= part
            if value > 0:
                key = tuple(i for kept, _ in choice for i in kept)
                amounts[key] = amounts.get(key, 0.0) + value
    needed = flags(list(amounts), len(insides))
    return Asked(needed, np.array(list(amounts.values())), *_sizes(insides))


def asked_of_whole(workload: KroneckerWorkload) -> Asked:
    """The same for whole tables, of which there may be hundreds of thousands."""
    assert is_whole(workload)
    found = closure(workload)
    needed = np.zeros((found.size, len(workload.sizes)), dtype=bool)
    start = 0
    for rows in found.sets:
        needed[start + np.arange(len(rows))[:, None], rows] = True
        start += len(rows)
    amount = found.up(workload.weights, 1) * found.freedom
    sizes = np.array(workload.sizes, dtype=float)
    return Asked(needed, amount, sizes, sizes == 2)


def _sizes(insides: Sequence[Inside]) -> tuple[Dense, Flags]:
    tau = np.array([own.tau for own in insides])
    return tau, np.array([own.measure is None and own.tau == 2 for own in insides])


def flags(sets: Sequence[Sequence[int]], columns: int) -> Flags:
    """Sets of columns as rows of flags."""
    found = np.zeros((len(sets), columns), dtype=bool)
    for row, own in zip(found, sets, strict=True):
        row[list(own)] = True
    return found


def looked_at(batch: Batch) -> Tables:
    """The asked tables, as tables to be measured."""
    every = flags([[i for i, _ in kinds] for kinds in batch.tables], len(batch.columns))
    found = plain(every)
    return found.chosen(found.distinct())


def wanted_of(
    column: int, grams: list[Dense], terms: Terms, insides: Sequence[Inside], tables: Tables, theta: Dense
) -> Wanted:
    """What the tables with these weights leave to one column's own strategy."""
    others: dict[tuple[tuple[int, ...], int], float] = {}
    for kinds, weight in terms.items():
        kind = dict(kinds).get(column, 0)
        choices = [
            [((), own.mean[k] / own.tau), *([((i,), own.rest[k] / own.tau)] if own.rest[k] > 0 else [])]
            for i, k in kinds
            if i != column
            for own in (insides[i],)
        ]
        for choice in product(*choices):
            value = weight
            for _, part in choice:
                value *= part
            if value > 0:
                key = tuple(i for kept, _ in choice for i in kept), kind
                others[key] = others.get(key, 0.0) + value
    needed = flags([kept for kept, _ in others], len(insides))
    tau = np.array([own.tau for own in insides])
    tau[column] = 1.0
    squares = theta**2 * np.exp(tables.apart @ -np.log(tau))
    visible = seen(needed, tables)
    apart = visible[:, tables.apart[:, column]] @ squares[tables.apart[:, column]]
    summed = visible[:, ~tables.apart[:, column]] @ squares[~tables.apart[:, column]]
    factor, asked = np.array([k for _, k in others]), np.array(list(others.values()))
    used = (factor > 0) | (apart > 0)
    return Wanted(grams, factor[used], asked[used], apart[used], summed[used])
