"""What follows from the measurements of a release: exact linear algebra on queries, whatever measured them.

A query follows if it is a combination of what was measured, for every record that there can be. Over cells that is
least squares on the kinds of records that the old queries and the new ones tell apart; over tables a query becomes
products of rows over the columns that were measured, is read as any other table is, and the reading is held against
the query on products of random vectors: a difference that is not 0 everywhere is not 0 there, with probability 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.domain import Database, Domain
from batchdp.domain.relations import as_counted
from batchdp.errors import QueryError, ReleaseError
from batchdp.linalg.matrix import Dense, Indices, dense, plain
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.marginal.tables import WeightedReader
from batchdp.mechanism.reader import CellReader
from batchdp.mechanism.residual.tables import TableReader
from batchdp.plans.encoding import cells_in
from batchdp.plans.source import Source
from batchdp.queries.query import Query
from batchdp.sql.script import batch_of
from batchdp.workloads.encode import TableBatch
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms, LineAtoms, ListedAtoms, parts_of, split_by
from batchdp.workloads.encode.cells import MOST_CELLS
from batchdp.workloads.encode.demands import alive_of, looking
from batchdp.workloads.encode.tables import Rows, rows_of
from batchdp.workloads.kronecker import KroneckerWorkload

TOLERANCE = 1e-6
"""Of a query's largest coefficient, or of its size on random vectors: how far it may be from what is read."""
CUT = 4.0
"""Times what the lattice cuts off of measurements, beside that."""
MOST_ENTRIES = 40_000_000
"""Of a matrix that is made."""
MOST_TERMS = 10_000
"""Products that one query may become."""
PROBES = 2


@dataclass(frozen=True, eq=False)
class Read:
    """Queries as they are read from measurements."""

    follows: tuple[bool, ...]
    """Of every query, whether it follows; the figures of others mean nothing."""
    values: Dense
    rows: sparse.csr_array
    """Weights on draws of scale 1."""
    law: NoiseLaw
    """Of these rows."""


def follow(reader: Any, noisy: Any, source: Source, queries: Sequence[Query]) -> Read:
    """What of some queries follows from noisy measurements; nothing about joins and persons that were not counted."""
    counted = as_counted(source.domain, batch_of(source.selections).relations)
    tables = {"", *(counted.tables if isinstance(counted, Database) else {counted.table: counted})}
    there = [q for q, query in enumerate(queries) if query.table in tables]
    read = _follow(reader, noisy, source, [queries[q] for q in there])
    follows, values = np.zeros(len(queries), dtype=bool), np.zeros(len(queries))
    follows[there], values[there] = read.follows, read.values
    placed = sparse.csr_array((np.ones(len(there)), (there, range(len(there)))), (len(queries), len(there)))
    rows = sparse.csr_array(placed @ read.rows)
    return Read(tuple(follows.tolist()), values, rows, reader.law(rows))


@singledispatch
def _follow(reader: Any, noisy: Any, source: Source, queries: Sequence[Query]) -> Read:
    raise ReleaseError(f"nothing more can be asked of answers that a {type(reader).__name__} has read; ask the release")


# ── cells ──


@_follow.register
def _(reader: CellReader, noisy: Any, source: Source, queries: Sequence[Query]) -> Read:
    batch: Any = source.cells() if source.blocks is not None else None
    asked = batch_of(source.selections)
    old, domain = asked.queries, as_counted(source.domain, asked.relations)
    if tuple(one.name for one in old) != reader.names:
        raise ReleaseError("release: its queries are not those of its SQL; it was edited")
    if batch is not None and not _same(batch.workload.matrix, reader.workload):
        raise ReleaseError("release: its cells are not those of its SQL and its domain; it was edited")
    try:
        kinds = _kinds([*old, *queries], domain)
    except QueryError:
        kinds = None  # a query that tells too many records apart
    groups = [range(len(queries))] if kinds is not None else [range(q, q + 1) for q in range(len(queries))]
    found = [_follow_cells(reader, batch, old, [queries[q] for q in own], domain, kinds) for own in groups]
    C = np.concatenate([weights for weights, _ in found])
    rows = sparse.csr_array(sparse.csr_array(C) * reader.noise_law.scale)
    law = reader.law(rows)
    return Read(tuple(ok for _, own in found for ok in own), C @ reader.in_records(noisy), rows, law)


