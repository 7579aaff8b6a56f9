"""Denoised answers of a release: smaller errors on average, biased, computed from nothing but what was published."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial, singledispatch
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import linalg, sparse

from batchdp.linalg.matrix import Dense, dense
from batchdp.mechanism.marginal.tables import WeightedReader
from batchdp.mechanism.reader import CellReader
from batchdp.mechanism.residual.tables import TableReader
from batchdp.release.beside import Beside
from batchdp.release.consistency.release import counting_queries, estimates, margin_of, read_tables, whole_tables
from batchdp.release.consistency.rounding import round_controlled
from batchdp.release.denoise.smooth import DenoisedCells, Problem, denoise_cells, runs_of
from batchdp.release.denoise.tables import DenoisedTables, denoise_tables
from batchdp.release.tables import Table
from batchdp.text import Outcome, Progress
from batchdp.workloads.kronecker import KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.release.release import Release

BIASED = (
    "Denoised answers are estimates with smaller errors on average. They are biased, toward smoothness and toward what "
    "smaller tables imply, and have no interval of their own: standard errors and intervals belong to the raw answers. "
    "Do not use them for rare cells or few records, for tests, or where many are added up: there take the raw ones."
)
STOPPED = "The work was stopped: what was not yet shrunk is what smaller tables imply, or is not smoothed."
USELESS = 0.3
"""Of the total's standard error, as a share of it: beyond, hardly anything can be said."""
MOST_CELLS = 100_000
"""Combinations of all columns' values for which tables of ranges, groups and amounts are fitted."""
MOST_ENTRIES = 20_000_000
"""Coefficients of their queries."""
MOST_ANSWERS = 100_000_000
"""Cells of the largest tables: each takes some 50 bytes."""
MOST_TOGETHER = 2000
"""Answers whose noise is looked at together."""
NO_NOISE = 1e-12
"""Of the largest variance in any direction: less is rounding."""
SLIGHT = 0.01
"""Of the raw risk: less is never said to be left."""


@dataclass(frozen=True, eq=False)
class Denoised(Beside):
    """Estimates of all answers, beside the raw ones. Post-processing, free of charge.

    Args:
        release, read: as in `Beside`.
        method: how they were found, in a few words.
        status: how the work ended.
        risks_of: of some answers of a linear table, the estimated squared errors: denoised and raw, added up.
        whole: whether counts are whole numbers.
        said: notes of the method.
    """

    heading: ClassVar[str] = "denoised"
    meaning: ClassVar[str] = "estimates whose errors are smaller on average"

    method: str
    status: Outcome
    risks_of: Callable[[int, Any], tuple[float, float]] = field(repr=False)
    whole: bool = False
    said: tuple[str, ...] = ()

    @cached_property
    def risks(self) -> Dense:
        """Of every table the estimated mean squared error of its denoised answers, derived ones left out."""
        return np.asarray(self._risks[0])

    @cached_property
    def raw_risks(self) -> Dense:
        """The same of the raw answers: the mean of their variances."""
        return np.asarray(self._risks[1])

    @cached_property
    def _risks(self) -> Dense:
        """Of every table both, and how many answers they are about."""
        found = np.full((3, len(self.tables)), np.nan)
        for k, table in enumerate(self.tables):
            sums, count = np.zeros(2), 0
            for t, places, own in self._linear_places(table):
                sums += self.risks_of(t, places)
                count += own
            found[:, k] = [*(sums / count if count else (np.nan, np.nan)), count]
        return found

    def _linear_places(self, table: Table) -> Iterator[tuple[int, Any, int]]:
        """Which linear answers are shown in a table: tables, places (None for all) and how many."""
        reader = self.release.reader
        if table.linear is not None:
            yield table.linear, None, int(reader.sizes[table.linear])
            return
        places = np.asarray(table.answers, dtype=np.int64)
        if not self.release.asked:
            yield 0, places, len(places)
            return
        listed = self.release.layout.listed
        own = [listed[1][k] for k in np.searchsorted(listed[0], places).tolist()]
        numbers = np.array([one.of for one in own if isinstance(one.of, int)], dtype=np.int64)
        for t, _, there in reader.split(numbers):
            yield t, there, len(there)

    @property
    def risk(self) -> float:
        """The estimated mean squared error of all denoised answers that are not derived."""
        return self._mean(0)

    @property
    def raw_risk(self) -> float:
        """The same of the raw answers."""
        return self._mean(1)

    def _mean(self, which: int) -> float:
        counts = self._risks[2]
        there = counts > 0
        return float(self._risks[which][there] @ counts[there] / counts.sum()) if there.any() else np.nan

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these answers: sentences for files, pages and the terminal."""
        return (BIASED, *self._gain(), *([STOPPED] if self.status is Outcome.CANCELLED else []), *self.said)

    def _gain(self) -> Iterator[str]:
        """How much smaller errors are estimated to be."""
        if np.isfinite(self.risk) and self.risk < self.raw_risk:
            share = (self.risk / self.raw_risk) ** 0.5
            yield f"Their root mean squared error is estimated, not proven, to be {share:.2g} times that of raw ones."

    def __repr__(self) -> str:
        whole = ", whole" if self.whole else ""
        return f"Denoised({len(self.release.answers):,} estimates{whole}; {self.method}; {self.status})"


def denoise(release: Release, whole: bool = False, *, progress: Progress | None = None) -> Denoised:
    """Estimates of all answers with smaller errors, from the release alone; Ctrl-C gives the best so far.

    Args:
        release: what was released.
        whole: round counts to whole numbers.
        progress: called with (share done, what is being done).
    """
    return _denoise(release.reader, release, whole=whole, progress=progress)


@singledispatch
def _denoise(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Denoised:
    raise TypeError(f"nothing says how the answers of a {type(reader).__name__} are denoised")


def seed_of(release: Release) -> int:
    """From the release's id: the same release is denoised in the same way."""
    return int.from_bytes(hashlib.sha256(release.certificate.release_id.encode()).digest()[:8], "big")


