"""What was measured, and what was asked, as functions of a record: what batches that share no cells have in common.

A design knows no data: a batch as it is counted, and how its answers are read from noisy measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.domain.relations import Relation
from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.functions import Column, Component, Functions, Rows, added, contrasts, coordinates, expand, times
from batchdp.mechanism.reader import CellReader, Reader
from batchdp.mechanism.tables import IntegerAxis, LatticeReader
from batchdp.plans.encoding import CellBatch, Encoding
from batchdp.sql.persons import Relations
from batchdp.workloads.encode import TableBatch
from batchdp.workloads.encode.atoms import Atoms
from batchdp.workloads.encode.cells import WHOLE, Block, Cells
from batchdp.workloads.encode.common import common_atoms, mixture
from batchdp.workloads.encode.demands import alive_of
from batchdp.workloads.encode.several import SeveralCells

MOST_KINDS = 4_000_000
"""Of records, times the functions that they are looked at for."""
LARGEST_FACTOR = 4_000_000
"""Entries of what is measured along some columns that are tied together."""


@dataclass(frozen=True, eq=False)
class Design:
    """A batch as it is counted, and how its answers are read."""

    batch: Encoding
    reader: Reader

    def measured(self, among: Columns) -> Rows:
        """What was measured, each in units of its noise: of variance 1, or of scale 1."""
        return _measured(self.reader, self.batch, among)

    def asked(self, among: Columns) -> Rows:
        """The linear answers."""
        return _asked(self.batch, self.reader, among)


class Columns:
    """All columns that some batches look at, with atoms that are fine enough for each of them."""

    def __init__(self, batches: Iterable[Encoding]) -> None:
        found: dict[Column, list[Atoms]] = {}
        self._relations = Relations()
        for batch in batches:
            for of, atoms in atoms_of(batch):
                for one in atoms:
                    found.setdefault((self.called(of), one.column), []).append(one)
        self._fine = {column: common_atoms(own) for column, own in found.items()}
        self._known: dict[tuple[Column, Atoms], Dense] = {}

    def called(self, of: str | Relation) -> str:
        """What a table is called here, or a relation, which is the same one in every batch that makes it alike."""
        return of if isinstance(of, str) else f"{self._relations.keep(of).name}\0"  # which no table's name has

    def of(self, table: str, own: Atoms) -> tuple[Column, Dense]:
        """A column, and its coordinates from what a function is on the batch's own atoms that a record can have."""
        column = table, own.column
        if (column, own) not in self._known:
            self._known[column, own] = coordinates(mixture(self._fine[column], own)[:, alive_of(own)])
        return column, self._known[column, own]

    def mean_square(self, component: Component) -> float:
        """Of every coordinate of a component, over all kinds of records alike."""
        _, columns = component
        return 1.0 / prod(len(alive_of(self._fine[column])) for column in columns)

    def kinds(self, rows: Rows) -> sparse.csr_array:
        """What a record of every kind adds to some functions; without columns where kinds are too many, or unknown."""
        tables = {table for table, _ in self._fine}
        sizes = {column: len(alive_of(own)) for column, own in self._fine.items()}
        kinds = prod(sizes.values())
        if len(tables) > 1 or kinds * max(1, rows.count) > MOST_KINDS:
            return sparse.csr_array((rows.count, 0))
        found = np.zeros((rows.count, *sizes.values()))
        for start, part in rows.parts:
            for (_, columns), F in part.items():
                for place, column in enumerate(columns, 1):
                    F = np.moveaxis(np.tensordot(F, contrasts(sizes[column]), axes=(place, 1)), -1, place)
                order = np.argsort([list(sizes).index(column) for column in columns])
                shape = [size if column in columns else 1 for column, size in sizes.items()]
                found[start : start + len(F)] += F.transpose(0, *(1 + order)).reshape(len(F), *shape)
        near = np.rint(found)
        found = np.where(np.abs(found - near) <= WHOLE * np.maximum(1, np.abs(near)), near, found)
        return sparse.csr_array(np.unique(found.reshape(rows.count, kinds), axis=1))


@singledispatch
def atoms_of(batch: Any) -> Iterable[tuple[str | Relation, Sequence[Atoms]]]:
    """The atoms of every table and relation of a batch; one table has no name here."""
    return [("", batch.atoms)]


@atoms_of.register
def _(batch: CellBatch) -> Iterable[tuple[str | Relation, Sequence[Atoms]]]:
    return [(of, cells.atoms) for of, _, cells in _tables(batch)]


# ── Cells: a function is given by a number for each, and a record has one cell in every block.


def _by_blocks(batch: CellBatch, rows: Any, among: Columns) -> Rows:
    """Functions of cells, as a matrix with a column for each; a row of a table may be counted several times."""
    columns = sparse.csc_array(rows)
    parts: list[Functions] = []
    start = 0
    for of, often, cells in _tables(batch):
        for block in cells.blocks:
            own = often * columns[:, start : (start := start + block.classes.size)]
            parts.append(_of_block(among.called(of), cells.atoms, block, own.toarray(), among))
    if start != columns.shape[1]:
        raise ReleaseError("release: its cells are not those of its SQL")
    return Rows(columns.shape[0], ((0, added(parts)),))


def counted_cells(batch: CellBatch, among: Columns) -> Rows:
    """How many records are in every cell."""
    return _by_blocks(batch, sparse.eye_array(sum(batch.cells.sizes), format="csc"), among)


