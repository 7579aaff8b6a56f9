"""What a caller gives instead of a table: counts of cells, or records by their codes.

What holds them and how many they are is public and checked before the charge; values never are, and nothing about one
is an error: one entry can decide the type of all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial, singledispatch
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.domain import Counted, Database, Domain
from batchdp.domain.columns import fold
from batchdp.errors import PrivacyParameterError, ReleaseError, TableError
from batchdp.mechanism.measurement import Integers
from batchdp.plans import Plan
from batchdp.plans.encoding import CellBatch
from batchdp.private import CellCounts, Counts, Records, Tallies
from batchdp.strategies.marginal.strategy import MarginalStrategy
from batchdp.strategies.residual.strategy import ResidualStrategy, WholeParts
from batchdp.strategies.strategy import FactoredStrategy, Strategy
from batchdp.text import Progress
from batchdp.workloads.encode import TableBatch
from batchdp.workloads.encode.atoms import Atoms
from batchdp.workloads.encode.several import SeveralCells, TableCells
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload, label_text

if TYPE_CHECKING:
    from batchdp.engines import Source

FRAMES = ("pandas", "polars", "pyarrow")
REMEDY = "give one whole-number code per column, from 0 to the column's size less 1"


@dataclass(frozen=True, eq=False)
class Codes:
    """How records will be read once that is paid for, and what the table calls its columns."""

    read: Callable[[], Records]
    names: tuple[str, ...] | None


def is_records(table: Any) -> bool:
    """Whether this is a frame, a 2-D array or one of NumPy's records: not counts of cells."""
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        return table.ndim == 1 and all(table.dtype[name].shape == () for name in table.dtype.names)
    return (library(table) in FRAMES and not _is_series(table)) or getattr(table, "ndim", 0) == 2


def codes_of(table: Any, batch: KroneckerWorkload) -> Codes:
    """Records in a frame or an array, refused by its number of columns alone: types may be guessed from values."""
    from batchdp.engines.codes import codes_in_array, codes_in_arrow, codes_in_pandas, codes_in_polars

    kind = library(table)
    if kind == "pandas":
        names = [str(name) for name in table.columns]
        return _from_columns(lambda i, size: codes_in_pandas(table.iloc[:, i], size), names, batch)
    if kind == "polars":
        _check_class(table, ("DataFrame",), "collect it into a DataFrame first")
        return _from_columns(lambda i, size: codes_in_polars(table.to_series(i), size), list(table.columns), batch)
    if kind == "pyarrow":
        _check_class(table, ("Table", "RecordBatch"), "read it into a Table first")
        return _from_columns(lambda i, size: codes_in_arrow(table.column(i), size), list(table.schema.names), batch)
    if not isinstance(table, np.ndarray):  # to make it one may run a program, or depend on what it holds
        raise TableError(f"the table is a {type(table).__name__}; make it a NumPy array or a frame first")
    if table.dtype.names is not None:
        fields = table.dtype.names
        given = None if fields == tuple(f"f{i}" for i in range(len(fields))) else list(fields)  # NumPy's own names
        return _from_columns(lambda i, size: codes_in_array(table[fields[i]], size), given, batch, len(fields))
    array = table if isinstance(table, np.ma.MaskedArray) else np.asarray(table)
    return _from_columns(lambda i, size: codes_in_array(array[:, i], size), None, batch, array.shape[1])


def _from_columns(
    column: Callable[[int, int], NDArray[np.int64]],
    names: list[str] | None,
    batch: KroneckerWorkload,
    width: int | None = None,
) -> Codes:
    """Records from what gives the codes of a column, by its place and size."""
    width = len(names or ()) if width is None else width
    if width != len(batch.sizes):  # how many records there are is nobody's business
        raise TableError(f"the table has {width} columns, the batch {len(batch.sizes)}; {REMEDY}")

    def read() -> Records:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # they would be about values
            codes = np.column_stack([column(i, size) for i, size in enumerate(batch.sizes)])
        return Records(codes[np.all(codes >= 0, axis=1)])

    distinct = names if names is not None and len(set(names)) == len(names) else None
    return Codes(read, None if distinct is None else tuple(distinct))


