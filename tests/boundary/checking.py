"""What two neighbours may differ in: the counts of a block, by as much as is declared, and nothing else."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from batchdp.domain import Domain, as_domain
from batchdp.engines import open_table, prepare_count
from batchdp.errors import BatchDPError
from batchdp.queries.query import Cut
from batchdp.release.counts import given_counts
from batchdp.workloads import products
from batchdp.workloads.encode.atoms import LineAtoms
from batchdp.workloads.encode.cells import Cells
from batchdp.workloads.matrix import MatrixWorkload
from boundary.domains import Case
from mechanisms import measured

NAMES = re.compile(r"batchdp_[0-9a-f]{16}|0x[0-9a-f]+")
"""Drawn afresh for every table, or an address in memory."""

PART = "part"


@dataclass(frozen=True)
class Outcome:
    """What somebody sees of a table that is opened and counted, and its exact counts, which nobody sees."""

    refused: str | None
    """The refusal, before anything is charged."""
    failed: str | None
    """What was raised after the schema was accepted."""
    heard: str
    """Standard error and output, warnings and log records."""
    counts: tuple[np.ndarray[Any, Any], ...] = field(default=(), compare=False)
    """Of every block; of amounts, the two ends' shares, as fractions."""
    measured: tuple[int, ...] = field(default=(), compare=False)
    """What noise would be added to."""


@contextmanager
def overheard() -> Iterator[Callable[[], str]]:
    """Listen to the file descriptors of output and errors, to Python's warnings and to logging."""
    records: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(f"{record.name}: {record.getMessage()}")

    listener = Listener()
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as file, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of the garbage collector, at a moment of its own
        logging.getLogger().addHandler(listener)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

        def heard() -> str:
            sys.stdout.flush()
            sys.stderr.flush()
            file.seek(0)
            written = file.read().decode("utf-8", "replace")
            said = [f"{one.category.__name__}: {one.message}" for one in warned]
            return NAMES.sub("…", "\n".join([written, *said, *records]).strip())

        try:
            yield heard
        finally:
            for target, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, target)
                os.close(copy)
            logging.getLogger().removeHandler(listener)


def outcome(case: Case, table: Any, tables: int = 1) -> list[Outcome]:
    """Open the table and count in it, as a release does.

    Where it holds several `tables`, told apart by the column PART, each has an outcome.
    """
    if case.sizes:
        return [codes_outcome(case, table)]
    domain = case.domain if tables == 1 else parted(case, tables)
    atoms = case.cells.atoms if tables == 1 else (*case.cells.atoms, parts(tables))
    with overheard() as heard, ExitStack() as opened:
        try:
            privacy = domain.privacy
            columns = [one.column for one in atoms] if privacy.unit is None else None
            source = opened.enter_context(open_table(table, domain, columns=columns))
            capped: dict[str, Any] = {"unit": privacy.unit, "rows_per_unit": privacy.rows_per_unit}
            if case.sets:
                sets = [own if tables == 1 else (*own, len(atoms) - 1) for own in case.sets]
                run = prepare_count(source, atoms, sets=sets, **capped)
            else:
                run = prepare_count(source, atoms, **capped)
        except BatchDPError as error:
            return [Outcome(NAMES.sub("…", str(error)), None, heard())] * tables
        except Exception as error:
            return [Outcome(None, f"opening raised {type(error).__name__}: {error}", heard())] * tables
        # Here the ledger is charged.
        try:
            counted = list(run(None))
        except Exception as error:
            return [Outcome(None, f"{type(error).__name__}: {error}", heard())] * tables
        said = heard()
    if tables == 1:
        return [_counted(case, counted, said)]
    found = []
    for part in range(tables):
        # The first atom of PART is what lies before the first of its values.
        own = [(codes[codes[:, -1] == part + 1, :-1], numbers[codes[:, -1] == part + 1]) for codes, numbers in counted]
        found.append(_counted(case, own, said))
    return found


def codes_outcome(case: Case, table: Any) -> Outcome:
    """The same for codes, which `answer` takes with a strategy: one block, all combinations of the columns' values."""
    with overheard() as heard:
        try:
            read, _ = given_counts(table, _every_combination(case.sizes))
        except BatchDPError as error:
            return Outcome(NAMES.sub("…", str(error)), None, heard())
        except Exception as error:
            return Outcome(None, f"opening raised {type(error).__name__}: {error}", heard())
        try:
            counts = read()
        except Exception as error:
            return Outcome(None, f"{type(error).__name__}: {error}", heard())
        return Outcome(None, None, heard(), (counts,))


