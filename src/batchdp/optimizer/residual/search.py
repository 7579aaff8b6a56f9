"""The best strategy over components that is found, and the limit beside it.

Where the classes of all columns fit together nothing is split, and the answer is the optimum but for the solver's
tolerance. Else columns are split, those with the most orbits first, by a measure that is itself improved; one product
for the whole batch and groups of one table each are tried beside it. One product starts from noise on data and never
gets worse; tables by themselves, each at its optimum and with its best share, are never worse than noise on results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.residual.groups import (
    MOST_CLASSES,
    Answer,
    Memory,
    TooManyClassesError,
    columns_in,
    separate,
    solve_column,
    solve_group,
)
from batchdp.optimizer.residual.splits import Batch, Kinds, Split, TableWeights
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, ColumnView
from batchdp.strategies.residual.terms import TermGroup

GOOD_ENOUGH = 1.002
"""Found over limit at which nothing else is tried."""
MOST_TABLES_APART = 500
"""Distinct tables for which groups of one table each are tried."""
SWEEPS = 8
"""Over the columns, for one product."""
HOPELESS = 4.0
"""Times the best error that is known: one product that is above this after one sweep does not come below it."""


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
    split, memory, answers = Split(batch, measures), Memory(), []
    for kept, own in split.groups(terms):
        if not smallest and account.over():
            raise TooManyClassesError("the work is done")
        answers.append(memory.solve(own, split.views(kept, own), tolerance, account))
    total = sum(np.sqrt(answer.upper) for answer in answers) ** 2
    limit = 0.0 if measures else answers[0].lower
    method = "components" if measures or len(answers[0].choices[-1]) > 1 or len(answers[0].choices) == 1 else "product"
    return Found(float(total), limit, method, measures, tuple((answer, None) for answer in answers))


def fewest_split(batch: Batch, terms: TableWeights) -> int:
    """How many of the `wide` columns must be split at least before the group that keeps none of them fits.

    Its tables look at the others as those of the batch do, so that the columns on which all have the same factor are
    found once. What tied columns become where one of them is split is not known before, and not counted here.
    """
    split = Split(batch, {})
    ((_, own),) = split.groups(terms)
    apart = separate(own, split.views((), own))[1]
    free = {c for where, _ in apart for c in columns_in(where)}.union(batch.behind)
    wide = batch.wide()
    for count in range(len(wide)):
        together = [batch.columns[i].orbits for i in wide[count:] if i not in free]
        if len(together) < 2 or prod(together) <= MOST_CLASSES:
            return count
    return len(wide)


def one_product(
    batch: Batch, terms: TableWeights, *, tolerance: float = 1e-3, account: Account = UNLIMITED, enough: float = np.inf
) -> Found:
    """One product of columns' strategies for all tables, each column in turn at its best for the others'.

    It is given up where one turn of all columns leaves more than `enough`.
    """
    views = {i: batch.view(i, None) for i in range(len(batch.columns))}
    looked = sorted({i for kinds in terms for i, _ in kinds} | {i for i, one in views.items() if one.rows is not None})
    factor = np.zeros((len(views), len(terms)), dtype=np.int64)  # of every column in every table
    for t, kinds in enumerate(terms):
        for i, kind in kinds:
            factor[i, t] = kind
    asked = np.array(list(terms.values()))
    logs = {i: _logs(_costs_of_data(batch.columns[i])) for i in looked}
    together = sum((logs[i][factor[i]] for i in looked), np.zeros(len(terms)))
    some = np.isfinite(together)  # a query that no record is in costs nothing
    factor, asked, together = factor[:, some], asked[some], together[some]
    if not some.any():
        return Found(0.0, 0.0, "product", {}, ((Answer(0.0, 0.0, ()), None),))
    answers: dict[int, Answer] = {}
    total = float(asked @ np.exp(together))
    for _ in range(SWEEPS):
        for i in looked:
            others = together - logs[i][factor[i]]
            scale = float(others.max())  # which may be beyond what floats hold
            each = np.bincount(factor[i], asked * np.exp(others - scale))
            weights = {int(kind): float(each[kind]) for kind in np.flatnonzero(each)}
            answers[i] = solve_column(i, weights, views[i], tolerance, account)
            logs[i] = _logs(_costs(answers[i], views[i]))
            together = others + logs[i][factor[i]]
        before, total = total, float(asked @ np.exp(together))
        if total > before * (1 - 1e-4) or total > enough:
            break
    choices = tuple(choice for i in looked for choice in answers[i].choices)
    return Found(total, 0.0, "product", {}, ((Answer(total, 0.0, choices), None),))


def tables_apart(batch: Batch, terms: TableWeights, *, tolerance: float = 1e-3, account: Account = UNLIMITED) -> Found:
    """Every distinct table as a group of its own, at its optimum: a product of the columns' optima."""
    groups = []
    for kinds, weight in terms.items():
        answer = solve_table(batch, kinds, weight, tolerance=tolerance, account=account)
        groups.append((answer, frozenset({kinds})))
    total = sum(np.sqrt(answer.upper) for answer, _ in groups) ** 2
    return Found(float(total), 0.0, "tables apart", {}, tuple(groups))


def solve_table(
    batch: Batch, kinds: Kinds, weight: float, *, tolerance: float = 1e-3, account: Account = UNLIMITED
) -> Answer:
    """The best strategy for one table by itself."""
    split = Split(batch, {})
    ((_, own),) = split.groups({kinds: weight})
    looked = batch.looked(kinds)
    views = {where: one for where, one in split.views((), own).items() if looked.issuperset(columns_in(where))}
    return solve_group(own, views, tolerance=tolerance, account=account)


def _logs(costs: Dense) -> Dense:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(costs))


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
