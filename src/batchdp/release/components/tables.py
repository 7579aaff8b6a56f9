"""A release of tables: private answers as arrays, made table by table when somebody looks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfinv

from batchdp.errors import ReleaseError
from batchdp.markup import summary
from batchdp.measuring.components.tables import TableReader
from batchdp.measuring.conversion import checked_delta, epsilon_at
from batchdp.measuring.law import checked_confidence
from batchdp.progress import Progress
from batchdp.release.components.certificate import ComponentCertificate
from batchdp.release.records import Answer
from batchdp.release.statements import headings
from batchdp.terminal import harmless
from batchdp.workloads.structure import Products, Table

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.consistent.tables import ConsistentTables

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_COVARIANCE = 4_000_000
"""Answers times measurements for which the covariance of all answers is made."""
CACHED = 4
"""Tables that are kept while answers are looked at one by one."""
NAMES_SHOWN = 5


@dataclass(frozen=True, eq=False)
class TableRelease:
    """Private tables with intervals and certificate; holds no exact count.

    Args:
        reader: how tables are read from the noisy measurements.
        noisy: the noisy integer measurements, component after component; as public as the answers.
        certificate: why this is private.
        column_names: what the columns are called.
        confidence: of the intervals.
    """

    reader: TableReader = field(repr=False)
    noisy: Integers = field(repr=False)
    certificate: ComponentCertificate
    column_names: tuple[str, ...]
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.noisy.shape != (self.reader.lattice.measurements,):
            raise ReleaseError(f"release: {self.noisy.shape} measurements for {self.reader.lattice.measurements:,}")
        if len(self.column_names) != len(self.workload.sizes):
            raise ReleaseError(f"release: {len(self.column_names)} names for {len(self.workload.sizes)} columns")

    @property
    def workload(self) -> Products:
        """The batch that is answered."""
        return self.reader.lattice.workload

    @property
    def tables(self) -> Sequence[Table]:
        """The tables, each with its name, the numbers of its columns and its shape."""
        return self.workload.tables

    @property
    def answers(self) -> LazyAnswers:
        """Every query's answer, table after table, made when it is looked at."""
        return LazyAnswers(self)

    def values(self, table: int) -> Dense:
        """The private answers of a table, by its number, as an array of the table's shape."""
        return self.reader.values(self._checked(table), self.noisy)

    def standard_errors(self, table: int) -> Dense:
        """Of a table's answers, as an array of its shape."""
        number = self._checked(table)
        return np.broadcast_to(np.sqrt(self.reader.variances(number)), self.reader.shape(number))

    def half_widths(self, table: int) -> Dense:
        """Of the intervals, as an array of the table's shape."""
        return np.asarray(self.standard_errors(table) * np.sqrt(2) * erfinv(self.confidence))

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value, standard_error, low, high.

        Args:
            columns: the group columns, by name or number from 0, in any order; none for the total.
            name: of the table, where several have these columns; enough by itself.
        """
        import pandas as pd

        number = self.find(*columns, name=name)
        shown = self.workload.tables[number].columns
        order = [self._column(column) for column in columns] or list(shown)
        frame = pd.DataFrame(columns_of(self, number), copy=False)
        return frame.iloc[:, [*(shown.index(i) for i in order), *range(len(shown), frame.shape[1])]]

    def consistent(self, *, whole: bool = False, progress: Progress | None = None) -> ConsistentTables:
        """The closest tables that agree on everything they share and have no negative cell.

        The total and the one-way margins are settled first, then the closest tables with these, in the metric of the
        noise. Biased upwards where cells are near empty; the intervals stay those of the noisy answers. Ctrl-C gives
        the best so far.

        Args:
            whole: round them; `rounding` says what no longer adds up.
            progress: called with (share, what is being done).
        """
        from batchdp.release.consistent.tables import consistent_tables

        return consistent_tables(self, whole=whole, progress=progress)

    def find(self, *columns: str | int, name: str | None = None) -> int:
        """The number of the table with these group columns, or this name; refused if it is none, or one of several."""
        batch = self.workload
        wanted = tuple(sorted(self._column(column) for column in columns))
        lengths = np.diff(batch.starts)
        fitting = np.arange(len(lengths))
        if columns or name is None:
            fitting = np.flatnonzero(lengths == len(wanted))
            own = batch.columns[batch.starts[fitting][:, None] + np.arange(len(wanted))]
            fitting = fitting[np.all(own == np.array(wanted, dtype=np.int64), axis=1)]
        if name is not None:
            fitting = np.array([t for t in fitting if batch.tables[int(t)].name == name], dtype=np.int64)
        asked = ", ".join(repr(column) for column in columns) + (f", name={name!r}" if name is not None else "")
        if len(fitting) == 0:
            raise ReleaseError(
                f"no table has columns {asked or 'none'}; `tables` lists them, `column_names` the columns"
            )
        if len(fitting) > 1:
            names = ", ".join(repr(batch.tables[int(t)].name) for t in fitting[:NAMES_SHOWN])
            raise ReleaseError(f"{len(fitting)} tables have columns {asked or 'none'}; give name=, one of {names}")
        return int(fitting[0])

    @property
    def covariance(self) -> Dense:
        """Of the noise in all answers, m × m; refused where it does not fit: look at `standard_errors(table)`."""
        m, r = self.workload.queries, self.reader.lattice.measurements
        if m * max(m, r) > MOST_COVARIANCE:
            raise ReleaseError(
                f"the covariance of {m:,} answers from {r:,} measurements does not fit; standard_errors(table) has the "
                "variances of one table, and a batch of fewer tables has a covariance"
            )
        B = self.reconstruction()
        scales = np.repeat(self.reader.scales, self.reader.lattice.sizes)
        return np.asarray((B * np.square(scales)) @ B.T)

    def reconstruction(self) -> Dense:
        """B on the noisy integers, answer × measurement, one measurement at a time: for small releases."""
        found = []
        for k in range(self.reader.lattice.measurements):
            one = np.zeros(self.reader.lattice.measurements, dtype=np.int64)
            one[k] = 1
            tables = range(len(self.workload.tables))
            found.append(np.concatenate([self.reader.values(t, one).reshape(-1) for t in tables]))
        return np.column_stack(found) if found else np.zeros((self.workload.queries, 0))

    def with_confidence(self, confidence: float) -> TableRelease:
        """The same release with other intervals."""
        checked_confidence(confidence)
        return replace(self, confidence=confidence)

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of this release."""
        return epsilon_at(self.certificate.budget, checked_delta(delta))

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without pickle, under a digest; readable by `load_release`."""
        from batchdp.release.components.file import save_tables

        save_tables(self, path)

    def _column(self, column: str | int) -> int:
        if isinstance(column, str) and column in self.column_names:
            return self.column_names.index(column)
        whole = isinstance(column, (int, np.integer)) and not isinstance(column, bool)
        if whole and 0 <= int(column) < len(self.column_names):
            return int(column)
        raise ReleaseError(f"column {column!r} is not one of {', '.join(map(repr, self.column_names[:20]))}")

    def _checked(self, table: int) -> int:
        count = len(self.workload.tables)
        if isinstance(table, bool) or not isinstance(table, (int, np.integer)) or not -count <= table < count:
            raise ReleaseError(f"table={table!r} is not one of {count:,} tables; count from 0, or use find(…)")
        return range(count)[int(table)]

    def __repr__(self) -> str:
        c = self.certificate
        whose = harmless(f"{c.neighbours}, unit: {c.privacy_unit}, id {c.release_id}")
        return (
            f"TableRelease({self.workload.queries:,} answers in {len(self.tables):,} tables, ρ = {c.budget:g}, {whose})"
        )

    def _repr_html_(self) -> str:
        c, tables = self.certificate, self.tables
        facts = {
            "budget": f"ρ = {c.budget:g}",
            "neighbours": c.neighbours,
            "privacy unit": c.privacy_unit,
            "table": c.table,
            "release": c.release_id,
            "components": f"{len(c.components):,}",
        }
        return summary(
            f"Release of {self.workload.queries:,} private answers in {len(tables):,} tables",
            facts,
            headings=("table", "shape"),
            rows=[(one.name, " × ".join(map(str, one.shape))) for one in tables[:NAMES_SHOWN]],
            more=max(0, len(tables) - NAMES_SHOWN),
        )


def columns_of(release: TableRelease, table: int) -> dict[str, NDArray[Any]]:
    """A table as columns: the numbers of its groups, value, standard_error, low, high."""
    own = release.workload.tables[table]
    values = release.values(table).reshape(-1)
    errors = release.standard_errors(table).reshape(-1)
    half = release.half_widths(table).reshape(-1)
    found: dict[str, NDArray[Any]] = {}
    for axis, heading in enumerate(headings([release.column_names[i] for i in own.columns])):
        inner, outer = prod(own.shape[axis + 1 :]), prod(own.shape[:axis])
        found[heading] = np.tile(np.repeat(np.arange(own.shape[axis], dtype=np.int32), inner), outer)
    return {**found, "value": values, "standard_error": errors, "low": values - half, "high": values + half}


class LazyAnswers(Sequence[Answer]):
    """All answers of a release, table after table; a table is read when one of its answers is looked at."""

    def __init__(self, release: TableRelease) -> None:
        self._release = release
        sizes = release.workload.table_sizes()
        self._ends = np.cumsum(sizes.astype(np.int64))
        self._read = lru_cache(maxsize=CACHED)(self._table)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        t = int(np.searchsorted(self._ends, i, side="right"))
        start = int(self._ends[t - 1]) if t else 0
        name, shape, values, errors, half = self._read(t)
        return _answer(name, shape, i - start, values, errors, half)

    def __iter__(self) -> Iterator[Answer]:
        for t in range(len(self._ends)):
            name, shape, values, errors, half = self._table(t)
            for k in range(len(values)):
                yield _answer(name, shape, k, values, errors, half)

    def _table(self, t: int) -> tuple[str, tuple[int, ...], Dense, Dense, Dense]:
        own, release = self._release.workload.tables[t], self._release
        arrays = release.values(t), release.standard_errors(t), release.half_widths(t)
        return own.name, own.shape, *(one.reshape(-1) for one in arrays)

    def __repr__(self) -> str:
        return f"<{len(self):,} answers, made when looked at>"


def _answer(name: str, shape: tuple[int, ...], k: int, values: Dense, errors: Dense, half: Dense) -> Answer:
    place = ",".join(str(int(i)) for i in np.unravel_index(k, shape)) if shape else ""
    value, error, width = float(values[k]), float(errors[k]), float(half[k])
    return Answer(f"{name} {place}".rstrip(), value, error, value - width, value + width)