def _check_class(table: Any, taken: tuple[str, ...], remedy: str) -> None:
    if not {base.__name__ for base in type(table).__mro__} & {*taken}:
        raise TableError(f"the table is a {library(table)} {type(table).__name__}; {remedy}")


def library(table: Any) -> str:
    """Of the frame that it is, or that it is made from: a class of one's own is still a frame."""
    found = (base.__module__.partition(".")[0] for base in type(table).__mro__)
    return next((name for name in found if name in FRAMES), "")


def _is_series(table: Any) -> bool:
    classes = {base.__name__ for base in type(table).__mro__}
    return bool(classes & {"Series", "Index", "Array", "ChunkedArray"}) or getattr(table, "ndim", 2) == 1


Sets = tuple[tuple[int, ...], ...]
"""Of columns: one for every table."""

MOST_SETS = 300
"""Tables that an engine counts in one query."""
MOST_LOOKED = 3000
"""Tables among which the largest are looked for."""
MOST_TOGETHER = 25_000
"""Cells of a table that several are read from: an engine goes through all records for each that it counts."""
FEW = 100_000
"""Combinations that are moved in no time."""
ROWS = 10_000_000
"""That a table is taken to have where its domain has no cap."""


@singledispatch
def reading(batch: Any, plan: Plan, tables: ExitStack, table: Any, progress: Progress | None) -> Callable[[], Counts]:
    """Open the table, which checks its schema, and say how it will be counted; no record is read yet."""
    raise ReleaseError(f"nothing says how records are counted for a {type(batch).__name__}")


@reading.register
def _(
    batch: CellBatch, plan: Plan, tables: ExitStack, table: Any, progress: Progress | None
) -> Callable[[], CellCounts]:
    cells = batch.cells
    if isinstance(cells, SeveralCells):
        counts = _several(cells, tables, table)
        return lambda: CellCounts(cells.counts({name: partial(count, progress) for name, count in counts.items()}))
    count = _opened(batch.atoms, plan.domain, tables, table)
    return lambda: CellCounts(cells.counts(count(progress)))


@reading.register
def _(
    batch: TableBatch, plan: Plan, tables: ExitStack, table: Any, progress: Progress | None
) -> Callable[[], Records | Tallies]:
    sets = sets_counted(plan.strategy, batch, plan.domain.privacy.max_rows)
    atoms = [tuple(sorted({i for c in own for i in batch.columns[c].atoms})) for own in sets or ()]
    count = _opened(batch.atoms, plan.domain, tables, table, sets=tuple(dict.fromkeys(atoms)))
    if sets is None:
        return lambda: _records(batch, count(progress))
    return lambda: _tallies(batch, dict(zip(sets, atoms, strict=True)), count(progress))


def _several(cells: SeveralCells, tables: ExitStack, table: Any) -> dict[str, Callable[[Progress | None], Batches]]:
    """What counts the rows of every table and relation that is asked about."""
    from batchdp.engines import open_table, prepare_relation

    domain, made = cells.domain, {one.name: one for one in cells.domain.relations}
    asked = [part.table for part in cells.parts]
    needed = {name for one in asked for name in (made[one].tables if one in made else (one,))}
    given = tables_given(table, domain, [name for name in domain.declared if name in needed], tables)
    sources: dict[str, Source] = {}

    def opened(name: str) -> Source:
        if name not in sources:
            sources[name] = tables.enter_context(open_table(given[name], domain.declared[name]))
        return sources[name]

    def counting(part: TableCells) -> Callable[[Progress | None], Batches]:
        if part.table not in made:
            return _opened(part.cells.atoms, domain.tables[part.table], tables, given[part.table])
        relation = made[part.table]
        return prepare_relation(relation, {name: opened(name) for name in relation.tables}, part.cells.atoms)

    return {part.table: counting(part) for part in cells.parts}