def _same(found: Any, kept: sparse.csr_array) -> bool:
    one = sparse.csr_array(plain(found))
    return one.shape == kept.shape and float(abs(one - kept).max()) <= 1e-9 * max(1.0, float(abs(kept).max()))


def _kinds(queries: Sequence[Query], domain: Domain) -> Dense | None:
    """What a record of every kind adds to every query; None where kinds are too many."""
    cells: Any = cells_in(_named_apart(queries), domain, most=MOST_CELLS)
    found = cells.kinds
    if not found.shape[1] and len(getattr(cells, "parts", ())) == len(cells.sizes):
        found = cells.matrix  # of several tables, each in one block
    if not found.shape[1] or prod(found.shape) > MOST_ENTRIES:
        return None
    return np.unique(found.toarray(), axis=1)


def _named_apart(queries: Sequence[Query]) -> list[Query]:
    return [replace(one, name=f"q{q}") for q, one in enumerate(queries)]


def _follow_cells(
    reader: CellReader, batch: Any, old: Sequence[Query], queries: Sequence[Query], domain: Domain, kinds: Dense | None
) -> tuple[Dense, list[bool]]:
    """Weights of the measurements for each query, and whether they are the query."""
    nothing = np.zeros((len(queries), reader.measurements)), [False] * len(queries)
    try:
        own = _kinds([*old, *queries], domain) if kinds is None else kinds
    except QueryError:
        return nothing
    if own is None:
        return nothing
    asked, W = own[len(old) :], own[: len(old)]
    measured = None if batch is None else _measured(reader, batch.cells, W)
    B = None if measured is not None else dense(reader.reconstruct)
    law = replace(reader.noise_law, reconstruct=np.eye(reader.measurements) if B is None else B)
    C, missed = least_squares(W if measured is None else measured, asked, law.covariance, reader.bits)
    weights = C if B is None else C @ B
    allowed = TOLERANCE * np.abs(asked).max(axis=1, initial=0.0)
    allowed += CUT * np.abs(C).sum(axis=1) / 2.0**reader.bits if B is None else 0.0
    return weights, list(missed <= allowed)


def least_squares(measured: Dense, asked: Dense, covariance: Dense, bits: int) -> tuple[Dense, Dense]:
    """C with C M nearest to the queries, of least variance; and how far it is from each, at most.

    Args:
        measured: M, measurement × kind of record.
        asked: query × kind of record.
        covariance: of the noise in the measurements.
        bits: of the lattice, whose rounding is told from what was measured.
    """
    values, vectors = np.linalg.eigh(covariance)
    roots = np.sqrt(np.maximum(values, 1e-12 * values.max(initial=1e-300)))
    whitened = (vectors / roots).T @ measured
    cutoff = max(1e-10, 2.0 ** (8 - bits))
    C = np.linalg.lstsq(whitened.T, asked.T, rcond=cutoff)[0].T @ (vectors / roots).T
    return C, np.abs(asked - C @ measured).max(axis=1, initial=0.0)


def _measured(reader: CellReader, cells: Any, W: Dense) -> Dense | None:
    """What a record of every kind adds to the measurements, from what it adds to the queries of every block.

    None where that does not say in which cell it lies.
    """
    known, L = reader.workload.toarray(), reader.measure.toarray()
    found, start = np.zeros((len(L), W.shape[1])), 0
    spans = sum(len(block.queries) for block in cells.blocks) != len(W)
    if spans or known.shape[1] != sum(cells.sizes):
        return None
    for block, size in zip(cells.blocks, cells.sizes, strict=True):
        here, rows = slice(start, start + size), list(block.queries)
        ends = [(low, high) for low, high, _ in cells.ends if max(low, high) in range(start, start + size)]
        start += size
        places = {_key(column): k for k, column in enumerate(known[rows, here].T)}
        columns, back = np.unique(W[rows], axis=1, return_inverse=True)
        added = np.zeros((len(L), columns.shape[1]))
        for k, column in enumerate(columns.T):
            place = places.get(_key(column))
            if place is not None:
                added[:, k] = L[:, here][:, place]
            elif np.any(column):
                between = _between(column, known[rows], L, ends)
                if between is None:
                    return None
                added[:, k] = between
        found += added[:, back.reshape(-1)]
    return found


