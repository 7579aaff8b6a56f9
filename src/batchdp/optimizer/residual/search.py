"""The best strategy over components that is found, and the limit beside it.

Where the classes of all columns fit together nothing is split, and the answer is the optimum but for the solver's
tolerance. Else columns are split, those with the most orbits first, by a measure that is itself improved; one product
for the whole batch and groups of one table each are tried beside it. One product starts from noise on data and never
gets worse; tables by themselves, each at its optimum and with its best share, are never worse than noise on results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.groups import (
    Answer,
    Kinds,
    TableWeights,
    TooManyClassesError,
    group_terms,
    solve_column,
    solve_group,
)
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, ColumnView, column_of, view
from batchdp.strategies.residual.terms import TermGroup
from batchdp.workloads.kronecker import KroneckerWorkload

GOOD_ENOUGH = 1.002
"""Found over limit at which nothing else is tried."""
MOST_TABLES_APART = 500
"""Distinct tables for which groups of one table each are tried."""
SWEEPS = 8
"""Over the columns, for one product."""


@dataclass(frozen=True, eq=False)
class Found:
    """A strategy and its error at ρ = ½; `limit` is what no strategy is below, 0 where this one does not say."""

    total: float
    limit: float
    method: str
    measures: Mapping[int, Dense]
    groups: tuple[tuple[Answer, frozenset[Kinds] | None], ...]
    """With the tables that each serves, all if None."""

    def shared(self, tables: Mapping[Kinds, list[int]]) -> tuple[TermGroup, ...]:
        """All measurements, each with the root of its group's share as its scale."""
        whole = sum(np.sqrt(answer.upper) for answer, _ in self.groups)
        made = []
        for number, (answer, serves) in enumerate(self.groups):
            if answer.upper == 0:  # nothing to measure
                continue
            scale = float(np.sqrt(np.sqrt(answer.upper) / whole))
            served = None if serves is None else frozenset(t for kinds in serves for t in tables[kinds])
            made.append(TermGroup(answer.choices, scale, served, number))
        return tuple(made)


class Batch:
    """What is known of a batch before any search: its columns, and its tables without repetitions."""

    def __init__(self, workload: KroneckerWorkload) -> None:
        self.workload = workload
        self.columns: tuple[Column, ...] = tuple(map(column_of, workload.sizes, workload.factors))
        self.tables: dict[Kinds, list[int]] = {}
        starts, columns, chosen = workload.starts.tolist(), workload.columns.tolist(), workload.chosen.tolist()
        for t, (start, end) in enumerate(pairwise(starts)):
            kinds = tuple((columns[at], chosen[at] + 1) for at in range(start, end))
            self.tables.setdefault(kinds, []).append(t)
        self._views: dict[tuple[int, bytes], ColumnView] = {}

    def terms(self, weights: Dense) -> TableWeights:
        """The distinct tables, with weights of one a table."""
        return {kinds: float(weights[own].sum()) for kinds, own in self.tables.items()}

    def uniform(self, i: int) -> Dense:
        """The measure that has every value that is told apart alike, by orbit."""
        counts = self.columns[i].counts
        return np.asarray(counts / counts.sum())

    def view(self, i: int, measure: Dense | None) -> ColumnView:
        """A column as a group sees it, made once."""
        key = i, b"" if measure is None else measure.tobytes()
        if key not in self._views:
            self._views[key] = view(self.columns[i], measure)
        return self._views[key]

    def wide(self) -> list[int]:
        """Columns of more than one orbit, those with the most first."""
        return sorted((i for i, c in enumerate(self.columns) if c.orbits > 1), key=lambda i: -self.columns[i].orbits)


