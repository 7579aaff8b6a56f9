"""SQL by components: a batch whose cells are too many for one block, as one block for every set of columns.

With a measure μ_c for every column, a query over the columns C is the sum over A ⊆ C of its components: averaged over
the columns outside A, centred in those of A. The component of A is a function on the table of A, which is a block: a
record has one cell in each. So the plan is an ordinary one, with blocks of its own and rows of W that span them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain import Domain
from batchdp.errors import BatchDPError, QueryError
from batchdp.linalg.matrix import Dense
from batchdp.optimizer.options import Options
from batchdp.optimizer.residual.groups import TooManyClassesError
from batchdp.optimizer.residual.measures import improve_by_trial, improve_measures
from batchdp.optimizer.residual.optimizing import _strategy, optimize_products
from batchdp.optimizer.residual.search import split_by
from batchdp.optimizer.residual.splits import Batch as SearchBatch
from batchdp.privacy import GAUSSIAN
from batchdp.queries.query import Query, ValueOf
from batchdp.sql.script import Batch
from batchdp.strategies.bounds.convex import OptimalityBound
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.residual.columns import Column, averaged, columns_of, joint_array, without_rounding
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.strategies.residual.terms import ResidualFactor, ResidualTerm, measured
from batchdp.strategies.strategy import every_place
from batchdp.workloads.encode import TableBatch, tables_of
from batchdp.workloads.encode.atoms import parts_of
from batchdp.workloads.encode.batch import query_of_answer, weigh_answers
from batchdp.workloads.encode.cells import Block, Cells
from batchdp.workloads.encode.classes import Classes
from batchdp.workloads.encode.demands import alive_of
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload

Sets = tuple[tuple[int, ...], ...]
"""Of columns: one for every block."""

MOST_STATES = 200_000
"""Combinations of atoms of one block."""
MOST_ENTRIES = 20_000_000
"""Of all blocks' queries times cells."""
MOST_SUMMED = 1024
"""Values of a column that is summed: none of them is like another, so that the search takes their third power."""
CHECKED = 64
"""Records on which a plan's components are added up."""
ROUNDING = 1e-9
LIMIT_SECONDS = 20.0
"""Nominal ones, for a limit by itself."""


MOST_LIMITED = 128
"""Values of a column that a limit over all blocks is looked for with: beyond, that takes longer than the plan."""
Weigh = Callable[[Dense], Dense | None]
"""From the most that one record can change every query to the queries' weights."""


@dataclass(frozen=True, eq=False)
class ComponentCells(Cells):
    """Cells of components: blocks that are tables of some columns, and the measures that queries are averaged by."""

    sets: Sets
    averages: tuple[Dense, ...]


@dataclass(frozen=True, eq=False)
class QueryTables:
    """Queries as answers of tables, whose weights are the queries'."""

    encoded: TableBatch
    workload: KroneckerWorkload
    """The same tables, in pieces where their answers count unlike."""
    places: tuple[tuple[int, int], ...]
    """For every query its table, and its place among the table's answers."""
    weights: Dense | None
    """Of the queries, if they have any."""

    @cached_property
    def looking(self) -> tuple[frozenset[int], ...]:
        """For every table the columns that it looks at."""
        tables = range(len(self.workload.tables))
        return tuple(
            frozenset(c for axis in self.workload.factors_of(t) for c in self.workload.looked_at(axis)) for t in tables
        )


def componentwise(
    batch: Batch, domain: Domain, most: int, seconds: float | None = None, seed: int = 0, weigh: Weigh = lambda _: None
) -> tuple[ComponentCells, PairStrategy] | None:
    """The cells and the strategy by components for the least weighted sum of squared errors; None if there are none."""
    try:
        tables = query_tables(batch, domain, weigh)
        looking = (part for query in batch.queries for part in parts_of(query.amount))
        summed = {part.column for part in looking if isinstance(part, ValueOf)}
        if any(one.size > MOST_SUMMED for one in tables.encoded.atoms if one.column in summed):
            return None
        together = stacked(tables.workload)
        found = optimize_products(together, Options(seconds=seconds, seed=seed))
        best = replace(_all_split(together, found.limit), workload=tables.workload)
        sets = tuple(sorted({part.columns for part in best.parts}))
        cells = component_cells(batch.queries, tables, sets, best.averages, most)
    except (BatchDPError, TooManyClassesError):  # tied, too wide or too large: blocks of queries are the other way
        return None
    return None if cells is None else (cells, _as_strategy(cells, tables, best))