def _tables(batch: CellBatch) -> Iterator[tuple[str | Relation, int, Cells]]:
    """What is counted, how many times each of its rows, and by which cells."""
    if not isinstance(batch.cells, SeveralCells):
        yield "", 1, batch.cells
        return
    domain = batch.cells.domain
    relations = {one.name: one for one in domain.relations}
    for part in batch.cells.parts:
        own = part.table if len(domain.declared) > 1 else ""
        yield relations.get(part.table, own), part.times, part.cells


def _of_block(table: str, atoms: Sequence[Atoms], block: Block, values: Dense, among: Columns) -> Functions:
    looked = [i for i, found in enumerate(block.classes.transitions) if found is not None]
    alive = [alive_of(atoms[i]) for i in looked]
    shape = [len(own) for own in alive]
    columns = [among.of(table, atoms[i]) for i in looked]
    # Checked before all combinations are gone through.
    if prod(shape) * max(1, len(values)) > LARGEST_FACTOR * 10:
        named = ", ".join(atoms[i].column for i in looked)
        raise ReleaseError(
            f"release: {len(values):,} functions of {prod(shape):,} combinations of {named} are too many to be "
            "combined; ask for fewer columns at once"
        )
    codes = np.zeros((prod(shape), len(atoms)), dtype=np.int64)
    for i, own, at in zip(looked, alive, np.unravel_index(np.arange(prod(shape)), shape) if shape else (), strict=True):
        codes[:, i] = own[at]
    cells = block.classes.of(codes)
    return expand(table, columns, np.where(cells >= 0, values[:, np.maximum(cells, 0)], 0.0))


# ── Tables: a measurement is a product of what is measured along its axes.


def _along(batch: TableBatch, looked: Sequence[int], values: Dense, among: Columns) -> Functions:
    """Functions of the values of some columns of a batch, the last column fastest."""
    rows, atoms = len(values), batch.atoms
    found = values.reshape(rows, *(batch.columns[c].size for c in looked))
    shape: list[int] = []
    for axis, c in enumerate(looked, 1):
        own = batch.columns[c]
        alive = [alive_of(atoms[i]) for i in own.atoms]
        of = own.value.reshape([atoms[i].size for i in own.atoms])[np.ix_(*alive)].reshape(-1)
        found = np.take(found, of, axis=axis)
        shape += map(len, alive)
    columns = [among.of("", atoms[i]) for c in looked for i in batch.columns[c].atoms]
    return expand("", columns, found.reshape(rows, -1))


def _of_axis(batch: TableBatch, axis: IntegerAxis, among: Columns) -> Functions:
    n = prod(axis.sizes)
    if (axis.rows * n) > LARGEST_FACTOR:
        raise ReleaseError(f"release: {axis.rows:,} measurements along one column are too many to be combined")
    K = np.eye(n) if axis.integers is None else np.asarray(axis.integers, dtype=np.float64)
    K = n * K - 1.0 if axis.is_centred else K
    seen = K.reshape(len(K), *axis.sizes)
    for place, own in enumerate(axis.places, 1):
        there = np.take(seen, np.maximum(own, 0), axis=place)
        seen = there * (own >= 0).reshape([-1 if i == place else 1 for i in range(there.ndim)])
    return _along(batch, axis.columns, seen.reshape(len(K), -1), among)


def _product(parts: Iterable[Functions]) -> Functions:
    found: Functions = {("", ()): np.ones(1)}
    for part in parts:
        found = times(found, part)
    return found


# ── By the kind of reader, and of batch.


@singledispatch
def _measured(reader: Any, batch: Any, among: Columns) -> Rows:
    raise ReleaseError(f"release: nothing says what a {type(reader).__name__} has measured of a record")


@_measured.register
def _(reader: CellReader, batch: CellBatch, among: Columns) -> Rows:
    return _by_blocks(batch, reader.measure / reader.noise_law.scale, among)


@_measured.register
def _(reader: LatticeReader, batch: TableBatch, among: Columns) -> Rows:
    known: dict[int, tuple[IntegerAxis, Functions]] = {}  # which hold on to the ids
    parts = []
    for g, start, part in reader.lattice.parts():
        for axis in part.axes:
            if id(axis) not in known:
                known[id(axis)] = axis, _of_axis(batch, axis, among)
        scale = part.weight / float(reader.scales[g])
        found = _product(known[id(axis)][1] for axis in part.axes)
        parts.append((start, {component: scale * F for component, F in found.items()}))
    return Rows(reader.measurements, tuple(parts))


@singledispatch
def _asked(batch: Any, reader: Any, among: Columns) -> Rows:
    raise ReleaseError(f"release: nothing says what a {type(batch).__name__} asks of a record")


@_asked.register
def _(batch: CellBatch, reader: Any, among: Columns) -> Rows:
    return _by_blocks(batch, batch.cells.matrix, among)


@_asked.register
def _(batch: TableBatch, reader: Any, among: Columns) -> Rows:
    workload = batch.workload
    known: dict[tuple[int, int], Functions] = {}
    parts = []
    for t, (start, _) in enumerate(pairwise(reader.starts.tolist())):
        own = workload.factors_of(t)
        for axis, factor in own.items():
            if (axis, id(factor)) not in known:
                known[axis, id(factor)] = _along(batch, workload.looked_at(axis), factor.matrix, among)
        parts.append((start, _product(known[axis, id(factor)] for axis, factor in own.items())))
    return Rows(reader.answers, tuple(parts))