def tables_given(table: Any, domain: Database, asked: Sequence[str], opened: ExitStack) -> dict[str, Any]:
    """For every table that is asked about what the caller gave: by name, or one database that has all of them."""
    from batchdp.engines.opening import is_one_database, open_files_once

    if isinstance(table, Mapping):
        names = {fold(name): name for name in domain.declared}
        given = {names.get(fold(str(name)), str(name)): one for name, one in table.items()}
        if len(given) < len(table):
            raise TableError("table has two names that are one to SQL; give each table once")
        if unknown := [name for name in given if name not in domain.declared]:
            known = ", ".join(domain.declared)
            raise TableError(f"table has {unknown[0]!r}, which the domain does not declare: {known}")
        if missing := [name for name in asked if name not in given]:
            raise TableError(f"table lacks {missing[0]!r}, which the plan asks about; give one for each name")
        return open_files_once({name: given[name] for name in asked}, opened)
    if len(asked) > 1 and not is_one_database(table):
        raise TableError(
            f"table is a single table, and the plan asks about {', '.join(asked)}; give a dictionary, like "
            f"{{{asked[0]!r}: …, {asked[1]!r}: …}}, or a database that has all of them"
        )
    return open_files_once(dict.fromkeys(asked, table), opened)


def _opened(
    atoms: Sequence[Atoms], domain: Domain, tables: ExitStack, table: Any, sets: Sets = ()
) -> Callable[[Progress | None], Batches]:
    """What counts the records of a table, all columns together or by sets of them; its schema is checked here."""
    from batchdp.engines import open_table, prepare_count

    privacy = domain.privacy
    # Which rows of a person count depends on all declared columns, whatever a plan asks.
    columns = [one.column for one in atoms] if privacy.unit is None else None
    source = tables.enter_context(open_table(table, domain, columns=columns))
    return prepare_count(source, atoms, sets=sets, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)


def sets_counted(strategy: Strategy, batch: TableBatch, max_rows: int | None) -> Sets | None:
    """The tables that the engine counts; None where moving all combinations is less."""
    combinations = prod(one.size for one in batch.atoms)
    wanted = _measured(strategy) if combinations > FEW else None
    if wanted is None:
        return None
    sizes = [prod(batch.atoms[i].size for i in column.atoms) for column in batch.columns]
    sets = _joined(_largest(wanted), sizes)
    moved = sum(prod(sizes[c] for c in own) for own in sets)
    return sets if len(sets) <= MOST_SETS and moved < min(combinations, max_rows or ROWS) else None


@singledispatch
def _measured(strategy: Any) -> set[frozenset[int]] | None:
    """The columns of everything that is measured; None where that is very much, or nothing says it."""
    return None


@_measured.register
def _(strategy: MarginalStrategy) -> set[frozenset[int]] | None:
    if sum(map(len, strategy.groups)) > MOST_LOOKED:
        return None
    return {frozenset(one.columns) for one in strategy.measured}


@_measured.register
def _(strategy: ResidualStrategy) -> set[frozenset[int]] | None:
    if isinstance(strategy.parts, WholeParts):
        batch = strategy.workload
        if len(batch.tables) > MOST_LOOKED:
            return None
        return {frozenset(table.columns) for table in batch.tables}
    return {frozenset(part.columns) for part in strategy.parts} if len(strategy.parts) <= MOST_LOOKED else None


def _largest(wanted: Iterable[frozenset[int]]) -> Sets:
    """Those that are in no other."""
    found: list[frozenset[int]] = []
    for own in sorted(wanted, key=lambda own: (-len(own), sorted(own))):
        if not any(own <= other for other in found):
            found.append(own)
    return tuple(tuple(sorted(own)) for own in found)


def _joined(sets: Sets, sizes: Sequence[int]) -> Sets:
    """Fewer tables that contain all of these: each is widened by the column that most others become part of it by."""
    by_column: dict[int, set[frozenset[int]]] = {}
    left = dict.fromkeys(map(frozenset, sets))
    for own in left:
        for c in own:
            by_column.setdefault(c, set()).add(own)
    found = []
    while left:
        table = set(next(iter(left)))
        while True:
            room = MOST_TOGETHER // max(1, prod(sizes[c] for c in table))
            gains = {
                c: sum(own <= table | {c} for own in by_column[c])
                for c in sorted(by_column)
                if c not in table and sizes[c] <= room
            }
            best = max(gains, key=lambda c: gains[c], default=None)
            if best is None or not gains[best]:
                break
            table.add(best)
        for own in [own for own in left if own <= table]:
            del left[own]
            for c in own:
                by_column[c].discard(own)
        found.append(tuple(sorted(table)))
    return tuple(found)


