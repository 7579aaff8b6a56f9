"""A release: answers that may be published, with what is needed to judge them. One kind, whatever measured them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain.counted import Counted, describe_counted
from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.conversion import epsilon_of
from batchdp.mechanism.derived import evaluated
from batchdp.mechanism.law import MOST_CONFIDENCE, bounded_widths, checked_confidence
from batchdp.mechanism.reader import Reader
from batchdp.plans.source import Source
from batchdp.privacy import Budget
from batchdp.queries.expressions import Asked, parts_of
from batchdp.queries.views import View
from batchdp.release.answers import Answers, Figures, FoundFigures, figures_of, renumber
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import save_release
from batchdp.release.said import Said
from batchdp.release.tables import MADE, Block, Layout, Table, Titles, headings
from batchdp.text import Live, Progress, draw, sanitise
from batchdp.workloads.encode import Legend

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from batchdp.release.asking import FreeAnswers
    from batchdp.release.consistency.release import Consistent
    from batchdp.release.denoise.denoised import Denoised
    from batchdp.release.shown import Rows

Key = TypeVar("Key")

MOST_COVARIANCE = 40_000_000
"""Answers times measurements for which the covariance of all answers is made."""
MOST_SIMULATED = 4_000_000
"""Answers times measurements for which simultaneous intervals are simulated."""
MOST_ROWS = 10_000_000
"""Of one frame, or of arrays over all answers."""
CACHED = 4
"""Tables that are kept while answers are looked at one by one."""
NAMES_SHOWN = 5
SIMULATED = "simulated from the joint law of the noise"
BOUNDED = "a union bound: each answer may miss with an equal part of what all may miss together"


@dataclass(frozen=True, eq=False)
class Release(Live):
    """Private answers with intervals, joint law and certificate; holds no exact count.

    Args:
        reader: how linear answers are read from the noisy measurements.
        noisy: the measurements with their noise, in whole numbers; as public as the answers.
        certificate: why this is private.
        column_names: what the columns are called that tables look at.
        confidence: the confidence of the intervals.
        asked: what was asked for, in the order of `answers`, where that is not every linear answer as it is.
        legend: what the rows of tables are called; their names or numbers, if there is none.
        counted: what is counted, before any noise; None where an older version did not keep it.
        given: all linear answers as they were given first; read from the measurements if left out.
        views: what the SQL shows of its answers, where that is not all.
        source: what was asked of which domain; None where it was no plan.
        parts: the releases that it was combined from, if it was.
        kinds: what a record of every kind adds to every linear answer, where measured cells lie in several blocks and
            are no kinds of records; without columns where nobody can say.
    """

    reader: Reader = field(repr=False)
    noisy: NDArray[Any] = field(repr=False)
    certificate: PrivacyCertificate
    column_names: tuple[str, ...] = ()
    confidence: float = 0.95
    asked: Sequence[Asked[int]] = field(default=(), repr=False)
    legend: Legend | None = field(default=None, repr=False)
    counted: Counted | None = field(default=None, repr=False)
    given: Dense | None = field(default=None, repr=False)
    kinds: sparse.csr_array | None = field(default=None, repr=False)
    views: tuple[View, ...] = field(default=(), repr=False)
    source: Source | None = field(default=None, repr=False)
    parts: tuple[Release, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        answers = self.reader.answers
        if self.noisy.shape != (self.reader.measurements,):
            raise ReleaseError(f"release: {self.noisy.shape} measurements for {self.reader.measurements:,}")
        if self.given is not None and self.given.shape != (answers,):
            raise ReleaseError(f"release: its parts do not fit together, {self.given.shape} for {answers:,} answers")
        if self.kinds is not None and self.kinds.shape[0] != answers:
            raise ReleaseError(f"release: kinds of records for {self.kinds.shape[0]:,} answers, not {answers:,}")
        if (titles := self.layout.titles) is not None and len(self.column_names) != len(titles.workload.sizes):
            raise ReleaseError(f"release: {len(self.column_names)} names for {len(titles.workload.sizes)} columns")
        if any(not 0 <= part < answers for one in self.layout.listed[1] for part in parts_of(one.of)):
            raise ReleaseError(f"release: what was asked for is about other queries than its {answers}")

    @cached_property
    def layout(self) -> Layout:
        """Which answers are shown, in which order and in which tables."""
        reader: Any = self.reader
        titles = Titles(reader.workload, self.column_names, self.legend) if reader.names is None else None
        return Layout(self.reader, titles, self.asked)

    # Linear answers, by their tables

    def linear_values(self, table: int) -> Dense:
        """The linear answers of a table, by its number, in one dimension."""
        if self.given is None:
            return self.reader.values(table, self.noisy).reshape(-1)
        return self.given[self.reader.starts[table] : self.reader.starts[table + 1]]

    @cached_property
    def linear_figures(self) -> Callable[[int], Figures]:
        """Values and errors of a table of linear answers, by its number; the last few are kept."""
        return lru_cache(maxsize=CACHED)(lambda table: Figures(self, table))

    @property
    def linear_answers(self) -> Dense:
        """All linear answers, table after table, parts of derived ones among them."""
        if self.given is not None:
            return self.given
        return np.concatenate([self.linear_values(t) for t in range(len(self.reader.sizes))])

    def picked(self, numbers: NDArray[np.int64]) -> Dense:
        """Some linear answers, by their numbers."""
        return self.reader.picked(numbers, self.noisy) if self.given is None else self.given[numbers]

    # All answers

    @property
    def answers(self) -> Answers:
        """Every answer that was asked for with its standard error and interval, each computed when it is looked at."""
        return Answers(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all answers."""
        layout = self.layout
        return tuple(layout.name(block, k) for block in layout.each_block() for k in range(block.size))

    @cached_property
    def values(self) -> Dense:
        """The private answers, in the order of `answers`; NaN where an answer is not determined."""
        return self._all("values")

    @cached_property
    def standard_errors(self) -> Dense:
        """The standard error of the noise in every answer; a quantile has none."""
        return self._all("standard_errors")

    @cached_property
    def half_widths(self) -> Dense:
        """Half the width of every answer's interval; a derived answer need not lie in the middle of its interval."""
        return self._all("half_widths")

    @property
    def is_derived(self) -> NDArray[np.bool_]:
        """For every answer, whether it is computed from others."""
        found = np.zeros(len(self.layout), dtype=bool)
        places, own = self.layout.listed
        found[places] = [one.derived for one in own]
        return found

    def _all(self, name: str) -> Dense:
        self._check_rows("an array")
        parts = [getattr(self.block_figures(block), name) for block in self.layout.each_block()]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _check_rows(self, what: str) -> None:
        if len(self.layout) > MOST_ROWS * 20 or (what == "a frame" and len(self.layout) > MOST_ROWS):
            raise ReleaseError(
                f"{len(self.layout):,} answers are too many for {what}; look at one table with table(…), or write all "
                "with export"
            )

    def block_figures(self, block: Block) -> Figures:
        """Values and errors of answers that are shown one after the other."""
        if block.linear is not None:
            return self.linear_figures(block.linear)
        return self.listed_figures.at(block.among_listed)

    @cached_property
    def listed_figures(self) -> FoundFigures:
        """Values and errors of all that is shown and is not a whole table of linear answers."""
        return figures_of(self, self.layout.listed[1], self.confidence)

    def evaluated(self, read: Callable[[int], Dense]) -> Iterator[tuple[Block, Dense]]:
        """What is shown, block by block, from other linear answers than the private ones, given table by table; what
        these do not determine is not determined by others either."""
        kept = lru_cache(maxsize=CACHED)(lambda table: read(table).reshape(-1))
        numbers, own = renumber(self.layout.listed[1]) if self.asked else (np.zeros(0, dtype=np.int64), [])
        listed = np.zeros(0)
        if own:
            values = np.zeros(len(numbers))
            for t, where, places in self.reader.split(numbers):
                values[where] = kept(t)[places]
            listed = np.where(np.isnan(self.listed_figures.values), np.nan, evaluated(own, values))
        for block in self.layout.each_block():
            yield block, listed[block.among_listed] if block.linear is None else kept(block.linear)

    def simultaneous(self, confidence: float | None = None) -> Answers:
        """The answers with intervals that hold what all would be without noise, at once, with this confidence.

        They are simulated from the joint law of the noise; of very many answers, from very many measurements, they are
        those of a union bound, which is wider. The result's `how` says which.
        """
        confidence = confidence or self.confidence
        checked_confidence(confidence)
        listed = self.layout.listed[1]
        derived = sum(one.derived for one in listed)
        # Half of what may miss for the linear answers at once, and the other half shared by the derived ones.
        missed = (1 - confidence) / 2 if derived else 1 - confidence
        if derived and missed / derived < 1 - MOST_CONFIDENCE:
            raise ReleaseError(
                f"simultaneous intervals of {derived:,} derived answers at {confidence:g} need a confidence "
                f"beyond {MOST_CONFIDENCE} for each; ask for a lower one"
            )
        reader = self.reader
        shown = self.linear_numbers
        numbers = np.union1d(shown, renumber(listed)[0]) if derived else np.sort(shown)
        if len(numbers) * reader.measurements <= MOST_SIMULATED:
            half, how = reader.law(reader.rows(numbers)).simultaneous_half_widths(1 - missed), SIMULATED

            def widths(table: int, place: int) -> float:
                return float(half[np.searchsorted(numbers, reader.starts[table] + place)])
        else:
            times, how = float(bounded_widths(reader.noise, np.ones(()), 1 - missed, len(numbers))), BOUNDED

            def widths(table: int, place: int) -> float:
                return times * float(self.linear_figures(table).standard_errors[place])

        each = figures_of(self, listed, 1 - missed / derived) if derived else None
        return Answers(self, widths, each, how)

    # Tables

    @cached_property
    def tables(self) -> Sequence[Table]:
        """The tables, each with its name, its group columns, its shape and the answers that belong to it."""
        return self.layout.tables()

    def figures(self, table: int | Table) -> Figures:
        """Values, standard errors and intervals of a table, by its number, in one dimension."""
        one = table if isinstance(table, Table) else self.tables[self.checked_table(table)]
        if one.linear is not None:
            return self.linear_figures(one.linear)
        places = np.asarray(one.answers, dtype=np.int64)
        if not self.asked:
            return Figures(self, 0, places)
        return self.listed_figures.at(np.searchsorted(self.layout.listed[0], places))

    def derived_in(self, table: Table) -> NDArray[np.bool_]:
        """For every answer of a table, whether it is computed from others."""
        if table.linear is not None or not self.asked:
            return np.zeros(table.queries, dtype=bool)
        return np.array([self.layout.is_derived(q) for q in table.answers])

    def array(self, table: int) -> Dense:
        """The private answers of a table, by its number, as an array of the table's shape."""
        return self.figures(table).values.reshape(self.tables[self.checked_table(table)].shape)

    def columns(self, table: int) -> dict[str, NDArray[Any]]:
        """A table as columns: its groups, then value, standard_error, low and high."""
        one = self.tables[self.checked_table(table)]
        found, groups = self.figures(one), one.groups.arrays()
        figures = (found.values, found.standard_errors, found.low, found.high)
        return {**dict(zip(headings(one.columns), groups, strict=True)), **dict(zip(MADE, figures, strict=True))}

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value, standard_error, low, high.

        Args:
            columns: the group columns, by name or number from 0, in any order; none for a single number. A lone word
                that is no column is the name of a table.
            name: of the table, where several have these columns; enough by itself.
        """
        import pandas as pd

        number = self.find(*columns, name=name)
        shown = list(self.tables[number].columns)
        called = [column if isinstance(column, str) else self._called(column) for column in columns]
        order = called if sorted(called) == sorted(shown) else shown  # a lone word may be the table's name
        frame = pd.DataFrame(self.columns(number), copy=False)
        return frame.iloc[:, [*(shown.index(one) for one in order), *range(len(shown), frame.shape[1])]]

    def to_frame(self) -> pd.DataFrame:
        """Every answer as a row: table, name, value, standard_error, low, high, derived."""
        import pandas as pd

        self._check_rows("a frame")
        tables = np.empty(len(self.layout), dtype=object)
        for table in self.tables:
            tables[np.asarray(table.answers)] = table.name
        ends = {end: self._all(end) for end in ("low", "high")}
        figures = {"value": self.values, "standard_error": self.standard_errors, **ends, "derived": self.is_derived}
        return pd.DataFrame({"table": tables, "name": self.names, **figures})

    def shown(self) -> dict[str, pd.DataFrame]:
        """Every table as the SQL shows it: a frame by the table's name, after ORDER BY, LIMIT, OFFSET and HAVING.

        Where several tables have one name, each stands under its title, such as `n by year`. Rows that are ordered by
        an answer have the ranks that they can have by the intervals. `to_frame` has all.
        """
        from batchdp.release.shown import frames

        return frames(self)

    @cached_property
    def shown_rows(self) -> list[Rows]:
        """The rows that are shown of statements with ORDER BY, LIMIT, OFFSET or HAVING."""
        from batchdp.release.shown import Rows

        return [Rows(self, view) for view in self.views]

    def find(self, *columns: str | int, name: str | None = None) -> int:
        """The number of the table with these group columns, or this name; refused if there is none, or several."""
        word = columns[0] if len(columns) == 1 else None
        if name is None and isinstance(word, str) and (word,) not in self._by_headings and word in self._by_name:
            columns, name = (), word
        fitting: Sequence[int] = range(len(self.tables))
        if columns or name is None:
            fitting = self._by_headings.get(tuple(sorted(self._called(column) for column in columns)), [])
        if name is not None:
            fitting = [t for t in self._by_name.get(name, []) if t in fitting]
        if len(fitting) == 1:
            return int(fitting[0])
        asked = ", ".join(repr(column) for column in columns) + (f", name={name!r}" if name is not None else "")
        if not fitting:
            raise ReleaseError(
                f"no table has columns {asked or 'none'}; `tables` lists them, such as {self._some(range(NAMES_SHOWN))}"
            )
        raise ReleaseError(
            f"{len(fitting)} tables have columns {asked or 'none'}; give name=, one of "
            f"{self._some(fitting[:NAMES_SHOWN])}"
        )

    def _some(self, tables: Sequence[int]) -> str:
        return ", ".join(repr(self.tables[t].name) for t in tables if t < len(self.tables))

    @cached_property
    def _by_headings(self) -> dict[tuple[str, ...], list[int]]:
        return _list_places(tuple(sorted(table.columns)) for table in self.tables)

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        return _list_places(table.name for table in self.tables)

    @cached_property
    def _headings(self) -> dict[str, None]:
        """All group columns, in their order."""
        return dict.fromkeys((*self.column_names, *(column for own in self._by_headings for column in own)))

    def _called(self, column: str | int) -> str:
        """The heading of a group column that is given by its name or number."""
        if isinstance(column, str) and column in self._headings:
            return column
        whole = isinstance(column, (int, np.integer)) and not isinstance(column, bool)
        if whole and 0 <= int(column) < len(self.column_names):
            return self.column_names[int(column)]
        known = ", ".join(map(repr, list(self._headings)[:20])) or "none, for there are none"
        raise ReleaseError(f"column {column!r} is not one of {known}; nor is it the name of a table")

    def checked_table(self, table: int) -> int:
        """The number of a table, from 0; refused if there is none."""
        count = len(self.tables)
        if isinstance(table, bool) or not isinstance(table, (int, np.integer)) or not -count <= table < count:
            raise ReleaseError(f"table={table!r} is not one of {count:,} tables; count from 0, or use find(…)")
        return range(count)[int(table)]

    # What follows from the answers

    @property
    def covariance(self) -> Dense:
        """The covariance of the noise in all answers but derived ones; refused where it does not fit into memory."""
        numbers = self.linear_numbers
        m, r = len(numbers), self.reader.measurements
        if m * max(m, r) > MOST_COVARIANCE:
            raise ReleaseError(
                f"the covariance of {m:,} answers from {r:,} measurements does not fit into memory; "
                "standard_errors has the error of each; for a covariance, release fewer tables"
            )
        return self.reader.law(self.reader.rows(numbers)).covariance

    @property
    def linear_numbers(self) -> NDArray[np.int64]:
        """The linear answers that are shown, by their numbers, in the order of `answers`."""
        starts, layout, found = self.reader.starts, self.layout, [np.zeros(0, dtype=np.int64)]
        for block in layout.each_block():
            if block.linear is not None:
                found.append(np.arange(starts[block.linear], starts[block.linear + 1]))
            else:
                own = layout.listed[1][block.among_listed]
                found.append(np.array([one.of for one in own if isinstance(one.of, int)], dtype=np.int64))
        return np.concatenate(found)

    @property
    def charged(self) -> tuple[Release, ...]:
        """The releases that a ledger knows: its parts, or itself."""
        return self.parts or (self,)

    def with_confidence(self, confidence: float) -> Release:
        """The same release with other intervals."""
        checked_confidence(confidence)
        return replace(self, confidence=confidence)

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of this release: its own, or by the noise that was drawn."""
        return epsilon_of(Budget(self.certificate.noise, self.certificate.budget), delta, self.certificate.least_scale)

    def rounded(self) -> Dense:
        """Whole numbers nearest to the answers, but derived ones: an error of at most ½, unbiased for wide noise."""
        return np.where(self.is_derived, self.values, np.rint(self.values))

    def non_negative(self) -> Dense:
        """Answers below 0 raised to 0, but derived ones: closer to a truth that is not, but biased upwards near 0."""
        return np.where(self.is_derived, self.values, np.maximum(self.values, 0.0))

    def consistent(self, *, whole: bool = False, progress: Progress | None = None) -> Consistent:
        """The closest answers that agree with one another and with records that could exist: nowhere below 0.

        Over tables of many columns the total and the one-way margins are settled first, then the closest tables with
        these, in the metric of the noise; over cells, the non-negative counts that fit all answers best. Biased upwards
        where cells are near empty, and downwards elsewhere; the intervals stay those of the noisy answers. Derived
        answers are computed from consistent ones. Ctrl-C gives the best so far, as does half an hour of processor time.

        Args:
            whole: round them, such that counts are whole numbers; `rounding` says what no longer adds up.
            progress: called with (share done, what is being done).
        """
        from batchdp.release.consistency.release import fit

        return fit(self.reader, self, whole=whole, progress=progress)

    def denoised(self, whole: bool = False, *, progress: Progress | None = None) -> Denoised:
        """Estimates of all answers with smaller errors on average: shrunk toward what is known better.

        Computed from the release alone, so at no cost of privacy, and the same each time. Biased, and without intervals
        of their own; `risk` and `raw_risk` say how much smaller their squared errors are estimated to be. Nowhere below
        0, and tables agree on what they share; `whole` rounds counts. Ctrl-C gives the best so far.
        """
        from batchdp.release.denoise.denoised import denoise

        return denoise(self, whole, progress=progress)

    def ask(self, sql: str | os.PathLike[str]) -> FreeAnswers:
        """What of these statements follows from what was measured, free; `missing` says what does not."""
        from batchdp.release.asking import ask

        return ask(self, sql)

    def records(
        self, n: int | None = None, seed: int = 0, *, table: str | None = None, progress: Progress | None = None
    ) -> pd.DataFrame:
        """Synthetic records, nobody's, with tables close to the denoised ones; from the release and seed alone."""
        from batchdp.release.records.records import draw_records

        return draw_records(self, n, seed, table=table, progress=progress).to_frame()

    def plot(self, *, axes: Axes | None = None) -> Figure:
        """Every answer with its interval, on matplotlib axes of your own if given; of very many, the first ones."""
        return draw(self, axes=axes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without pickle, under a digest; readable by `load_release`."""
        save_release(self, path)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is counted, in sentences: what neither the noise nor the intervals are about."""
        shown = (rows.note for rows in self.shown_rows)
        return (*describe_counted(self.counted, self.certificate.largest_total), *(note for note in shown if note))

    @property
    def said(self) -> Said:
        """What the release says of its answers, beside their queries; the ledger has a digest of it."""
        return Said(self.column_names, self.asked, self.legend, self.counted, self.views, self.source)

    def __repr__(self) -> str:
        c = self.certificate
        which = f"snapshot {c.snapshot}, " if c.snapshot else ""
        whose = sanitise(f"{c.neighbours}, unit: {c.privacy_unit}, {which}id {c.release_id}")
        tables = f" in {len(self.tables):,} tables" * (len(self.tables) > 1)
        return f"Release({len(self.layout):,} answers{tables}, {c.strength}, {whose})"


def _list_places(keys: Iterable[Key]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return found