def limit_over_blocks(batch: Batch, domain: Domain, weigh: Weigh = lambda _: None, seed: int = 0) -> float | None:
    """What no Gaussian strategy is below at ρ = ½, whatever its blocks; None where it cannot be had in components.

    A record's L1 norm is at least its L2 norm, so that it holds for Laplace noise too, whose variance is that of the
    budget. Adding up what is proven of blocks of queries is looser: they have records in common.
    """
    try:
        together = stacked(query_tables(batch, domain, weigh).workload)
        if max(together.sizes) > MOST_LIMITED:
            return None
        return optimize_products(together, Options(seconds=LIMIT_SECONDS, seed=seed)).limit
    except (BatchDPError, TooManyClassesError):
        return None


def query_tables(batch: Batch, domain: Domain, weigh: Weigh = lambda _: None) -> QueryTables:
    """The tables of some SQL, and where its queries are; a `QueryError` where one is no product of small factors."""
    encoded = tables_of(batch.selections, None, domain, joint=True)
    home = query_of_answer(batch, encoded.asked)
    numbers = np.zeros(len(batch.queries), dtype=np.int64)
    numbers[home[::-1]] = np.arange(len(home))[::-1]
    weights = weigh(_tops(encoded.workload)[numbers])
    each = np.ones(len(batch.queries)) if weights is None else weights
    # A query that several tables have counts once.
    shared = each[home] / np.bincount(home, minlength=len(batch.queries))[home]
    workload, at = weigh_answers(encoded.workload, shared)
    return QueryTables(encoded, workload, tuple(at[n] for n in numbers.tolist()), weights)


def stacked(workload: KroneckerWorkload) -> KroneckerWorkload:
    """The same queries in fewer tables: those of one axis are one table, whose rows have the roots of their weights.

    What is best for either is best for both, and parts of the one can be read as parts of the other.
    """
    alone: dict[int, list[Dense]] = {}
    tables: list[dict[int, Dense]] = []
    weights = []
    for t, weight in enumerate(workload.weights.tolist()):
        own = {axis: factor.matrix for axis, factor in workload.factors_of(t).items()}
        if len(own) == 1:
            ((axis, F),) = own.items()
            alone.setdefault(axis, []).append(np.sqrt(weight) * F)
        else:
            tables.append(own)
            weights.append(weight)
    tables += [{axis: np.concatenate(rows)} for axis, rows in alone.items()]
    return workload.asking(tables, None, np.array(weights + [1.0] * len(alone)))


def _tops(workload: KroneckerWorkload) -> Dense:
    """For every answer the most that one record can change it."""
    found = []
    for t in range(len(workload.tables)):
        own = np.ones(1)
        for factor in workload.factors_of(t).values():
            own = np.multiply.outer(own, np.abs(factor.matrix).max(axis=1)).reshape(-1)
        found.append(own)
    return np.concatenate(found)


def _all_split(workload: KroneckerWorkload, limit: float) -> ResidualStrategy:
    """Every column of several orbits split, by the best measures; `TooManyClassesError` where too many are tied."""
    known = SearchBatch(workload)
    terms = known.terms(workload.weights)
    measures = {i: known.uniform(i) for i in known.wide()}
    better = improve_measures(known, terms, measures) if measures else None
    if better is None and not known.joint:
        best = improve_by_trial(known, terms, measures)
    else:
        best = split_by(known, terms, measures if better is None else better)
    return _strategy(known, best, min(limit, best.total))


