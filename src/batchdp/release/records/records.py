"""`records`: synthetic records from a release, how close they are to it, and what must be said of them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.archive import write_atomically
from batchdp.errors import ReleaseError, check_whole
from batchdp.linalg.threads import one_thread
from batchdp.release.records import combined  # noqa: F401 (registers how combinations are fitted)
from batchdp.release.records.exchange import exchange_values
from batchdp.release.records.fitting import Codes, FittedTable, Fitting, answers_of, fitting
from batchdp.release.records.tree import draw_from_tree
from batchdp.release.records.values import name_values
from batchdp.text import Outcome, Progress

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.release import Release

MOST_BYTES = 16e9
NOBODY = (
    "These records are nobody's: they were drawn at random so that their tables are close to those of release {id} "
    "({strength}), without looking at the data. They cost no privacy beyond that release, and no row is a person."
)
KEPT = (
    "What the release has no table of is not preserved: take conclusions about more columns together, about rare "
    "combinations or about single records from the data alone."
)
ONE_TABLE = (
    "The release counts several tables of persons. These records are of one table at a time: they say nothing of which "
    "rows belong to one person, nor of which rows of one table go with which of another."
)
STOPPED = "The work was stopped: these records are the best so far."
UNASKED_SHOWN = 10


@dataclass(frozen=True)
class Distance:
    """How far the records of one table are from it, as a share of all records.

    Args:
        name: of the table.
        cells: how many it has.
        denoised: the L1 distance to the denoised table, which the records were fitted to.
        released: the same to the table as it was released.
        noise: the standard errors of the released table, added up: what the second can be expected to have.
    """

    name: str
    cells: int
    denoised: float
    released: float
    noise: float


@dataclass(frozen=True, eq=False)
class Records:
    """Synthetic records of a release.

    Args:
        release: what they were drawn from.
        columns: their values, by the names of columns.
        codes: the same as numbers, record × column of `fitting`.
        fitting: what they were fitted to.
        method: how the first ones were drawn.
        status: how the work ended.
        seed: what was random came from it.
        said: notes on values.
    """

    release: Release = field(repr=False)
    columns: dict[str, NDArray[Any]] = field(repr=False)
    codes: Codes = field(repr=False)
    fitting: Fitting = field(repr=False)
    method: str
    status: Outcome
    seed: int
    said: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def distances(self) -> list[Distance]:
        """How far off they are in every table that they were fitted to."""
        return [self._distance(table) for table in self.fitting.tables]

    def _distance(self, table: FittedTable) -> Distance:
        axes, n, total = [self.fitting.axes[a] for a in table.axes], len(self), self.fitting.total
        groups = [axis.group[self.codes[:, axis.column]] for axis in axes]
        inside = np.all([group >= 0 for group in groups], axis=0) if groups else np.ones(n, dtype=bool)
        shape = [axis.rows for axis in axes]
        place = np.ravel_multi_index([group[inside] for group in groups], shape) if shape else np.zeros(n, dtype=int)
        now = np.bincount(place, minlength=table.counts.size) / n
        denoised, released = (
            float(np.abs(now - own.reshape(-1) / total).sum()) for own in (table.counts, table.released)
        )
        return Distance(table.name, table.counts.size, denoised, released, table.noise / total)

    @cached_property
    def unasked(self) -> list[tuple[str, str]]:
        """Pairs of columns that no table has together."""
        together = {pair for table in self.fitting.tables for pair in self._pairs_in(table)}
        return [pair for pair in combinations(self.columns, 2) if frozenset(pair) not in together]

    def _pairs_in(self, table: FittedTable) -> Iterator[frozenset[str]]:
        names = {
            own.name
            for a in table.axes
            for own in self.fitting.headings[self.fitting.axes[a].column]
            if np.array_equal(own.place >= 0, self.fitting.axes[a].group >= 0) or own.name in self.columns
        }
        if len(self.fitting.sizes) == 1:  # cells: a table's own columns alone
            names = set(self.release.tables[self.release.find(name=table.name)].columns)
        yield from map(frozenset, combinations(sorted(names), 2))

    @property
    def summary(self) -> str:
        """How close they are, in one sentence."""
        large = [own for own in self.distances if own.cells > 1]
        mean = [float(np.mean([getattr(own, what) for own in large])) for what in ("denoised", "released", "noise")]
        return (
            f"{len(self):,} records. Over {len(large):,} tables they are off the denoised answers by {mean[0]:.3g} of "
            f"all records on average, off the released ones by {mean[1]:.3g}, whose noise is {mean[2]:.3g} "
            f"({self.method}; {self.status})."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside them: sentences for files, pages and the terminal."""
        certificate = self.release.certificate
        found = [NOBODY.format(id=certificate.release_id, strength=certificate.strength), KEPT]
        if self.unasked:
            named = ", ".join(f"{one} × {other}" for one, other in self.unasked[:UNASKED_SHOWN])
            more = len(self.unasked) - UNASKED_SHOWN
            found.append(f"In no table together: {named}" + (f" and {more:,} pairs more." if more > 0 else "."))
        if self.fitting.others:
            found.append(f"{len(self.fitting.others):,} tables of sums, running totals or tied columns are left aside.")
        if self.release.counted is not None and len(self.release.counted.tables) > 1:
            found.append(ONE_TABLE)
        return (*found, *self.said, *([STOPPED] if self.status is Outcome.CANCELLED else []))

    @property
    def metadata(self) -> dict[str, str]:
        """What files say of them."""
        certificate = self.release.certificate
        return {
            "what": "synthetic records, not data",
            "release_id": certificate.release_id,
            "privacy": certificate.strength,
            "seed": str(self.seed),
            "notes": " ".join(self.notes),
        }

    def to_frame(self) -> pd.DataFrame:
        """The records as a frame, whose `attrs` say what they are."""
        import pandas as pd

        frame = pd.DataFrame(self.columns)
        frame.attrs = dict(self.metadata)
        return frame

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write them as Parquet or CSV, by the ending of the path; what they are is said in the file, or beside it."""
        target = Path(path)
        writer = WRITERS.get(target.suffix.lower())
        if writer is None:
            raise ReleaseError(
                f"{target} ends in {target.suffix or 'nothing'}; records are written to .parquet or .csv"
            )
        writer(self, target)
        return target

    def __repr__(self) -> str:
        return f"Records({len(self):,} records of {len(self.columns):,} columns; {self.method}; {self.status})"


def _parquet(records: Records, target: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in records.columns.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(records.metadata), sink)
    write_atomically(target, sink.getvalue().to_pybytes(), ReleaseError)


def _csv(records: Records, target: Path) -> None:
    from batchdp.release.exports import no_formula

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(no_formula, records.columns))
    cells = [[_shown(one, no_formula) for one in values.tolist()] for values in records.columns.values()]
    writer.writerows(zip(*cells, strict=True))
    write_atomically(target, text.getvalue().encode(), ReleaseError)
    content = {"@context": "http://www.w3.org/ns/csvw", "url": target.name, **records.metadata}
    beside = target.with_name(f"{target.name}-metadata.json")
    write_atomically(beside, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode(), ReleaseError)


def _shown(value: Any, no_formula: Callable[[str], str]) -> Any:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return no_formula(value)
    return str(value).lower() if isinstance(value, bool) else value


WRITERS: dict[str, Callable[[Records, Path], None]] = {".parquet": _parquet, ".csv": _csv}


def records_memory(release: Release, n: int | None = None) -> float:
    """The most bytes that drawing takes, roughly.

    Args:
        release: the release that the records follow.
        n: how many records; if left out, the result is what is needed before any record is drawn.
    """
    cells = sum(int(size) for size in release.reader.sizes)
    columns = max(1, len(release.column_names))
    return 3e8 + 1e5 * len(release.reader.sizes) + 120.0 * cells + (0 if n is None else n) * (100.0 + 30.0 * columns)


@one_thread
def draw_records(
    release: Release, n: int | None = None, seed: int = 0, *, table: str | None = None, progress: Progress | None = None
) -> Records:
    """Draw records whose tables are as close as can be to the denoised ones of a release. Nothing else is read.

    Args:
        release: the release that they follow.
        n: how many records; if left out, as many as the release says there are.
        seed: the same release and seed give the same records.
        table: whose rows they are, where the release counts several tables.
        progress: called with (share done, what is being done).
    """
    check_whole("seed", seed, 0, ReleaseError)
    wanted = None if n is None else check_whole("n", n, 1, ReleaseError)
    answers_of(release, table)  # refuses tables that are none, or several
    _check_memory(release, wanted)

    def part(start: float, end: float) -> Progress | None:
        return None if progress is None else lambda share, what: progress(start + (end - start) * share, what)

    denoised = release.denoised(progress=part(0.0, 0.3))
    known = fitting(release.reader, release, denoised, table, part(0.3, 0.32))
    n = max(1, round(known.total)) if wanted is None else wanted
    _check_memory(release, n)
    rng = np.random.default_rng(seed)
    tables = known.together()
    codes, status = draw_from_tree(known.margins(), tables, n, rng, part(0.32, 0.4))
    stopped = Outcome.CANCELLED in (denoised.status, status)
    status = Outcome.CANCELLED if stopped else exchange_values(known, codes, rng, part(0.4, 1.0))
    kinds = "kinds of records by their shares" if known.cells is not None else "each column by itself"
    method = "junction tree, then exchanges" if tables else kinds
    columns, said = name_values(known, codes, release.counted, rng)
    return Records(release, columns, codes, known, method, status, seed, (*denoised.said, *said))


def _check_memory(release: Release, n: int | None) -> None:
    needed = records_memory(release, n)
    if needed > MOST_BYTES:
        raise ReleaseError(
            f"records: {'' if n is None else f'{n:,} records with '}{len(release.reader.sizes):,} tables need some "
            f"{needed / 1e9:,.0f} GB, more than {MOST_BYTES / 1e9:,.0f}; give a smaller n, or release fewer tables"
        )
