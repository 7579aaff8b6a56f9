"""A batch as weighted tables see it: its components and how much of each is asked, starts, groups of tables, results.

Starts for very many whole tables are supersets of which each contains several of the asked ones. With columns numbered
0 … d − 1, give every asked table of k columns one more column, the one that makes the sum of the numbers a multiple of
d. A set of k + 1 columns with such a sum comes from each of its k + 1 subsets, so that nearly all tables of k columns
are covered once by tables that are k + 1 times fewer. Where the column is in the table already, the table stays as it
is.

Where tables do not tell the same values apart, a group of them has fewer cells than all together: Census tables by
seven races and every age, and such by all races for adults. Groups share the sensitivity; with errors E_g at all of it
the best shares leave (Σ E_g^⅓)³.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from math import prod

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.splits import Batch, Kinds, TableWeights
from batchdp.strategies.marginal.columns import ColumnProblem, ColumnStrategy
from batchdp.strategies.marginal.weights import Flags, MarginalProblem, Tables, plain, seen
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.layers import grouped


def problem_of(terms: TableWeights, insides: Sequence[ColumnStrategy]) -> MarginalProblem:
    """The components of some tables, with what is asked of each."""
    amounts = _components(terms, insides)
    needed = flags([kept for kept, _ in amounts], len(insides))
    tau = np.array([own.tau for own in insides])
    two = np.array([own.measure is None and own.tau == 2 for own in insides])
    return MarginalProblem(needed, np.array(list(amounts.values())), tau, two)


def _components(
    terms: TableWeights, insides: Sequence[ColumnStrategy], without: int = -1
) -> dict[tuple[tuple[int, ...], int], float]:
    """How much is asked of the columns that a component keeps, by these and the factor on the column left out."""
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for kinds, weight in terms.items():
        choices = [
            [((), own.mean[k] / own.tau), *([((i,), own.rest[k] / own.tau)] if own.rest[k] > 0 else [])]
            for i, k in kinds
            if i != without
            for own in (insides[i],)
        ]
        for choice in product(*choices):
            value = prod((part for _, part in choice), start=weight)
            if value > 0:
                key = tuple(i for kept, _ in choice for i in kept), dict(kinds).get(without, 0)
                found[key] = found.get(key, 0.0) + value
    return found


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


def column_problem(
    column: int,
    grams: list[Dense],
    terms: TableWeights,
    insides: Sequence[ColumnStrategy],
    tables: Tables,
    theta: Dense,
) -> ColumnProblem:
    """What the tables with these weights leave to one column's own strategy."""
    others = _components(terms, insides, column)
    needed = flags([kept for kept, _ in others], len(insides))
    tau = np.array([own.tau for own in insides])
    tau[column] = 1.0
    squares = theta**2 * np.exp(tables.apart @ -np.log(tau))
    visible = seen(needed, tables)
    apart = visible[:, tables.apart[:, column]] @ squares[tables.apart[:, column]]
    summed = visible[:, ~tables.apart[:, column]] @ squares[~tables.apart[:, column]]
    factor, asked = np.array([k for _, k in others]), np.array(list(others.values()))
    used = (factor > 0) | (apart > 0)
    return ColumnProblem(grams, factor[used], asked[used], apart[used], summed[used])


def supersets(asked: Flags) -> Flags:
    """One more column for every table of as many columns as the largest; the others as they are."""
    lengths = asked.sum(axis=1)
    d = asked.shape[1]
    found = asked.copy()
    largest = np.flatnonzero(lengths == lengths.max())
    last = -(asked[largest] @ np.arange(d)) % d
    found[largest, last] = True
    return found


def starts(asked: MarginalProblem, tables: Tables) -> list[tuple[Tables, Dense]]:
    """The asked tables themselves, and supersets of the largest; the smaller ones with little weight."""
    found = []
    lengths = tables.apart.sum(axis=1)
    order = np.where(lengths == lengths.max(), 1.0, 1e-3)
    for made in (tables, plain(supersets(tables.apart))):
        first = made.distinct()
        theta = order[first] * np.exp(-0.25 * np.log(asked.tau) @ made.apart[first].T)
        found.append((made.chosen(first), np.maximum(theta, theta.max() * 1e-6)))
    return found


MOST_TERMS = 64
"""Distinct tables for which groups are sought."""
MOST_GROUPS = 4