# ── Cells.


@_denoise.register(CellReader)
def _(reader: CellReader, release: Release, *, whole: bool, progress: Progress | None) -> Denoised:
    if release.kinds is None:
        problem, units = problem_of(reader, release)
    elif release.kinds.shape[1]:  # cells of several blocks are no kinds of records
        problem, units = _asked_problem(release.kinds, release)
    else:
        return _raw(release, "Which records there can be is not known, or they are too many: all answers are raw.")
    found = denoise_cells(problem, progress)
    return _from_cells(release, found, problem, units, reader.starts, whole=whole)


def problem_of(reader: CellReader, release: Release) -> tuple[Problem, Dense]:
    """Measurements in units of their noise, answers in units of their largest coefficients."""
    law, y = reader.noise_law, reader.in_records(release.noisy)
    L = sparse.csr_array(reader.measure)
    B: Any = reader.reconstruct
    first = runs_of(L)
    widths = np.diff(np.append(first, L.shape[1])).astype(np.float64)
    shape = getattr(law, "shape", None)
    W = reader.workload[:, first]
    units = np.asarray(abs(W).max(axis=1).todense()).reshape(-1)
    units = np.where(units > 0, units, 1.0)
    L, scale = L[:, first], sparse.diags_array(1 / units)
    if shape is None:
        s = law.scale * law.noise.variance_at_one**0.5
        L, y, B = L / s, y / s, B * s
    else:  # not independent: made so
        factor = law.scale * linalg.cholesky(shape.covariance, lower=True)
        L = sparse.csr_array(np.asarray(linalg.solve_triangular(factor, dense(L), lower=True)))
        y, B = linalg.solve_triangular(factor, y, lower=True), dense(B) @ factor
    B = B / units[:, None] if isinstance(B, np.ndarray) else sparse.csr_array(scale @ B)
    return Problem(sparse.csr_array(L), B, sparse.csr_array(scale @ W), y, widths), units


def _from_cells(
    release: Release, found: DenoisedCells, problem: Problem, units: Dense, starts: Any, *, whole: bool
) -> Denoised:
    """Answers from cells, rounded if asked, with the tables' parts of the estimated errors."""
    answers = units * found.answers
    if whole:
        W = sparse.csr_array(sparse.diags_array(units) @ problem.queries)
        answers = np.asarray(W @ round_controlled(found.cells, counting_queries(W))[0].astype(np.float64))
    squares = np.square(units)
    raw, ours = squares * found.raw_risks, None if found.risks is None else squares * found.risks

    def risks_of(table: int, places: Any) -> tuple[float, float]:
        there = slice(int(starts[table]), int(starts[table + 1])) if places is None else int(starts[table]) + places
        before = float(raw[there].sum())
        if ours is None:
            return np.nan, before
        return float(np.clip(ours[there].sum(), SLIGHT * before, before)), before

    smooth, positive = found.mix
    method = (
        f"{smooth:.0%} smooth, {positive:.0%} non-negative, {max(0.0, 1 - smooth - positive):.0%} raw"
        if ours is not None
        else "non-negative"
    )
    known = ours is not None or found.status is Outcome.CANCELLED
    notes = [] if known else ["There are too many cells for an estimate of the error, and for smooth ones."]
    mass = float(np.abs(units * (problem.reconstruct @ problem.measured)).max(initial=0.0))
    if mass < float(np.sqrt(raw).max(initial=0.0)):
        notes.append("No answer is larger than its noise: these estimates say next to nothing.")
    return Denoised(
        release,
        lambda t: answers[int(starts[t]) : int(starts[t + 1])],
        method,
        found.status,
        risks_of,
        whole,
        tuple(notes),
    )


# ── Tables over many columns.