def component_cells(
    queries: Sequence[Query], batch: QueryTables, sets: Sets, averages: Sequence[Dense], most: int
) -> ComponentCells | None:
    """The blocks of these sets of columns; None where one has more than `most` cells."""
    columns = columns_of(batch.workload)
    if len(averages) != len(columns) or any(
        len(mu) != len(c.orbit) or abs(float(mu.sum()) - 1) > 1e-12 for mu, c in zip(averages, columns, strict=True)
    ):
        raise QueryError("the measures of a plan are not those of its columns")
    sizes = [prod(len(columns[c].orbit) for c in own) for own in sets]
    if max(sizes, default=1) > most or sum(sizes) * len(queries) > MOST_ENTRIES:
        return None
    blocks = []
    for own in sets:
        transitions = _transitions(batch, columns, own)
        if transitions is None:
            return None
        amounts = _amounts(batch, columns, averages, own)
        rows = np.flatnonzero(np.abs(amounts).max(axis=1) > 0)
        named = frozenset(batch.encoded.atoms[i].column for c in own for i in batch.encoded.columns[c].atoms)
        classes = Classes(transitions, sparse.csc_array(amounts[rows]))
        blocks.append(Block(tuple(int(q) for q in rows), named, classes))
    names = tuple(query.name for query in queries)
    cells = ComponentCells(names, batch.encoded.atoms, tuple(blocks), sets, tuple(averages))
    _check_sums(cells, batch)
    return cells


def _transitions(
    batch: QueryTables, columns: Sequence[Column], own: tuple[int, ...]
) -> tuple[NDArray[np.int32] | None, ...] | None:
    """From a record's atoms to the cell of its values; atoms that no record has count as the first."""
    atoms = batch.encoded.atoms
    looked = sorted(i for c in own for i in batch.encoded.columns[c].atoms)
    alive = {i: alive_of(atoms[i]) for i in looked}
    sizes = {i: len(alive[i]) for i in looked}
    if prod(sizes.values()) > MOST_STATES:
        return None
    found: list[NDArray[np.int32] | None] = [None] * len(atoms)
    states = 1
    for i in looked:
        place = np.zeros(atoms[i].size, dtype=np.int32)
        place[alive[i]] = np.arange(sizes[i], dtype=np.int32)
        found[i] = (np.arange(states, dtype=np.int32)[:, None] * np.int32(sizes[i]) + place).astype(np.int32)
        states *= sizes[i]
    if not looked:
        return tuple(found)
    at = np.unravel_index(np.arange(states), [sizes[i] for i in looked])
    codes = np.zeros((states, len(atoms)), dtype=np.int64)
    for i, own_place in zip(looked, at, strict=True):
        codes[:, i] = alive[i][own_place]
    values = batch.encoded.values(codes, only=own)
    cell = np.zeros(states, dtype=np.int64)
    for c in own:
        cell = cell * len(columns[c].orbit) + columns[c].value[values[:, c]]
    last = found[looked[-1]]
    assert last is not None
    found[looked[-1]] = cell[last].astype(np.int32)
    return tuple(found)


def _amounts(batch: QueryTables, columns: Sequence[Column], averages: Sequence[Dense], own: tuple[int, ...]) -> Dense:
    """Every query's component on the table of these columns: query × cell."""
    found = np.zeros((len(batch.places), prod(len(columns[c].orbit) for c in own)))
    component = cache(lambda table: _component(batch, columns, averages, own, table))
    for q, (table, place) in enumerate(batch.places):
        if batch.looking[table].issuperset(own):
            found[q] = component(table)[place]
    sizes = np.abs(found).max(axis=1, initial=0.0)
    return np.where(np.abs(found) <= 1e-13 * sizes[:, None], 0.0, found)


def _component(
    batch: QueryTables, columns: Sequence[Column], averages: Sequence[Dense], own: tuple[int, ...], table: int
) -> Dense:
    workload = batch.workload
    factors = workload.factors_of(table)
    rows, order = np.ones((1, 1)), list[int]()
    for axis, factor in factors.items():
        looked = workload.looked_at(axis)
        F = joint_array(factor, looked, columns)
        sizes = np.abs(F).reshape(len(F), -1).max(axis=1)
        kept = [c for c in looked if c in own]
        part = averaged(F, looked, {c: averages[c] for c in looked if c not in own})
        part = without_rounding(part, sizes).reshape(len(F), *(len(averages[c]) for c in kept))
        for place, c in enumerate(kept):
            part = part - np.expand_dims(np.tensordot(part, averages[c], axes=(place + 1, 0)), place + 1)
        part = without_rounding(part.reshape(len(F), -1), sizes)
        rows, order = np.asarray(np.kron(rows, part), dtype=np.float64), order + kept
    wide = rows.reshape(-1, *(len(averages[c]) for c in order))
    return wide.transpose(0, *(1 + np.argsort(order))).reshape(rows.shape)