Batches = Iterable[tuple[NDArray[np.int32], NDArray[np.int64]]]


def _records(batch: TableBatch, batches: Batches) -> Records:
    """All combinations that occur; one that has no value is dropped."""
    codes: list[NDArray[np.int32]] = []
    times: list[NDArray[np.int64]] = []
    for atoms, numbers in batches:
        values = batch.values(atoms)
        there = np.all(values >= 0, axis=1)
        codes.append(values[there])
        times.append(numbers[there])
    width = len(batch.columns)
    return Records(
        np.asfortranarray(np.concatenate([np.zeros((0, width), dtype=np.int32), *codes])),
        np.concatenate([np.zeros(0, dtype=np.int64), *times]),
    )


def _tallies(batch: TableBatch, sets: dict[tuple[int, ...], tuple[int, ...]], batches: Batches) -> Tallies:
    """By table, told apart by the columns that a row is counted by."""
    parts = list(batches)
    width = len(batch.atoms)
    codes = np.concatenate([np.zeros((0, width), dtype=np.int32), *(part for part, _ in parts)])
    times = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for _, numbers in parts)])
    looked = codes >= 0
    found = {}
    for own, atoms in sets.items():
        flags = np.zeros(width, dtype=bool)
        flags[list(atoms)] = True
        rows = np.flatnonzero(np.all(looked == flags, axis=1))
        values = batch.values(np.where(looked[rows], codes[rows], 0), only=own)
        there = np.all(values >= 0, axis=1)
        found[own] = Records(values[there], times[rows][there])
    return Tallies(found)


LARGEST_COUNT = 2**62
MOST_COUNTED = 10**8
"""Cells of a batch over many columns whose counts can be given."""


def given_counts(table: Any, workload: MatrixWorkload) -> tuple[Callable[[], Integers], Counted]:
    """Counts of cells; or of records, by codes, where the workload's cells are combinations of columns' values."""
    batch = workload.structure
    if not isinstance(batch, KroneckerWorkload) or not is_records(table):
        if workload.cell_names is not None and _has_labels(table):
            return partial(_by_labels, table, workload.cell_names), Counted(given="labelled")
        return counts_of(table, workload.cells), Counted(given="counts")
    codes = codes_of(table, batch)

    def counted() -> Integers:
        cells = np.ravel_multi_index(tuple(codes.read().codes.T), batch.sizes)
        return np.bincount(cells, minlength=batch.cells).astype(np.int64)

    return counted, Counted(given="codes")


def given_records(
    strategy: FactoredStrategy, table: Any
) -> tuple[Callable[[], Records], tuple[str, ...] | None, Counted]:
    """How records will be read: from codes in a frame or 2-D array, or from counts of all cells in one dimension."""
    batch = strategy.workload
    if is_records(table):
        codes = codes_of(table, batch)
        return codes.read, codes.names, Counted(given="codes")
    if batch.cells > MOST_COUNTED:
        raise TableError(
            f"the table has the counts of {batch.cells:.3g} cells, too many to hold; give records: a 2-D array or a "
            "frame with one whole-number code per column"
        )
    read = counts_of(table, batch.cells)

    def records() -> Records:
        counts = read()
        there = np.flatnonzero(counts)
        codes = np.column_stack(np.unravel_index(there, batch.sizes)).astype(np.int64)  # the last column fastest
        return Records(codes, counts[there])

    return records, None, Counted(given="counts")


def counts_of(counts: Any, cells: int) -> Callable[[], Integers]:
    """What gives the counts as whole numbers. How many there are is public and checked; what they are never is.

    An entry can be anything: counts become floats where a cell is empty, and one text among them makes texts of all in
    an array or a file. A text is the number that it spells; what is no number, missing or infinite is taken as 0, what
    is no whole number is rounded down, and counts are brought within 0 to 2^62. Nothing of this moves two neighbours
    further apart, nor lets one entry change another. The release's notes say so.
    """
    length = _length(counts)
    if length is None:
        raise PrivacyParameterError(
            f"counts is not a list of numbers; the workload has {cells} cells: give one count each, in one dimension"
        )
    if length != cells:  # nobody is told how many there are: they may be records
        raise PrivacyParameterError(
            f"counts does not have one entry for each cell; the workload has {cells} cells: give one count each"
        )
    return lambda: _whole_counts(counts, cells)