def sub_batch(workload: KroneckerWorkload, tables: Sequence[int]) -> KroneckerWorkload:
    """Some of the tables as a batch of their own, with the factors that these have."""
    spans = [np.arange(workload.starts[t], workload.starts[t + 1]) for t in tables]
    at = np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)
    columns, chosen = workload.columns[at], workload.chosen[at].copy()
    factors = []
    for i, own in enumerate(workload.factors):
        here = columns == i
        used, number = np.unique(chosen[here], return_inverse=True)
        chosen[here] = number
        factors.append(tuple(own[k] for k in used))
    starts = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
    names = None if workload.names is None else tuple(workload.names[t] for t in tables)
    weights = workload.weights[list(tables)]
    return KroneckerWorkload(workload.sizes, tuple(factors), starts, columns.astype(np.int64), chosen, weights, names)


def partitions(batch: Batch) -> Iterator[list[list[int]]]:
    """Ways to split the tables into two to four groups, joined step by step by an estimate of what is lost."""
    terms: list[Kinds] = list(batch.tables)
    if not 2 <= len(terms) <= MOST_TERMS:
        return
    cost = cache(partial(_cost, batch, terms, cache(partial(_squares, batch.workload))))
    single: list[tuple[int, ...]] = [(t,) for t in range(len(terms))]
    for found in grouped(single, lambda one, other: tuple(sorted(one + other)), cost, MOST_GROUPS):
        yield [sorted(t for k in own for t in batch.tables[terms[k]]) for own in found]


def _cost(
    batch: Batch, terms: Sequence[Kinds], squares: Callable[..., dict[int, float]], own: tuple[int, ...]
) -> float:
    """The cube root of an estimate of a group's error: noise on the cells that its tables tell apart."""
    kinds = [dict(terms[k]) for k in own]
    columns = range(len(batch.columns))
    merged = [squares(i, tuple(sorted({k[i] for k in kinds if i in k}))) for i in columns]
    total = 0.0
    for k, table in zip(own, kinds, strict=True):
        weight = sum(float(batch.workload.weights[t]) for t in batch.tables[terms[k]])
        total += prod((merged[i][table.get(i, 0)] for i in columns), start=weight)
    return float(total ** (1 / 3))


def _squares(workload: KroneckerWorkload, i: int, used: tuple[int, ...]) -> dict[int, float]:
    """‖F‖² of a column's factors on the values that they tell apart; of "does not matter" the number of these."""
    factors = [workload.factors[i][k - 1] for k in used]
    if not factors:
        return {0: 1.0}
    if any(factor.given is None for factor in factors):
        n = float(workload.sizes[i])
        sizes = [n if factor.given is None else float(np.square(factor.given).sum()) for factor in factors]
        return {0: n, **dict(zip(used, sizes, strict=True))}
    first = np.unique(np.concatenate([factor.matrix for factor in factors]).T, axis=0, return_index=True)[1]
    sizes = [float(np.square(factor.matrix[:, first]).sum()) for factor in factors]
    return {0: float(len(first)), **dict(zip(used, sizes, strict=True))}


MOST_KINDS = 2_000_000
"""Combinations of kinds of values that are looked at one by one."""


def largest_change(batch: Batch, terms: TableWeights) -> float:
    """The largest Σ_t Π_i Σ |F_ti| over all records, each table as often as it is asked; an upper bound where the
    records are too many kinds to be looked at one by one: then the tables' own largest add up.
    """
    if batch.joint:
        change = batch.workload.products_of(lambda own: float(np.abs(own.matrix).sum(axis=0).max(initial=0.0)))
        return float(sum(change[own].sum() for kinds, own in batch.tables.items() if kinds in terms))
    sums = []  # for every column, factor × value that is told apart: Σ |F| over the factor's queries
    for column, factors in zip(batch.columns, batch.workload.factors, strict=True):
        first = np.unique(column.value, return_index=True)[1]
        own = [np.ones(len(first)) if F.given is None else np.abs(F.matrix[:, first]).sum(axis=0) for F in factors]
        sums.append(np.array([np.ones(len(first)), *own]))
    times = {kinds: float(len(own)) for kinds, own in batch.tables.items() if kinds in terms}
    looked = sorted({i for kinds in times for i, _ in kinds})
    kinds_of = {i: np.unique(sums[i].T, axis=0).T for i in looked}
    several = [i for i in looked if kinds_of[i].shape[1] > 1]
    if float(np.prod([float(kinds_of[i].shape[1]) for i in several])) > MOST_KINDS:
        return sum(count * prod(float(sums[i][k].max()) for i, k in kinds) for kinds, count in times.items())
    total = np.zeros([kinds_of[i].shape[1] for i in several])
    for kinds, count in times.items():
        there = dict(kinds)
        alike = prod(float(kinds_of[i][k, 0]) for i, k in kinds if i not in several)
        part = np.full((1,) * len(several), count * alike)
        for axis, i in enumerate(several):
            if i in there:
                shape = [1] * len(several)
                shape[axis] = -1
                part = part * kinds_of[i][there[i]].reshape(shape)
        total = total + part
    return float(total.max())
