"""A release of tables: private answers as arrays, made table by table when somebody looks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.asking.legend import Legend
from batchdp.domain.counted import Counted, describe_counted
from batchdp.errors import ReleaseError
from batchdp.mechanism.components.tables import TableReader
from batchdp.mechanism.conversion import epsilon_of
from batchdp.mechanism.law import checked_confidence
from batchdp.mechanism.weighted.tables import WeightedReader
from batchdp.privacy import Budget
from batchdp.progress import Progress
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import save_release
from batchdp.release.records import Answer
from batchdp.release.statements import headings
from batchdp.terminal import sanitise
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import Table

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
        legend: what the rows of tables are called; their numbers, if there is none.
        counted: what is counted, before any noise; None where an older version did not keep it.
    """

    reader: TableReader | WeightedReader = field(repr=False)
    noisy: Integers = field(repr=False)
    certificate: PrivacyCertificate
    column_names: tuple[str, ...]
    confidence: float = 0.95
    legend: Legend | None = field(default=None, repr=False)
    counted: Counted | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.noisy.shape != (self.reader.lattice.measurements,):
            raise ReleaseError(f"release: {self.noisy.shape} measurements for {self.reader.lattice.measurements:,}")
        if len(self.column_names) != len(self.workload.sizes):
            raise ReleaseError(f"release: {len(self.column_names)} names for {len(self.workload.sizes)} columns")

    @property
    def workload(self) -> KroneckerWorkload:
        """The batch that is answered."""
        return self.reader.lattice.workload

    @property
    def tables(self) -> Sequence[Table]:
        """The tables, each with its name, the numbers of its columns and its shape."""
        return self.workload.tables

    @property
    def notes(self) -> tuple[str, ...]:
        """What is counted, in sentences: what neither the noise nor the intervals are about."""
        return describe_counted(self.counted, self.certificate.largest_total)

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
        number = self._checked(table)
        return np.broadcast_to(self.reader.half_widths(number, self.confidence), self.reader.shape(number))

    def headings(self, table: int) -> tuple[str, ...]:
        """The names of a table's group columns, in the order in which its rows vary, the last fastest."""
        number = self._checked(table)
        if self.legend is not None:
            return tuple(key.heading for key in self.legend.keys_of(self.workload, number))
        return tuple(self.column_names[i] for i in self.workload.tables[number].columns)

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value, standard_error, low, high.

        Args:
            columns: the group columns, by name or number from 0, in any order; none for the total.
            name: of the table, where several have these columns; enough by itself.
        """
        import pandas as pd

        number = self.find(*columns, name=name)
        shown = list(self.headings(number))
        order = [self._called(column) for column in columns] or shown
        frame = pd.DataFrame(columns_of(self, number), copy=False)
        return frame.iloc[:, [*(shown.index(one) for one in order), *range(len(shown), frame.shape[1])]]

    def consistent(self, *, whole: bool = False, progress: Progress | None = None) -> ConsistentTables:
        """The closest tables that agree on everything they share and have no negative cell.

        The total and the one-way margins are settled first, then the closest tables with these, in the metric of the
        noise. Biased upwards where cells are near empty; the intervals stay those of the noisy answers. Ctrl-C gives
        the best so far, as does half an hour of processor time.

        Args:
            whole: round them; `rounding` says what no longer adds up.
            progress: called with (share, what is being done).
        """
        from batchdp.release.consistent.tables import consistent_tables

        return consistent_tables(self, whole=whole, progress=progress)

    def find(self, *columns: str | int, name: str | None = None) -> int:
        """The number of the table with these group columns, or this name; refused if it is none, or one of several."""
        batch = self.workload
        fitting = list(range(len(batch.tables)))
        if columns or name is None:
            fitting = self._by_headings.get(tuple(sorted(self._called(column) for column in columns)), [])
        if name is not None:
            fitting = [t for t in fitting if batch.tables[t].name == name]
        asked = ", ".join(repr(column) for column in columns) + (f", name={name!r}" if name is not None else "")
        if len(fitting) == 0:
            raise ReleaseError(
                f"no table has columns {asked or 'none'}; `tables` lists them, `column_names` the columns"
            )
        if len(fitting) > 1:
            names = ", ".join(repr(batch.tables[t].name) for t in fitting[:NAMES_SHOWN])
            raise ReleaseError(f"{len(fitting)} tables have columns {asked or 'none'}; give name=, one of {names}")
        return fitting[0]

    @cached_property
    def _by_headings(self) -> dict[tuple[str, ...], list[int]]:
        """The tables of every set of group columns."""
        found: dict[tuple[str, ...], list[int]] = {}
        for t in range(len(self.workload.tables)):
            found.setdefault(tuple(sorted(self.headings(t))), []).append(t)
        return found

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
        return np.asarray(self.certificate.noise.variance_at_one * (B * np.square(scales)) @ B.T)

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
        return epsilon_of(Budget(self.certificate.noise, self.certificate.budget), delta)

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without pickle, under a digest; readable by `load_release`."""
        save_release(self, path)

    def _called(self, column: str | int) -> str:
        """The heading of a group column that is given by its name or number."""
        known = self.column_names
        if self.legend is not None:
            known = tuple(dict.fromkeys((*known, *(key.heading for key in self.legend.keys))))
        if isinstance(column, str) and column in known:
            return column
        whole = isinstance(column, (int, np.integer)) and not isinstance(column, bool)
        if whole and 0 <= int(column) < len(self.column_names):
            return self.column_names[int(column)]
        raise ReleaseError(f"column {column!r} is not one of {', '.join(map(repr, known[:20]))}")

    def _checked(self, table: int) -> int:
        count = len(self.workload.tables)
        if isinstance(table, bool) or not isinstance(table, (int, np.integer)) or not -count <= table < count:
            raise ReleaseError(f"table={table!r} is not one of {count:,} tables; count from 0, or use find(…)")
        return range(count)[int(table)]

    def __repr__(self) -> str:
        c = self.certificate
        whose = sanitise(f"{c.neighbours}, unit: {c.privacy_unit}, id {c.release_id}")
        size = f"{self.workload.queries:,} answers in {len(self.tables):,} tables"
        return f"TableRelease({size}, {Budget(c.noise, c.budget)}, {whose})"

    def _repr_html_(self) -> str:
        from batchdp.release.looking import in_notebook

        return in_notebook(self)


