"""Consistent tables of a release over many columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.consistency.cells import closest_cells
from batchdp.consistency.faces import Columns, closure, maximal, split_table, spread
from batchdp.consistency.rounding import round_controlled
from batchdp.consistency.tables import closest_tables
from batchdp.errors import ReleaseError
from batchdp.mechanism.components.lattice import WholeGroups
from batchdp.mechanism.weighted.integers import IntegerResults
from batchdp.outcome import Outcome
from batchdp.progress import Progress
from batchdp.release.consistent.notes import Rounding, beside, notes
from batchdp.release.consistent.records import counted, in_units_of_noise
from batchdp.release.consistent.whole import Wholes, whole_tables
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import Table

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.components.tables import TableRelease


Dense = NDArray[np.float64]

MOST_ANSWERS = 100_000_000
"""Cells of the tables that are no margin of another: each takes some 70 bytes."""
MOST_CELLS = 100_000
"""Combinations of all columns' values for which tables that are not whole are fitted."""
MOST_ENTRIES = 20_000_000
"""Coefficients of their queries."""


@dataclass(frozen=True, eq=False)
class ConsistentTables:
    """Tables that agree on everything they share and have no negative cell. Post-processing, free of charge.

    Args:
        release: what was released; its answers and intervals stay as they are.
        read: the consistent values of a table, by its number.
        status: how the search ended.
        gap: how far the squared distance to the noisy answers may be above the least, as a share of it.
        lifted: records that were moved to make tables agree where the search ended early, as a share of all.
        rounding: what whole numbers cost; None where they were not asked for.
    """

    release: TableRelease = field(repr=False)
    read: Callable[[int], Dense] = field(repr=False)
    status: Outcome
    gap: float
    lifted: float
    rounding: Rounding | None = None

    def values(self, table: int) -> Dense:
        """The consistent values of a table, by its number, as an array of the table's shape."""
        count = len(self.tables)
        if isinstance(table, bool) or not isinstance(table, (int, np.integer)) or not -count <= table < count:
            raise ReleaseError(f"table={table!r} is not one of {count:,} tables; count from 0")
        return self.read(range(count)[int(table)])

    @property
    def tables(self) -> Sequence[Table]:
        """As those of the release."""
        return self.release.tables

    def each(self) -> Iterator[float]:
        """The values one by one, in the order of the release's answers."""
        for t in range(len(self.tables)):
            yield from self.values(t).reshape(-1).tolist()

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these tables."""
        return notes(self.status, self.rounding, self.lifted)

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value and raw, which is the noisy answer."""
        number = self.release.find(*columns, name=name)
        return beside(self.release.table(*columns, name=name), self.values(number).reshape(-1))

    def __repr__(self) -> str:
        whole = ", whole" if self.rounding is not None else ""
        return f"ConsistentTables({len(self.tables):,} tables that agree{whole}; {self.status})"


def consistent_tables(release: TableRelease, *, whole: bool, progress: Progress | None) -> ConsistentTables:
    """Fit components, or cells where tables are not whole; round them if asked."""
    batch = release.workload
    fitting = [t for t in range(len(batch.tables)) if all(f.given is None for f in batch.factors_of(t).values())]
    if len(fitting) < len(batch.tables) and _fits(batch):
        return _from_cells(release, whole=whole, progress=progress)
    asked = [release.tables[t].columns for t in fitting]
    within = [next((A for A in asked if set(own.columns) <= set(A)), None) for own in release.tables]
    if None in within:
        raise ReleaseError(
            f"consistent: some tables ask for ranges or groups of values, and all columns together have more than "
            f"{MOST_CELLS:,} cells or {MOST_ENTRIES:,} coefficients; ask also for a whole table of these columns, of "
            "which ranges and groups are sums, or release tables of fewer columns"
        )
    answers = sum(prod(batch.sizes[i] for i in own) for own in maximal(asked))
    if answers > MOST_ANSWERS:
        raise ReleaseError(
            f"consistent: {answers:,} cells in the largest tables, more than the {MOST_ANSWERS:,} that fit into 8 GB; "
            "release tables of fewer columns"
        )
    fitted = closest_tables(*estimates(release, fitting), asked, batch.sizes, progress=progress)
    read, rounding = _reader(release, fitting, fitted.table), None
    if whole:
        wholes = whole_tables(lambda k: fitted.table(asked[k]), asked, release.column_names, progress)
        before, read = read, _reader(release, fitting, lambda own: _margin_of(wholes, asked, own))
        rounding = wholes.rounding.with_moves(
            np.abs(read(t) - before(t)) for t in range(len(batch.tables)) if t not in set(fitting)
        )
    return ConsistentTables(release, read, fitted.status, fitted.gap, fitted.lifted, rounding)