@cache
def _every_combination(sizes: tuple[int, ...]) -> MatrixWorkload:
    batch: Any = products(sizes, [[None] * len(sizes)])
    found: MatrixWorkload = batch if isinstance(batch, MatrixWorkload) else batch.workload()
    return found


def _counted(case: Case, counted: list[Any], said: str) -> Outcome:
    if case.sets:
        return Outcome(None, None, said, by_table(case, counted))
    counts = case.cells.counts(counted)
    return Outcome(None, None, said, shares(case.cells, counts), tuple(measured(case.lattice, counts)))


def shares(cells: Cells, counts: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """How many records every cell of each block has, and last none; those between two ends as a mixture."""
    starts = np.cumsum((0, *cells.sizes))
    found = np.array([Fraction(int(n)) for n in counts[: starts[-1]]], dtype=object)
    blocks = [np.array([*found[a:b], Fraction(0)], dtype=object) for a, b in pairwise(starts)]
    for (low, high, steps), along in zip(cells.ends, counts[starts[-1] :], strict=True):
        block = int(np.searchsorted(starts, max(low, high), side="right")) - 1
        share = Fraction(int(along), steps)
        blocks[block][low - starts[block] if low >= 0 else -1] -= share if low >= 0 else 0
        blocks[block][high - starts[block] if high >= 0 else -1] += share
    return tuple(blocks)


def by_table(case: Case, counted: list[Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """The counts of every table, where tables are counted."""
    found = []
    for own in case.sets:
        sizes = [case.cells.atoms[i].size for i in own]
        table = np.zeros(int(np.prod(sizes)), dtype=np.int64)
        looked = np.isin(np.arange(len(case.cells.atoms)), own)
        for codes, numbers in counted:
            there = np.all((codes >= 0) == looked, axis=1)
            np.add.at(table, np.ravel_multi_index(tuple(codes[there][:, list(own)].T), sizes), numbers[there])
        found.append(table)
    return tuple(found)


def parted(case: Case, tables: int) -> Domain:
    """The domain with a column that says which of several tables a record belongs to."""
    described = case.domain.model_dump(exclude_none=True)
    described["columns"][PART] = {"integers": [0, tables - 1]}
    return as_domain(described)


def parts(tables: int) -> LineAtoms:
    """The atoms of that column."""
    return LineAtoms(PART, "number", tuple(Cut(i) for i in range(tables)), None)


@dataclass(frozen=True)
class Verdict:
    """Of one pair of neighbours."""

    problem: str | None
    refused: bool = False
    distance: int = 0
    allowed: int = 1


def compared(case: Case, one: Outcome, other: Outcome, factor: int, *, measured: bool = True) -> Verdict:
    """Whether two neighbours look alike; `factor` as in `Change`, `measured` unless their types may differ."""
    allowed = factor * case.domain.privacy.rows_per_unit
    for side in (one, other):
        if side.failed is not None:
            return Verdict(f"raised after the schema was accepted: {side.failed}", allowed=allowed)
    if one.refused != other.refused:
        return Verdict(f"refused: {one.refused!r} against {other.refused!r}", allowed=allowed)
    if one.heard != other.heard:
        return Verdict(f"heard: {one.heard!r} against {other.heard!r}", allowed=allowed)
    if one.refused is not None:
        return Verdict(None, refused=True, allowed=allowed)
    distance = farthest(one.counts, other.counts) if measured else 0
    problem = f"the counts of a block differ by {distance}, allowed {allowed}" if distance > allowed else None
    moved = sum(abs(a - b) for a, b in zip(one.measured, other.measured, strict=True)) if measured else 0
    if moved > allowed * case.lattice.sensitivity:
        problem = f"the measurements differ by {moved}, allowed {allowed} times {case.lattice.sensitivity}"
    return Verdict(problem, distance=distance, allowed=allowed)


def farthest(one: Sequence[np.ndarray[Any, Any]], other: Sequence[np.ndarray[Any, Any]]) -> int:
    """The largest L1 distance of a block's counts."""
    return max(ceil(Fraction(np.abs(a - b).sum())) for a, b in zip(one, other, strict=True))
