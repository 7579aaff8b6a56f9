"""SQL by components: a batch whose cells are too many for one block, as one block for every set of columns.

With a measure μ_c for every column, a query over the columns C is the sum over A ⊆ C of its components: averaged over
the columns outside A, centred in those of A. The component of A is a function on the table of A, which is a block: a
record has one cell in each. So the plan is an ordinary one, with blocks of its own and rows of W that span them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.bounds.optimality import OptimalityBound
from batchdp.cells import Cells
from batchdp.cells.blocks import Block
from batchdp.cells.classes import Classes
from batchdp.cells.splitting import parts_of
from batchdp.components.asking import Asked, Weigh, asked
from batchdp.components.columns import Column, column_of
from batchdp.components.coordinates import searched
from batchdp.components.groups import TooManyClassesError
from batchdp.components.measures import improved
from batchdp.components.optimizing import _strategy, optimize_products
from batchdp.components.pieces import Part, measured, recovered
from batchdp.components.search import Batch, split_by
from batchdp.components.strategy import ResidualStrategy
from batchdp.domain import Domain
from batchdp.errors import BatchDPError, QueryError
from batchdp.privacy import GAUSSIAN
from batchdp.queries import Query, ValueOf
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.workload import MatrixWorkload

Dense = NDArray[np.float64]
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


@dataclass(frozen=True, eq=False)
class ComponentCells(Cells):
    """Cells of components: blocks that are tables of some columns, and the measures that queries are averaged by."""

    sets: Sets
    averages: tuple[Dense, ...]


def componentwise(
    queries: Sequence[Query],
    domain: Domain,
    most: int,
    seconds: float | None = None,
    seed: int = 0,
    weigh: Weigh = lambda _: None,
) -> tuple[ComponentCells, PairStrategy] | None:
    """The cells and the strategy by components for the least weighted sum of squared errors; None if there are none."""
    try:
        batch = asked(queries, domain, weigh)
        summed = {part.column for query in queries for part in parts_of(query.amount) if isinstance(part, ValueOf)}
        if any(one.size > MOST_SUMMED for one in batch.atoms if one.column in summed):
            return None
        found = optimize_products(batch.batch, seconds=seconds, seed=seed)
        best = _all_split(batch, found.limit)
        sets = tuple(sorted({part.columns for part in best.parts}))
        cells = component_cells(queries, batch, sets, best.averages, most)
    except (BatchDPError, TooManyClassesError):  # tied, too wide or too large: blocks of queries are the other way
        return None
    return None if cells is None else (cells, _as_strategy(cells, batch, best))


def _all_split(batch: Asked, limit: float) -> ResidualStrategy:
    """Every column of several orbits split, by the best measures; `TooManyClassesError` where too many are tied."""
    known = Batch(batch.batch)
    terms = known.terms(batch.batch.weights)
    measures = {i: known.uniform(i) for i in known.wide()}
    better = improved(known, terms, measures) if measures else None
    best = split_by(known, terms, better) if better is not None else searched(known, terms, measures)
    return _strategy(known, best, min(limit, best.total))


def component_cells(
    queries: Sequence[Query], batch: Asked, sets: Sets, averages: Sequence[Dense], most: int
) -> ComponentCells | None:
    """The blocks of these sets of columns; None where one has more than `most` cells."""
    columns = tuple(map(column_of, batch.batch.sizes, batch.batch.factors))
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
        named = frozenset(batch.atoms[i].column for c in own for i in batch.columns[c])
        classes = Classes(transitions, sparse.csc_array(amounts[rows]))
        blocks.append(Block(tuple(int(q) for q in rows), named, classes))
    names = tuple(query.name for query in queries)
    cells = ComponentCells(names, batch.atoms, tuple(blocks), sets, tuple(averages))
    _check_sums(cells, batch)
    return cells


def _transitions(
    batch: Asked, columns: Sequence[Column], own: tuple[int, ...]
) -> tuple[NDArray[np.int32] | None, ...] | None:
    """From a record's atoms to the cell of its values; atoms that no record has count as the first."""
    looked = sorted(i for c in own for i in batch.columns[c])
    sizes = {i: len(batch.alive[i]) for i in looked}
    if prod(sizes.values()) > MOST_STATES:
        return None
    found: list[NDArray[np.int32] | None] = [None] * len(batch.atoms)
    states = 1
    for i in looked:
        place = np.zeros(batch.atoms[i].size, dtype=np.int32)
        place[batch.alive[i]] = np.arange(sizes[i], dtype=np.int32)
        table = np.arange(states, dtype=np.int32)[:, None] * np.int32(sizes[i]) + place
        found[i] = table.astype(np.int32)
        states *= sizes[i]
    if not looked:
        return tuple(found)
    at = dict(zip(looked, np.unravel_index(np.arange(states), [sizes[i] for i in looked]), strict=True))
    cell = np.zeros(states, dtype=np.int64)
    for c in own:
        value = np.zeros(states, dtype=np.int64)
        for i in batch.columns[c]:
            value = value * sizes[i] + at[i]
        cell = cell * len(columns[c].orbit) + columns[c].value[value]
    last = found[looked[-1]]
    assert last is not None
    found[looked[-1]] = cell[last].astype(np.int32)
    return tuple(found)