def _length(counts: Any) -> int | None:
    """How many entries there are, by the container alone; None for what is no list of them, in one dimension."""
    fields = isinstance(counts, np.ndarray) and counts.dtype.names is not None
    if fields or is_records(counts) or isinstance(counts, (str, bytes, bytearray, memoryview)):
        return None
    series = hasattr(type(counts), "__array__") and (library(counts) or getattr(counts, "ndim", 0) == 1)
    return len(counts) if series or isinstance(counts, Sequence) else None


def _has_labels(counts: Any) -> bool:
    """Whether it is a pandas Series with labels of its own; neither these nor how many there are is looked at."""
    plain = type(getattr(counts, "index", None)).__name__ == "RangeIndex"
    return library(counts) == "pandas" and _is_series(counts) and hasattr(counts, "index") and not plain


def _by_labels(counts: Any, names: Sequence[str]) -> Integers:
    """Every cell's count: the sum of what has its name. One entry more or less moves one cell by that entry alone."""
    places = {name: cell for cell, name in enumerate(names)}
    found = np.zeros(len(names), np.int64)
    for label, count in zip(counts.index, _whole_counts(counts, len(counts)).tolist(), strict=True):
        with suppress(Exception):  # whatever an object does when its name is asked for
            cell = places[label_text(label)]
            found[cell] = min(int(found[cell]) + count, LARGEST_COUNT)
    return found


def _whole_counts(counts: Any, cells: int) -> Integers:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # they would be about values
        try:
            found = _entries(counts)
        except Exception:  # a type whose values Python does not have: none of them is a number
            return np.zeros(cells, np.int64)
        kind = found.dtype.kind if isinstance(found, np.ndarray) else ""
        if isinstance(found, np.ndarray) and kind in "biufm":
            whole = _whole_numbers(found.astype(np.int64) if kind == "m" else found)
        else:
            whole = np.fromiter(map(_one_count, found), np.int64, cells)
        return np.where(np.ma.getmaskarray(counts), 0, whole) if isinstance(counts, np.ma.MaskedArray) else whole


def _entries(counts: Any) -> NDArray[Any] | Sequence[Any]:
    """The entries of a container, as they are: an array of numbers where that is quick, else Python's objects."""
    match library(counts):
        case "pandas":
            quick = isinstance(counts.dtype, np.dtype) and counts.dtype.kind in "biuf"
            return np.asarray(counts) if quick else list(counts.tolist())
        case "polars":
            return np.zeros(len(counts)) if counts.dtype.is_temporal() else list(counts.to_list())
        case "pyarrow":
            return list(map(_python, counts))
    if isinstance(counts, Sequence):
        return counts
    array = np.asarray(counts)
    return np.zeros(len(array)) if array.dtype.kind == "M" else array


def _python(scalar: Any) -> Any:
    with suppress(Exception):  # a text that is none
        return scalar.as_py()
    return None


def _whole_numbers(counts: NDArray[Any]) -> Integers:
    if counts.dtype.kind == "f":
        counts = np.floor(np.clip(np.nan_to_num(counts.astype(np.float64), posinf=0.0, neginf=0.0), 0.0, 2.0**62))
    wide = counts if counts.dtype == np.uint64 else np.maximum(counts.astype(np.int64), 0)
    whole: Integers = np.minimum(wide, np.array(LARGEST_COUNT, dtype=wide.dtype)).astype(np.int64)
    return whole


def _one_count(count: Any) -> int:
    with suppress(Exception):  # whatever an object does when it is looked at
        number = _number(count)
        if -math.inf < number < math.inf:
            whole = LARGEST_COUNT if number > LARGEST_COUNT else index(math.floor(number))
            return min(max(whole, 0), LARGEST_COUNT)
    return 0


def _number(count: Any) -> Any:
    """What an entry is as a number; an error for what is none."""
    from batchdp.engines.codes import spelled_number

    if isinstance(count, (str, bytes, complex, np.complexfloating)):
        return spelled_number(count)
    if isinstance(count, (int, float, Decimal, Fraction, np.generic)):
        return count
    return float(count) if getattr(count, "ndim", 0) == 0 else 0
