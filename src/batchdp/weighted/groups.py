"""Groups of asked tables, each with weighted tables of its own.

Where tables do not tell the same values apart, a group of them has fewer cells than all together: Census tables by
seven races and every age, and such by all races for adults. Groups share the sensitivity; with errors E_g at all of it
the best shares leave (Σ E_g^⅓)³.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from batchdp.components.groups import Kinds
from batchdp.components.search import Batch
from batchdp.workloads.structure import KroneckerWorkload

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
    return KroneckerWorkload(
        workload.sizes, tuple(factors), starts, columns.astype(np.int64), chosen, workload.weights[list(tables)], names
    )


def partitions(batch: Batch) -> Iterator[list[list[int]]]:
    """Ways to split the tables into two to four groups: joined step by step by an estimate of what is lost."""
    terms: list[Kinds] = list(batch.tables)
    if not 2 <= len(terms) <= MOST_TERMS:
        return
    members = [[t] for t in range(len(terms))]
    cost = [_cost(batch, terms, own) for own in members]
    known: dict[tuple[int, ...], float] = {}
    if len(members) <= MOST_GROUPS:
        yield _tables(batch, terms, members)
    while len(members) > 2:
        best, pair, joint = np.inf, (0, 1), 0.0
        for a in range(len(members)):
            for b in range(a):
                key = tuple(sorted(members[a] + members[b]))
                if key not in known:
                    known[key] = _cost(batch, terms, list(key))
                loss = known[key] - cost[a] - cost[b]
                if loss < best:
                    best, pair, joint = loss, (a, b), known[key]
        a, b = pair
        members[b] = sorted(members[a] + members[b])
        cost[b] = joint
        del members[a], cost[a]
        if len(members) <= MOST_GROUPS:
            yield _tables(batch, terms, members)


def _tables(batch: Batch, terms: Sequence[Kinds], members: list[list[int]]) -> list[list[int]]:
    return [sorted(t for k in own for t in batch.tables[terms[k]]) for own in members]


def _cost(batch: Batch, terms: Sequence[Kinds], own: Sequence[int]) -> float:
    """The cube root of an estimate of a group's error: noise on the cells that its tables tell apart."""
    kinds = [dict(terms[k]) for k in own]
    merged: dict[int, dict[int, float]] = {}
    for i in range(len(batch.columns)):
        used = sorted({k[i] for k in kinds if i in k})
        merged[i] = _squares(batch, i, tuple(used))
    total = 0.0
    for k, table in zip(own, kinds, strict=True):
        value = sum(float(batch.workload.weights[t]) for t in batch.tables[terms[k]])
        for i in range(len(batch.columns)):
            value *= merged[i][table.get(i, 0)]
        total += value
    return float(total ** (1 / 3))


def _squares(batch: Batch, i: int, used: tuple[int, ...]) -> dict[int, float]:
    """‖F‖² of a column's factors on the values that they tell apart; of "does not matter" the number of these."""
    memory = batch.__dict__.setdefault("_squares", {})
    if (i, used) not in memory:
        factors = [batch.workload.factors[i][k - 1] for k in used]
        if not factors:
            memory[i, used] = {0: 1.0}
        elif any(factor.given is None for factor in factors):
            n = float(batch.workload.sizes[i])
            memory[i, used] = {0: n} | {
                k: n if f.given is None else float(np.square(f.given).sum()) for k, f in zip(used, factors, strict=True)
            }
        else:
            stacked = np.concatenate([factor.matrix for factor in factors])
            first = np.unique(stacked.T, axis=0, return_index=True)[1]
            memory[i, used] = {0: float(len(first))} | {
                k: float(np.square(f.matrix[:, first]).sum()) for k, f in zip(used, factors, strict=True)
            }
    found: dict[int, float] = memory[i, used]
    return found