@_denoise.register(TableReader)
@_denoise.register(WeightedReader)
def _(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Denoised:
    batch: KroneckerWorkload = reader.workload
    fitting = [t for t in range(len(batch.tables)) if all(f.given is None for f in batch.factors_of(t).values())]
    asked = [batch.tables[t].columns for t in fitting]
    if len(fitting) < len(batch.tables) and _few_cells(batch):
        tables = range(len(batch.tables))
        W = sparse.csr_array(sparse.vstack([batch.matrix_of(t) for t in tables]))
        problem, units = _asked_problem(W, release)
        found = denoise_cells(problem, progress)
        return _from_cells(release, found, problem, units, reader.starts, whole=whole)
    if not asked or sum(prod(batch.sizes[i] for i in own) for own in asked) > MOST_ANSWERS:
        return _raw(release, "There are no whole tables, or too many cells, so that all answers are raw.")
    noisy, precision = estimates(release, fitting)
    variances = {C: 1 / p for C, p in precision.items()}
    made = denoise_tables(noisy, variances, asked, batch.sizes, seed_of(release), progress=progress)
    return _from_tables(release, made, fitting, asked, whole=whole, progress=progress)


def _from_tables(
    release: Release,
    made: DenoisedTables,
    fitting: list[int],
    asked: list[tuple[int, ...]],
    *,
    whole: bool,
    progress: Progress | None,
) -> Denoised:
    """Whole tables as they are, others as what they ask of one that has their columns; raw where none has."""
    reader: Any = release.reader
    batch: KroneckerWorkload = reader.workload
    notes: list[str] = []
    cells: Callable[[tuple[int, ...]], Dense] = made.fitted.table
    if whole:
        rounded, unkept = whole_tables(lambda k: made.fitted.table(asked[k]), asked, release.column_names, progress)
        cells = partial(margin_of, rounded, asked)
        if unkept:
            notes.append(f"As whole numbers, tables no longer agree on {len(unkept):,} shared margins.")
    known = set(fitting)
    inside = {t for t in range(len(batch.tables)) if any(set(batch.tables[t].columns) <= set(A) for A in asked)}

    of_tables = read_tables(batch, fitting, cells)

    def read(table: int) -> Dense:
        return of_tables(table) if table in inside else release.linear_values(table)

    def risks_of(table: int, places: Any) -> tuple[float, float]:
        size = int(reader.sizes[table])
        share = 1.0 if places is None else len(places) / max(1, size)
        before = float(np.square(reader.errors_of(table)).sum())
        if table not in known:
            return share * before, share * before
        ours, raw = made.risks(batch.tables[table].columns)
        return share * before * float(np.clip(ours / raw if raw > 0 else 1.0, 0.0, 1.0)), share * before

    if len(inside) < len(batch.tables):
        notes.append(f"{len(batch.tables) - len(inside):,} tables of ranges, groups or amounts are raw.")
    if made.noise_share > USELESS:
        notes.append("There are hardly more records than noise: these estimates say next to nothing.")
    method = "margins, classes of records, tables shrunk toward what they imply"
    return Denoised(release, read, method, made.fitted.status, risks_of, whole, tuple(notes))


def _raw(release: Release, note: str) -> Denoised:
    reader = release.reader

    def risks_of(table: int, places: Any) -> tuple[float, float]:
        squares = np.square(reader.errors_of(table)).reshape(-1)
        found = float((squares if places is None else squares[places]).sum())
        return found, found

    return Denoised(release, release.linear_values, "raw", Outcome.CLOSED_FORM, risks_of, False, (note,))


def _few_cells(batch: KroneckerWorkload) -> bool:
    """Whether all combinations of values are so few that each is fitted."""
    if batch.cells > MOST_CELLS:
        return False
    every = [np.arange(n) for n in batch.sizes]
    return sum(batch.entries_on(t, every) for t in range(len(batch.tables))) <= MOST_ENTRIES


def _asked_problem(W: sparse.csr_array, release: Release) -> tuple[Problem, Dense]:
    """All answers as if they were what was measured, in directions in which their noise is independent.

    Beyond `MOST_TOGETHER` answers, each as if its noise were its own.
    """
    answers, reader = release.linear_answers, release.reader
    units = np.asarray(abs(W).max(axis=1).todense()).reshape(-1)
    units = np.where(units > 0, units, 1.0)
    first = runs_of(W)
    widths = np.diff(np.append(first, W.shape[1])).astype(np.float64)
    W = sparse.csr_array(sparse.diags_array(1 / units) @ W[:, first])
    if len(answers) > MOST_TOGETHER or len(answers) * reader.measurements > MOST_ENTRIES:
        errors = np.concatenate([reader.errors_of(t).reshape(-1) for t in range(len(reader.sizes))]) / units
        errors = np.maximum(errors, NO_NOISE**0.5 * max(float(errors.max(initial=0.0)), 1e-300))
        L = sparse.csr_array(sparse.diags_array(1 / errors) @ W)
        each = sparse.csr_array(sparse.diags_array(errors))
        return Problem(L, each, W, answers / units / errors, widths, independent=False), units
    covariance = reader.law(reader.rows(np.arange(len(answers)))).covariance / np.outer(units, units)
    sizes, ways = linalg.eigh(covariance)
    kept = sizes > NO_NOISE * max(float(sizes[-1]), 1e-300)
    B = ways[:, kept] * np.sqrt(sizes[kept])
    inverse = ways[:, kept].T / np.sqrt(sizes[kept])[:, None]
    return Problem(sparse.csr_array(inverse @ W), B, W, inverse @ (answers / units), widths), units