def _key(column: Dense) -> bytes:
    return (np.round(column, 9) + 0.0).tobytes()


def _between(column: Dense, known: Dense, L: Dense, ends: Sequence[tuple[int, int]]) -> Dense | None:
    """What a record between the two ends of a stretch adds to the measurements."""
    for low, high in ends:
        (one, other), (at_one, at_other) = (
            [matrix[:, cell] if cell >= 0 else np.zeros(len(matrix)) for cell in (low, high)] for matrix in (known, L)
        )
        step = other - one
        share = float((column - one) @ step / (step @ step))
        if 0 <= share <= 1 and np.abs(column - one - share * step).max() <= 1e-9 * max(1.0, np.abs(column).max()):
            return np.asarray(at_one + share * (at_other - at_one))
    return None


# ── tables ──


@_follow.register(TableReader)
@_follow.register(WeightedReader)
def _(reader: Any, noisy: Any, source: Source, queries: Sequence[Query]) -> Read:
    batch = source.tables()
    if not reader.workload.structure.asks_as(batch.workload.structure):
        raise ReleaseError("release: its tables are not those of its SQL and its domain; it was edited")
    domain = source.domain
    every = [*looking(source.selections, domain if max(source.marginals or (0,)) > 0 else None)]
    every += [part for query in queries for part in parts_of(query.amount)]
    atoms = split_by(every, domain, every_step=True)
    columns = Columns(batch, atoms)
    terms = [columns.terms(query) for query in queries]
    starts = np.concatenate([[0], np.cumsum([len(own or ()) for own in terms])]).astype(np.int64)
    flat = [one for own in terms for one in own or ()]
    T = sparse.csr_array(
        sparse.block_diag([np.array([[c for c, _ in own or ()]]).reshape(1, -1) for own in terms], format="csr")
    )
    values, rows = np.zeros(len(queries)), sparse.csr_array((len(queries), reader.measurements))
    best = np.full(len(queries), np.inf)
    tables = [table for _, table in flat]
    for other in _readings(reader, batch.workload.structure.asking(tables, _names(tables), np.ones(len(tables)))):
        good, numbers = _check(other, tables, T, starts), np.arange(len(tables))
        weights = sparse.csr_array(T @ other.rows(numbers))
        errors = other.law(weights).standard_errors
        found = T @ other.picked(numbers, noisy)
        better = np.array([own is not None for own in terms]) & np.array(good) & (errors < best)
        best, values = np.where(better, errors, best), np.where(better, found, values)
        rows = sparse.csr_array(sparse.diags_array(1.0 - better) @ rows + sparse.diags_array(1.0 * better) @ weights)
    return Read(tuple(np.isfinite(best).tolist()), values, rows, reader.law(rows))


def _names(tables: Sequence[Any]) -> tuple[str, ...]:
    return tuple(f"t{t}" for t in range(len(tables)))