def _reader(release: TableRelease, fitting: Sequence[int], cells: Callable[[Columns], Dense]) -> Callable[[int], Dense]:
    """Whole tables as they are, others as what they ask of the whole table of their columns."""
    known = set(fitting)

    def read(table: int) -> Dense:
        found = cells(release.tables[table].columns)
        if table not in known:
            for axis, factor in enumerate(release.workload.factors_of(table).values()):
                if factor.given is not None:
                    found = np.moveaxis(np.tensordot(factor.matrix, found, axes=(1, axis)), 0, axis)
        return np.asarray(found)

    return read


def _margin_of(wholes: Wholes, asked: Sequence[Columns], own: Columns) -> Dense:
    """A table of whole numbers, or the margin of the first that has its columns."""
    k = asked.index(own) if own in asked else next(k for k, A in enumerate(asked) if set(own) <= set(A))
    others = tuple(axis for axis, i in enumerate(asked[k]) if i not in own)
    return np.asarray(wholes.tables[k].sum(axis=others), dtype=np.float64)


def estimates(release: TableRelease, tables: Sequence[int]) -> tuple[dict[Columns, Dense], dict[Columns, float]]:
    """The components of these whole tables, and one over the variance of the noise in each.

    What the release knows of its components, else from the standard errors: tables with noise of their own are averaged
    and add up what they know; of tables that are read from the same measurements the best counts.
    """
    asked, known = [release.tables[t].columns for t in tables], component_variances(release)
    if known is not None:
        first: dict[Columns, Dense] = {}
        for own in maximal(asked):  # tables agree on them already
            parts = split_table(release.values(tables[asked.index(own)]), own)
            first.update((C, z) for C, z in parts.items() if C not in first)
        return first, {C: 1 / known[C] if known.get(C, 0.0) > 0 else 1.0 for C in first}
    sizes, same = release.workload.sizes, _measured_together(release)
    found: dict[Columns, Dense] = {}
    total, best = dict.fromkeys(closure(asked), 0.0), dict.fromkeys(closure(asked), 0.0)
    for t, table in zip(tables, asked, strict=True):
        variance = max(float(np.square(release.standard_errors(t)).mean()), 1e-300)
        for C, part in split_table(release.values(t), table).items():
            precision = 1 / variance / spread(C, table, sizes)
            total[C] += precision
            best[C] = max(best[C], precision)
            found[C] = found[C] + (part - found[C]) * (precision / total[C]) if C in found else part
    return found, best if same else total


def _measured_together(release: TableRelease) -> bool:
    """Whether all tables are read from one group of measurements, of which none has noise of its own for a table."""
    measures: Sequence[object] = getattr(release.reader.lattice, "measures", ())
    return len(measures) == 1 and not isinstance(measures[0], IntegerResults)


def component_variances(release: TableRelease) -> dict[Columns, float] | None:
    """Of the noise in every component that was measured by itself; None where that is not what was measured."""
    groups = getattr(release.reader.lattice, "groups", None)
    if not isinstance(groups, WholeGroups):
        return None
    found = {}
    for g, group in enumerate(groups):
        (part,) = group.parts()
        (piece,) = part.pieces
        found[part.columns] = (float(release.reader.scales[g]) * float(piece.recover[0, 0])) ** 2
    return found


def _from_cells(release: TableRelease, *, whole: bool, progress: Progress | None) -> ConsistentTables:
    """Where tables ask for ranges or groups: non-negative cells that fit all answers, weighted by their variances."""
    batch = release.workload
    rows = [batch.matrix_of(t) for t in range(len(batch.tables))]
    values = [release.values(t).reshape(-1) for t in range(len(rows))]
    errors = [release.standard_errors(t).reshape(-1) for t in range(len(rows))]
    W = sparse.csr_array(sparse.vstack(rows))
    fitted = closest_cells(*in_units_of_noise(W, np.concatenate(values), np.concatenate(errors)), progress=progress)
    x, rounding = fitted.x, None
    if whole:
        x = round_controlled(fitted.x, counted(W))[0].astype(np.float64)
        moves = np.abs(W @ x - W @ fitted.x)
        rounding = Rounding(float(moves.max(initial=0.0)), int(np.count_nonzero(moves >= 1)))

    def read(table: int) -> Dense:
        return np.asarray(rows[table] @ x).reshape(batch.tables[table].shape)

    return ConsistentTables(release, read, fitted.status, 0.0, 0.0, rounding)


def _fits(batch: KroneckerWorkload) -> bool:
    """Whether all columns together have so few cells that each is fitted."""
    entries = 0
    for t in range(len(batch.tables)) if batch.cells <= MOST_CELLS else ():
        own = batch.factors_of(t)
        entries += prod(int(np.count_nonzero(own[i].matrix)) if i in own else n for i, n in enumerate(batch.sizes))
    return batch.cells <= MOST_CELLS and entries <= MOST_ENTRIES