def _check_sums(cells: ComponentCells, batch: QueryTables) -> None:
    """Refuse cells whose components do not add up to the queries, on records that are drawn by a fixed seed."""
    rng = np.random.default_rng(0)
    alive = [alive_of(one) for one in cells.atoms]
    atoms = np.column_stack([np.zeros((CHECKED, 0), dtype=np.int64), *(rng.choice(own, CHECKED) for own in alive)])
    values = batch.encoded.values(atoms).astype(np.int64)
    total = np.zeros((len(cells.names), CHECKED))
    for block in cells.blocks:
        classes = block.classes.of(atoms)
        there = np.flatnonzero(classes >= 0)
        total[np.ix_(np.array(block.queries, dtype=np.int64), there)] += block.classes.matrix.toarray()[
            :, classes[there]
        ]
    for q, (table, place) in enumerate(batch.places):
        factors = batch.workload.factors_of(table)
        shape = [factor.rows for factor in factors.values()]
        truth = np.ones(CHECKED)
        for (axis, factor), row in zip(factors.items(), np.unravel_index(place, shape) if shape else (), strict=True):
            truth = truth * factor.row(int(row))[batch.workload.values_of(axis, values)]
        if np.abs(total[q] - truth).max() > ROUNDING * max(1.0, float(np.abs(truth).max())):
            raise QueryError(f"query {cells.names[q]!r} is not the sum of its components")


def _as_strategy(cells: ComponentCells, batch: QueryTables, found: ResidualStrategy) -> PairStrategy:
    """L and B over the blocks, part by part."""
    columns, L, B = found.columns, [], []
    for own, block in zip(cells.sets, cells.blocks, strict=True):
        records = _representatives(columns, own)[block.classes.counted]
        parts = [part for part in found.parts if part.columns == own]
        L.append(np.concatenate([measured(part, columns, records) for part in parts]))
        rows = np.zeros((len(cells.names), len(L[-1])))
        asking = {batch.places[q][0] for q in block.queries}
        made = {t: _recovered(found, parts, t) for t in asking}
        for q in block.queries:
            table, place = batch.places[q]
            rows[q] = made[table][place]
        B.append(rows)
    return PairStrategy(
        MatrixWorkload(cells.matrix, cells.names, batch.weights, blocks=cells.sizes),
        sparse.csr_array(sparse.block_diag(L, format="csr")),
        np.concatenate(B, axis=1),
        method=found.method,
        privacy=GAUSSIAN.privacy,
        status=found.status,
        proven=bounds_of(found.limit, found.total, len(cells.names)),
    )


def _recovered(found: ResidualStrategy, parts: Sequence[ResidualTerm[ResidualFactor]], table: int) -> Dense:
    """What all answers of a table make of some parts: answer × measurement."""
    view, places = found.view(table), every_place(found.workload, table)
    queries = found.workload.tables[table].queries
    return np.concatenate([view.weights(part, places, queries) / part.scale for part in parts], axis=1)


def bounds_of(limit: float, total: float, queries: int) -> tuple[OptimalityBound, ...]:
    """What is proven of all strategies for the queries; what is proven of matrices over the blocks is of those only."""
    nothing = np.ones(1)
    mean = limit / queries  # no more than the largest
    return OptimalityBound("sum", limit, total, nothing), OptimalityBound("max", mean, np.inf, nothing)


def _representatives(columns: Sequence[Column], own: tuple[int, ...]) -> NDArray[np.int64]:
    """A record for every cell of a block: the first value that counts as each."""
    sizes = [len(columns[c].orbit) for c in own]
    places = np.indices(sizes).reshape(len(own), prod(sizes))
    records = np.zeros((prod(sizes), len(columns)), dtype=np.int64)
    for c, place in zip(own, places, strict=True):
        records[:, c] = columns[c].first[place]
    return records