def _readings(reader: Any, workload: KroneckerWorkload) -> Iterator[Any]:
    """Readers of other tables from the same measurements: one for every set of tables that is measured apart."""
    lattice = reader.lattice
    every, nothing = frozenset(range(len(workload.tables))), frozenset[int]()
    if isinstance(reader, WeightedReader):
        served = [getattr(own, "serves", None) for own in lattice.measures]
        if not all(hasattr(own, "serves") and hasattr(own, "insides") for own in lattice.measures):
            return
        for own in dict.fromkeys(served):
            parts = (
                replace(m, serves=every if s == own else nothing) for m, s in zip(lattice.measures, served, strict=True)
            )
            yield replace(lattice, workload=workload, measures=tuple(parts)).reader(reader.scales)
        return
    if lattice.is_whole:
        yield replace(lattice, workload=workload).reader(reader.scales)
        return
    for own in dict.fromkeys(group.tables for group in lattice.groups):
        groups = (
            replace(g, tables=None if g.tables is None else every if g.tables == own else nothing)
            for g in lattice.groups
        )
        yield replace(lattice, workload=workload, groups=tuple(groups)).reader(reader.scales)


def _check(reader: Any, tables: Sequence[Any], T: sparse.csr_array, starts: Indices) -> list[bool]:
    """Of every query whether what is read is what is asked, on products of random vectors that add up to 1."""
    good = [True] * T.shape[0]
    rng = np.random.default_rng(0)  # of mathematics: no data, and the same release answers the same questions
    numbers = np.arange(len(tables))
    for _ in range(PROBES):
        x = []
        for n in reader.workload.sizes:
            one = rng.standard_normal(n)
            x.append(one + (1 - one.sum()) / n)
        read = reader.picked(numbers, _measure_product(reader.lattice, x))
        true = np.array([prod((float((row @ x[c])[0]) for c, row in table.items()), start=1.0) for table in tables])
        size = np.array(
            [
                prod((float(np.linalg.norm(row) * np.linalg.norm(x[c])) for c, row in t.items()), start=1.0)
                for t in tables
            ]
        )
        missed, most = np.abs(T @ (read - true)), abs(T) @ size
        good = [own and bool(missed[q] <= TOLERANCE * most[q]) for q, own in enumerate(good)]
    return good


def _measure_product(lattice: Any, x: Sequence[Dense]) -> Dense:
    """What would be measured of a product of one vector a column, each of which adds up to 1."""
    found = np.zeros(lattice.measurements)
    for _, start, part in lattice.parts():
        own: Dense = np.ones(1) * part.weight
        for axis in part.axes:
            y: Dense = np.ones(1)
            for i, places, n in zip(axis.columns, axis.places, axis.sizes, strict=True):
                there = places >= 0
                y = np.asarray(np.kron(y, np.bincount(places[there], x[i][there], minlength=n)), dtype=np.float64)
            own = np.asarray(np.kron(own, axis.measure(y, 0) if axis.integers is None else axis.integers @ y))
        found[start : start + len(own)] = own
    return found