def _amounts(batch: Asked, columns: Sequence[Column], averages: Sequence[Dense], own: tuple[int, ...]) -> Dense:
    """Every query's component on the table of these columns: query × cell."""
    found = np.zeros((len(batch.places), prod(len(columns[c].orbit) for c in own)))
    made: dict[int, Dense | None] = {}
    for q, (table, place) in enumerate(batch.places):
        if table not in made:
            made[table] = _component(batch, columns, averages, own, table)
        rows = made[table]
        if rows is not None:
            found[q] = rows[place]
    sizes = np.abs(found).max(axis=1, initial=0.0)
    return np.where(np.abs(found) <= 1e-13 * sizes[:, None], 0.0, found)


def _component(
    batch: Asked, columns: Sequence[Column], averages: Sequence[Dense], own: tuple[int, ...], table: int
) -> Dense | None:
    factors = batch.batch.factors_of(table)
    if not set(own) <= set(factors):
        return None
    rows = np.ones((1, 1))
    for c, factor in factors.items():
        F = factor.matrix[:, np.unique(columns[c].value, return_index=True)[1]]
        mean = F @ averages[c]
        mean = np.where(np.abs(mean) <= 1e-13 * np.abs(F).max(axis=1), 0.0, mean)
        part = mean[:, None] if c not in own else _centred(F, mean)
        rows = np.asarray(np.kron(rows, part), dtype=np.float64)
    return rows


def _centred(F: Dense, mean: Dense) -> Dense:
    left = F - mean[:, None]
    return np.where((np.abs(left).max(axis=1) <= 1e-13 * np.abs(F).max(axis=1))[:, None], 0.0, left)


def _check_sums(cells: ComponentCells, batch: Asked) -> None:
    """Refuse cells whose components do not add up to the queries, on records that are drawn by a fixed seed."""
    rng = np.random.default_rng(0)
    atoms = (
        np.column_stack([rng.choice(own, CHECKED) for own in batch.alive]) if batch.alive else np.zeros((CHECKED, 0))
    )
    values = []
    for own in batch.columns:
        value = np.zeros(CHECKED, dtype=np.int64)
        for i in own:
            value = value * len(batch.alive[i]) + np.searchsorted(batch.alive[i], atoms[:, i])
        values.append(value)
    total = np.zeros((len(cells.names), CHECKED))
    for block in cells.blocks:
        classes = block.classes.of(atoms.astype(np.int64))
        there = np.flatnonzero(classes >= 0)
        total[np.ix_(np.array(block.queries, dtype=np.int64), there)] += block.classes.matrix.toarray()[
            :, classes[there]
        ]
    for q, (table, place) in enumerate(batch.places):
        factors = batch.batch.factors_of(table)
        shape = [factor.rows for factor in factors.values()]
        truth = np.ones(CHECKED)
        for (c, factor), row in zip(factors.items(), np.unravel_index(place, shape) if shape else (), strict=True):
            truth = truth * factor.matrix[row][values[c]]
        if np.abs(total[q] - truth).max() > ROUNDING * max(1.0, float(np.abs(truth).max())):
            raise QueryError(f"query {cells.names[q]!r} is not the sum of its components")


def _as_strategy(cells: ComponentCells, batch: Asked, found: ResidualStrategy) -> PairStrategy:
    """L and B over the blocks, part by part."""
    columns, L, B = found.columns, [], []
    factors: dict[int, list[Dense]] = {}
    for table in range(len(batch.batch.tables)):
        known = found._factors(table)
        factors[table] = [known.get(i, np.ones((1, len(c.orbit)))) for i, c in enumerate(columns)]
    by_set: dict[tuple[int, ...], list[Part]] = {}
    for part in found.parts:
        by_set.setdefault(part.columns, []).append(part)
    for own, block in zip(cells.sets, cells.blocks, strict=True):
        records = _representatives(columns, own)[block.classes.counted]
        parts = by_set[own]
        L.append(np.concatenate([measured(part, columns, records) for part in parts]))
        rows = np.zeros((len(cells.names), len(L[-1])))
        made: dict[int, Dense] = {}
        for q in block.queries:
            table, place = batch.places[q]
            if table not in made:
                shares = [recovered(part, columns, factors[table], found.averages) for part in parts]
                made[table] = np.concatenate(shares, axis=1)
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
        records[:, c] = np.unique(columns[c].value, return_index=True)[1][place]
    return records
