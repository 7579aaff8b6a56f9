"""The queries of some SQL among the answers of its tables, and tables whose answers count unlike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchdp.asking.asked import AskedTables, Part
from batchdp.asking.batch import distinct
from batchdp.derived.expressions import parts_of
from batchdp.workloads.products import in_factors
from batchdp.workloads.structure import KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.sql.batch import Batch

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]

DIGITS = 12
"""To which weights are told apart."""


def query_of_answer(batch: Batch, asked: AskedTables) -> Indices:
    """For every linear answer of the tables of some SQL the number of the query that it is.

    A query may be the answer of several tables: tables are shared as a whole, queries one by one.
    """
    found = np.full(int(asked.starts[-1]), -1, dtype=np.int64)
    answers = iter(batch.asked)
    for parts in _in_order(batch, asked):
        for numbers in zip(*(part.tolist() for part in parts), strict=True):
            found[list(numbers)] = list(parts_of(next(answers).of))
    return found


def _in_order(batch: Batch, asked: AskedTables) -> Iterator[list[Indices]]:
    """For every item and set of groups the numbers of its parts, each for all rows in the order of the statement."""
    legend, workload = asked.legend, asked.workload
    units: Iterator[tuple[tuple[int, ...], list[Part]]] = (
        (run.keys, list(run.of.parts)) if run.of is not None else (legend.numbers_of(workload, t), [asked.part(t)])
        for run in asked.runs
        for t in (run.tables if run.of is None else (0,))
    )
    for selected in batch.selections:
        for _ in selected.counted:
            for own, (keys, parts) in zip(selected.grouping.sets, units, strict=False):
                shape = [len(legend.keys[k].titles) for k in keys]
                headings = [legend.keys[k].heading for k in keys]
                order = [headings.index(key.name) for key in selected.grouping.keys if key.name in own]
                yield [part.numbers(tuple(shape)).reshape(shape).transpose(order).reshape(-1) for part in parts]


def weigh_answers(workload: KroneckerWorkload, weights: Dense) -> tuple[KroneckerWorkload, list[tuple[int, int]]]:
    """The tables with these weights of their answers, in pieces where these differ within one.

    Returns: the tables, and for every answer its table there and its place in it.
    """
    terms: list[list[Dense | None]] = []
    names: list[str] = []
    own_weights: list[float] = []
    places: list[tuple[int, int]] = []
    start = 0
    for t, table in enumerate(workload.tables):
        own = weights[start : start + table.queries].reshape(table.shape)
        start += table.queries
        at = np.zeros((*table.shape, 2), dtype=np.int64)
        factors = workload.factors_of(t)
        for rows in _alike(own, [np.arange(n) for n in table.shape]):
            here, shape = np.ix_(*rows), tuple(map(len, rows))
            at[here] = np.stack([np.full(shape, len(terms)), np.arange(prod(shape)).reshape(shape)], axis=-1)
            chosen = {c: factors[c].matrix[place] for c, place in zip(factors, rows, strict=True)}
            terms.append([chosen.get(c) for c in range(len(workload.sizes))])
            names.append(table.name)
            own_weights.append(float(own[here].flat[0]))
        places += ((int(table_at), int(place)) for table_at, place in at.reshape(-1, 2))
    if len(terms) == len(workload.tables):
        return replace(workload, weights=np.array(own_weights)), places
    return in_factors(workload.sizes, terms, names=distinct(names), weights=own_weights), places


def _alike(weights: Dense, rows: list[Indices]) -> Iterator[list[Indices]]:
    """The rows of every axis of pieces that have one weight each."""
    for axis in range(weights.ndim):
        lines = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
        rounded = np.array([[float(f"{one:.{DIGITS}g}") for one in line] for line in lines])
        kinds, kind = np.unique(rounded, axis=0, return_inverse=True)
        if len(kinds) > 1:
            for own in (np.flatnonzero(kind.reshape(-1) == k) for k in range(len(kinds))):
                yield from _alike(np.take(weights, own, axis), [*rows[:axis], rows[axis][own], *rows[axis + 1 :]])
            return
    yield rows