def columns_of(release: TableRelease, table: int) -> dict[str, NDArray[Any]]:
    """A table as columns: the titles or numbers of its groups, value, standard_error, low, high."""
    values = release.values(table).reshape(-1)
    errors = release.standard_errors(table).reshape(-1)
    half = release.half_widths(table).reshape(-1)
    if release.legend is not None:
        groups = [titles for _, titles in release.legend.columns(release.workload, table)]
    else:
        shape = release.workload.tables[table].shape
        places = [np.arange(n, dtype=np.int32) for n in shape]
        inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        outer = [prod(shape[:axis]) for axis in range(len(shape))]
        groups = [np.tile(np.repeat(own, i), o) for own, i, o in zip(places, inner, outer, strict=True)]
    found = dict(zip(headings(release.headings(table)), groups, strict=True))
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
        return self._answer(t, i - start, *self._read(t))

    def __iter__(self) -> Iterator[Answer]:
        for t in range(len(self._ends)):
            values, errors, half = self._table(t)
            for k in range(len(values)):
                yield self._answer(t, k, values, errors, half)

    def _table(self, t: int) -> tuple[Dense, Dense, Dense]:
        release = self._release
        return (
            release.values(t).reshape(-1),
            release.standard_errors(t).reshape(-1),
            release.half_widths(t).reshape(-1),
        )

    def _answer(self, t: int, k: int, values: Dense, errors: Dense, half: Dense) -> Answer:
        value, error, width = float(values[k]), float(errors[k]), float(half[k])
        return Answer(self._name(t, k), value, error, value - width, value + width)

    def _name(self, t: int, k: int) -> str:
        """Of an answer: its table's, and its groups as SQL's are called, or their numbers."""
        own, legend = self._release.workload.tables[t], self._release.legend
        if legend is not None:
            groups = legend.row(self._release.workload, t, k)
            return f"{own.name}[{groups}]" if groups else own.name
        place = ",".join(str(int(i)) for i in np.unravel_index(k, own.shape)) if own.shape else ""
        return f"{own.name} {place}".rstrip()

    def __repr__(self) -> str:
        return f"<{len(self):,} answers, made when looked at>"