class Columns:
    """Queries in the columns of values that a release's tables look at.

    Args:
        batch: the tables.
        atoms: of every column, as the tables and the queries tell its values apart.
    """

    def __init__(self, batch: TableBatch, atoms: Sequence[Atoms]) -> None:
        self._batch, self._atoms = batch, atoms
        self._alive = [alive_of(one) for one in atoms]
        named = {one.column: i for i, one in enumerate(atoms)}
        self._home = {named[batch.atoms[i].column]: c for c, own in enumerate(batch.columns) for i in own.atoms}
        self._own = [[named[batch.atoms[i].column] for i in own.atoms] for own in batch.columns]
        self._values = [self._value_of(c) for c in range(len(batch.columns))]

    def _value_of(self, c: int) -> Indices:
        """The value of every combination of a column's atoms that a record can have."""
        column, batch = self._batch.columns[c], self._batch
        place = np.zeros((1,) * len(column.atoms), dtype=np.int64)
        for axis, (i, j) in enumerate(zip(column.atoms, self._own[c], strict=True)):
            coarse = coarsened(self._atoms[j], batch.atoms[i])[self._alive[j]]
            along = [-1 if other == axis else 1 for other in range(len(column.atoms))]
            place = place * batch.atoms[i].size + coarse.reshape(along)
        return np.asarray(column.value[place.reshape(-1)])

    def terms(self, query: Query) -> list[tuple[float, dict[int, Dense]]] | None:
        """A query as multiples of products of rows over the columns; None where it tells more values apart."""
        try:
            rows = rows_of(query, self._atoms, self._alive)
        except QueryError:
            return None
        if any(i not in self._home for i in rows.looked):
            return None
        homes = dict.fromkeys(self._home[i] for i in sorted(rows.looked))
        tied = tuple(c for c in homes if set(rows.tied) & set(self._own[c]))
        factor = 1.0 if rows.rows or rows.tied else float(rows.whole)
        table: dict[int, Dense] = {}
        for c in (c for c in homes if c not in tied):
            own = self._reduced(rows, (c,))
            if own is None:
                return None
            table[c] = own[None]
        if not tied:
            return [(factor, _short(table))]
        whole = self._reduced(rows, tied)
        if whole is None:
            return None
        # The widest column keeps its rows; of the others, each value is a product of its own.
        widest = int(np.argmax(whole.shape))
        slices = np.moveaxis(whole, widest, -1).reshape(-1, whole.shape[widest])
        others = [c for place, c in enumerate(tied) if place != widest]
        there = np.flatnonzero(np.any(slices, axis=1))
        if len(there) > MOST_TERMS:
            return None
        at = np.unravel_index(there, [n for place, n in enumerate(whole.shape) if place != widest]) if others else ()
        found = []
        for k, place in enumerate(there):
            own_rows = {c: np.eye(self._batch.columns[c].size)[[int(at[a][k])]] for a, c in enumerate(others)}
            found.append((factor, _short(table | own_rows | {tied[widest]: slices[[place]]})))
        return found or [(0.0, {})]

    def _reduced(self, rows: Rows, homes: tuple[int, ...]) -> Dense | None:
        """The part of a query on these columns, by their values; None where it is not the same for all of a value."""
        own = [i for c in homes for i in self._own[c]]
        array = rows.on(own, [len(self._alive[i]) for i in own])
        wide = np.broadcast_to(array, [len(self._alive[i]) for i in own]).reshape([len(self._values[c]) for c in homes])
        for axis, c in enumerate(homes):
            values, n = self._values[c], self._batch.columns[c].size
            known, first = np.unique(values, return_index=True)
            if not np.array_equal(known, np.arange(n)):
                return None
            kept = np.take(wide, first, axis=axis)
            if not np.allclose(np.take(kept, values, axis=axis), wide, rtol=1e-12, atol=0):
                return None
            wide = kept
        return np.asarray(wide, dtype=np.float64)


def _short(table: dict[int, Dense]) -> dict[int, Dense]:
    """Without the columns that do not matter, in ascending order."""
    return {c: row for c, row in sorted(table.items()) if not np.all(row == 1)}


def coarsened(fine: Atoms, coarse: Atoms) -> Indices:
    """For every atom of a column the one that it lies in, of fewer atoms of the same column."""
    found = np.zeros(fine.size, dtype=np.int64)
    found[-1] = coarse.size - 1  # NULL is the last of every kind
    if isinstance(fine, ListedAtoms) and isinstance(coarse, ListedAtoms):
        place = {value: i for i, group in enumerate(coarse.groups) for value in group}
        rest = len(coarse.groups)
        found[:-1] = [*(place.get(group[0], rest) for group in fine.groups), rest]
    elif isinstance(fine, LineAtoms) and isinstance(coarse, LineAtoms):
        found[:-1] = [0, *(sum(own <= cut for own in coarse.cuts) for cut in fine.cuts)]
    elif isinstance(fine, AmountAtoms) and isinstance(coarse, AmountAtoms):
        for i, one in enumerate(fine.stretches):
            home = coarse.stretches[sum(own <= fine.cuts[i - 1] for own in coarse.cuts) if i else 0]
            for atom, step in ((one.low, one.first), (one.high, one.last)):
                if atom is not None and home.low is not None and home.high is not None:
                    found[atom] = home.low if step == home.first else home.high
            if one.beside is not None and home.beside is not None:
                found[one.beside] = home.beside
    else:
        raise QueryError(f"column {fine.column!r} is looked at in another way than the release does")
    return found
