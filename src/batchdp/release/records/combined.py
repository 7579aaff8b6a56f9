"""What records of a combined release are fitted to: the tables of its parts, with what all parts say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Indices
from batchdp.mechanism.combined import CombinedReader
from batchdp.mechanism.reader import CellReader
from batchdp.release.beside import Beside
from batchdp.release.records.fitting import Axis, FittedTable, Fitting, Heading, fit_tables, fitting
from batchdp.text import Progress
from batchdp.workloads.encode import TableBatch
from batchdp.workloads.encode.atoms import Atoms
from batchdp.workloads.encode.common import common_atoms, mixture

if TYPE_CHECKING:
    from batchdp.release.release import Release

NO_COLUMNS = (
    "records: no part of this combination has tables over columns, as those of plan --marginals are, and together its "
    "cells are too many kinds of records; draw records from one part, or combine releases of plan --for-records"
)


@fitting.register(CombinedReader)
def _(
    reader: CombinedReader, release: Release, beside: Beside, table: str | None = None, progress: Progress | None = None
) -> Fitting:
    """Kinds of records where these are few; else columns, whose values are told apart as finely as any part does."""
    if release.kinds is not None and release.kinds.shape[1]:
        return fitting.dispatch(CellReader)(reader, release, beside, table, progress)
    parts = [(part, batch) for part in release.parts if isinstance(batch := _batch(part), TableBatch)]
    fine = _fine([batch for _, batch in parts])
    names, known = tuple(fine), _Known(release, beside)
    headings: dict[str, dict[tuple[str, tuple[str, ...]], Heading]] = {name: {} for name in names}
    for part, batch in parts:
        own = fit_tables(part, part.linear_values)
        values = [_values(batch, c, fine) for c in range(len(own.sizes))]
        named = [batch.atoms[batch.columns[c].atoms[0]].column for c in range(len(own.sizes))]
        for c, there in enumerate(values):
            if there is not None:
                for one in own.headings[c]:
                    headings[named[c]].setdefault((one.name, one.titles), replace(one, place=one.place[there]))
        axes: dict[int, Axis] = {}
        for a, axis in enumerate(own.axes):
            there = values[axis.column]
            if there is not None:
                axes[a] = Axis(names.index(named[axis.column]), axis.group[there], axis.rows)
        known.add(part, own, axes)
    complete = [table for table in known.tables if all(known.axes[a].complete for a in table.axes)]
    if not complete or not any(table.axes for table in known.tables):
        raise ReleaseError(NO_COLUMNS)
    taken = {table.name for table in known.tables}
    return Fitting(
        names,
        tuple(len(mixture(atoms, atoms).indices) for atoms in fine.values()),
        tuple(known.axes),
        tuple(known.tables),
        tuple(tuple(own.values()) for own in headings.values()),
        max(float(complete[0].counts.sum()), 1.0),
        tuple(table.name for table in release.tables if table.name not in taken),
    )


def _batch(part: Release) -> object:
    return None if part.source is None else part.source.batch


def _fine(batches: Sequence[TableBatch]) -> dict[str, Atoms]:
    """Of every column atoms that are fine enough for all batches."""
    found: dict[str, list[Atoms]] = {}
    for batch in batches:
        for column in batch.columns:
            if len(column.atoms) == 1:
                own = batch.atoms[column.atoms[0]]
                found.setdefault(own.column, []).append(own)
    return {name: common_atoms(own) for name, own in found.items()}


def _values(batch: TableBatch, c: int, fine: dict[str, Atoms]) -> Indices | None:
    """The value that every fine atom is for a batch; None where columns are tied together or one lies across two."""
    column = batch.columns[c]
    if len(column.atoms) != 1:
        return None
    own = batch.atoms[column.atoms[0]]
    shares = mixture(fine[own.column], own)
    shares.eliminate_zeros()
    if np.any(np.diff(shares.indptr) != 1):
        return None
    return np.asarray(column.value[shares.indices], dtype=np.int64)


class _Known:
    """Tables of the parts, once each, as the combination has them."""

    def __init__(self, release: Release, beside: Beside) -> None:
        self.release, self.beside = release, beside
        self.axes, self.tables = list[Axis](), list[FittedTable]()
        self._places: dict[tuple[int, bytes], int] = {}
        self._taken = set[str]()
        self._by_name = {table.name: t for t, table in enumerate(release.tables)}

    def add(self, part: Release, own: Fitting, axes: dict[int, Axis]) -> None:
        """All tables of a part whose columns are known."""
        for table in own.tables:
            if axes.keys() >= set(table.axes):
                self._add(part, table, tuple(axes[a] for a in table.axes))

    def _add(self, part: Release, table: FittedTable, axes: Sequence[Axis]) -> None:
        """A table with what the combination says of it: of one name for two things, one is numbered there."""
        there, shape = part.tables[part.find(name=table.name)], table.counts.shape
        for name in (table.name, *(f"{table.name} ({k})" for k in range(2, len(self.release.parts) + 1))):
            t = self._by_name.get(name)
            one = None if t is None else self.release.tables[t]
            if t is None or one is None or (one.columns, one.groups.texts()) != (there.columns, there.groups.texts()):
                continue
            if name not in self._taken:
                self._taken.add(name)
                figures = self.release.figures(t)
                counts, raw = (x.reshape(shape) for x in (self.beside.of_table(one), figures.values))
                noise = float(figures.standard_errors.sum())
                self.tables.append(FittedTable(name, tuple(map(self._place, axes)), counts, raw, noise))
            return

    def _place(self, axis: Axis) -> int:
        key = axis.column, axis.group.tobytes()
        if key not in self._places:
            self._places[key] = len(self.axes)
            self.axes.append(axis)
        return self._places[key]