def split_by(
    batch: Batch,
    terms: TableWeights,
    measures: Mapping[int, Dense],
    *,
    tolerance: float = 1e-3,
    account: Account = UNLIMITED,
) -> Found:
    """Components with some columns split; `TooManyClassesError` if a group does not fit even so, or the work is done.

    With all columns split the groups are as small as they get: that is done whatever the work.
    """
    smallest = len(measures) == len(batch.wide())
    unsplit = {i: batch.view(i, None) for i in range(len(batch.columns)) if i not in measures}
    answers = []
    for kept, own in group_terms(terms, batch.columns, measures):
        if not smallest and account.over():
            raise TooManyClassesError("the work is done")
        looked = {i for kinds in own for i, _ in kinds}
        views = {i: one for i, one in unsplit.items() if i in looked or one.rows is not None}
        views |= {i: batch.view(i, measures[i]) for i in kept}
        answers.append(solve_group(own, views, tolerance=tolerance, account=account))
    total = sum(np.sqrt(answer.upper) for answer in answers) ** 2
    limit = 0.0 if measures else answers[0].lower
    method = "components" if measures or len(answers[0].choices[-1]) > 1 or len(answers[0].choices) == 1 else "product"
    return Found(float(total), limit, method, measures, tuple((answer, None) for answer in answers))


def one_product(batch: Batch, terms: TableWeights, *, tolerance: float = 1e-3, account: Account = UNLIMITED) -> Found:
    """One product of columns' strategies for all tables, each column in turn at its best for the others'."""
    views = {i: batch.view(i, None) for i in range(len(batch.columns))}
    looked = sorted({i for kinds in terms for i, _ in kinds} | {i for i, one in views.items() if one.rows is not None})
    cost = {i: _costs_of_data(batch.columns[i]) for i in looked}
    answers: dict[int, Answer] = {}
    total = _priced(terms, cost)
    for _ in range(SWEEPS):
        for i in looked:
            weights: dict[int, float] = {}
            for kinds, weight in terms.items():
                there = dict(kinds)
                others = prod(float(cost[j][there.get(j, 0)]) for j in looked if j != i)
                weights[there.get(i, 0)] = weights.get(there.get(i, 0), 0.0) + weight * others
            answers[i] = solve_column(i, weights, views[i], tolerance, account)
            cost[i] = _costs(answers[i], views[i])
        before, total = total, _priced(terms, cost)
        if total > before * (1 - 1e-4):
            break
    choices = tuple(choice for i in looked for choice in answers[i].choices)
    return Found(total, 0.0, "product", {}, ((Answer(total, 0.0, choices), None),))


def tables_apart(batch: Batch, terms: TableWeights, *, tolerance: float = 1e-3, account: Account = UNLIMITED) -> Found:
    """Every distinct table as a group of its own, at its optimum: a product of the columns' optima."""
    groups = []
    for kinds, weight in terms.items():
        views = {i: batch.view(i, None) for i, _ in kinds}
        groups.append((solve_group({kinds: weight}, views, tolerance=tolerance, account=account), frozenset({kinds})))
    total = sum(np.sqrt(answer.upper) for answer, _ in groups) ** 2
    return Found(float(total), 0.0, "tables apart", {}, tuple(groups))


def _priced(terms: TableWeights, cost: Mapping[int, Dense]) -> float:
    return sum(
        weight * prod(float(own[dict(kinds).get(i, 0)]) for i, own in cost.items()) for kinds, weight in terms.items()
    )


def _costs_of_data(column: Column) -> Dense:
    """‖F‖² of every factor: its error where each value is measured by itself."""
    plain = np.array([float(np.square(F).sum(axis=0) @ column.counts) for F in column.rows])
    return np.asarray(plain + column.spread @ (column.counts - 1))


def _costs(answer: Answer, own: ColumnView) -> Dense:
    """Every factor's error under a column's strategy."""
    cost = np.zeros(len(own.spread))
    for kind in range(len(cost)):
        for piece in answer.choices[0]:
            if piece.spread:
                ((_, orbit),) = piece.spread
                n = int(own.counts[orbit])
                cost[kind] += own.spread[kind, orbit] * (n - 1) * float(np.square(piece.recover).sum())
            elif own.rows is None:
                cost[kind] += own.mean[kind] * float(np.square(piece.recover).sum())
            else:
                cost[kind] += float(np.square(own.rows[kind] @ piece.recover).sum())
    return cost
