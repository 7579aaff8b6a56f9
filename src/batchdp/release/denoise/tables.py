"""Tables over many columns: margins first, then pairs, then larger tables, each shrunk toward what smaller ones imply.

The total is held at its estimate and every margin denoised by itself (`smooth`). Classes of records are fitted to all
margins and pairs (`target`); what they imply for a table, scaled to the tables below it, is what its own noisy
component is shrunk toward (`shrink`). Tables of three columns and more, whose margins need not fit together, are made
to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.release.consistency.faces import Columns, Parts, closure, join_components, maximal, split_table, spread
from batchdp.release.consistency.newton import lift
from batchdp.release.consistency.tables import Fitted, project_onto_simplex
from batchdp.release.denoise.shrink import Shrunk, scale_to, shrink
from batchdp.release.denoise.smooth import denoise_margin
from batchdp.release.denoise.target import Target, fit_target, independent
from batchdp.text import Outcome, Progress

LEAST_TOTAL = 1.0
"""Records that are taken to be there."""
MOST_REPEATED = 1_000_000
"""Cells up to which all is done twice, to know the error."""
TOO_CLOSE = 1.5
"""How much larger errors are than those of denoising what was found again; on invented populations 0.9 is said so."""
FOR_MARGINS, FOR_CLASSES = 0.1, 0.3
"""Shares of the work, for progress."""
LEAST_OFF = 0.02
"""How far targets are off at least, squared, as a share of their size, where the noise tells nothing of it."""


@dataclass(frozen=True, eq=False)
class DenoisedTables:
    """Tables that agree and are not negative, with what is estimated of their errors."""

    fitted: Fitted
    risk: Mapping[Columns, float]
    """Of every component, the sum of squared errors that is estimated."""
    raw_risk: Mapping[Columns, float]
    noise_share: float
    """The standard error of the total, as a share of it."""

    def risks(self, columns: Columns) -> tuple[float, float]:
        """Of a whole table, added up over its cells: denoised and raw."""
        sizes = self.fitted.sizes
        told = tuple(i for i in columns if sizes[i] > 1)
        below = closure([told])
        return tuple(  # type: ignore[return-value]
            sum(parts.get(C, 0.0) / spread(C, told, sizes) for C in below) for parts in (self.risk, self.raw_risk)
        )


class _Tables:
    """The work, which can be stopped: what is left then takes its target as it is."""

    def __init__(self, noisy: Parts, variances: Mapping[Columns, float], sizes: tuple[int, ...]) -> None:
        self.noisy, self.t, self.sizes = noisy, variances, sizes
        self.total = max(LEAST_TOTAL, float(noisy[()]))
        self.parts: dict[Columns, Dense] = {(): np.array(self.total)}
        self.margins: dict[int, Dense] = {}
        self.tables: dict[Columns, Dense] = {}
        self.shrunk: dict[Columns, Shrunk] = {}
        self.sizes_of: dict[Columns, float] = {}
        self.risk: dict[Columns, float] = {(): variances[()]}
        self.raw_risk: dict[Columns, float] = {(): variances[()]}
        self.stopped = False

    def add_margin(self, i: int) -> None:
        """Denoise the margin of a column."""
        n, t = self.sizes[i], self.t[i,]
        y = self.noisy[i,] + self.total / n
        self.raw_risk[i,] = self.risk[i,] = t * (n - 1)
        try:
            if self.stopped:
                raise KeyboardInterrupt
            found = denoise_margin(y, t, self.total)
            self.margins[i] = found.values
            self.risk[i,] = float(np.clip(found.risk, 0.0, found.raw_risk))
        except KeyboardInterrupt:
            self.stopped, self.margins[i] = True, project_onto_simplex(y, self.total)
        self.tables[i,] = self.margins[i]
        self.parts[i,] = self.margins[i] - self.total / n

    def find_target(self, seed: int, tell: Callable[[float], None]) -> Target:
        """Fit classes of records."""
        try:
            if self.stopped:
                raise KeyboardInterrupt
            found = fit_target(self.margins, self.noisy, self.t, self.total, seed, tell=tell)
        except KeyboardInterrupt:
            self.stopped = True
            return independent(self.margins, self.total)
        self.stopped = found.stopped
        return found

    def add_table(self, C: Columns, target: Target, *, keep: bool) -> None:
        """Shrink a table of two columns or more; `keep` its component for larger ones."""
        t = self.t[C]
        faces = {axis: self.tables[C[:axis] + C[axis + 1 :]] for axis in range(len(C))}
        self.raw_risk[C] = t * prod(self.sizes[i] - 1 for i in C)
        try:
            if self.stopped:
                raise KeyboardInterrupt
            P = scale_to(target.table(C), faces)
            y = join_components({**self.parts, C: self.noisy[C]}, C, self.sizes)
            found = shrink(y, P, t, faces, target.leverage.get(C, 0.0))
            self.tables[C], self.sizes_of[C] = found.table, float(np.square(P).sum())
            self.shrunk[C] = Shrunk(np.zeros(0), found.risk, found.raw_risk, found.target_risk, found.through)
        except KeyboardInterrupt:
            self.stopped, self.tables[C] = True, scale_to(target.table(C), faces)
        if keep:
            self.parts[C] = split_table(self.tables[C], C)[C]

    def component(self, C: Columns) -> Dense:
        """Of the denoised tables."""
        if C in self.parts:
            return self.parts[C]
        return split_table(self.tables[C], C)[C]

    def repeat(self, sets: Sequence[Columns], asked: Sequence[Columns], seed: int) -> dict[Columns, float] | None:
        """The squared errors of all components if the denoised tables were true: noise added and denoised again.

        None if that is stopped: nothing else needs it.
        """
        rng = np.random.default_rng([seed, 1])
        try:
            truth = {C: self.component(C) for C in sets}
            noise = {C: split_table(rng.standard_normal(x.shape), C)[C] * self.t[C] ** 0.5 for C, x in truth.items()}
            again = _Tables({C: x + noise[C] for C, x in truth.items()}, self.t, self.sizes)
            again.run(sets, asked, seed)
        except KeyboardInterrupt:
            return None
        return None if again.stopped else {C: float(np.square(again.component(C) - truth[C]).sum()) for C in truth}

    def judge(self, repeated: Mapping[Columns, float] | None) -> None:
        """Risks of all tables: estimated without bias, steadied by what all targets together are off by.

        A table's own estimate is drowned by chance where its noise is much larger than it. There it is taken from the
        share of their sizes by which the targets of all tables are off, each counted by what it tells of that, and
        no larger in all than denoising again says. Nor are those of margins, of pairs, … in all any smaller.
        """
        told = {C: 2 * self.raw_risk[C] ** 2 / max(1.0, self.raw_risk[C] / self.t[C]) for C in self.shrunk}
        size = self.sizes_of
        much = sum(size[C] ** 2 / told[C] for C in told)
        off = sum(self.shrunk[C].target_risk * size[C] / told[C] for C in told) / much if much else 1.0
        off = max(off, LEAST_OFF)
        likely = {}
        for C, found in self.shrunk.items():
            kept = (found.through / max(1.0, self.raw_risk[C] / self.t[C])) ** 0.5
            likely[C] = min(off * size[C] * (1 - kept) ** 2 + self.t[C] * found.through, self.raw_risk[C])
        most = 1.0
        if repeated is not None and told:
            most = min(most, TOO_CLOSE * sum(repeated[C] for C in told) / max(sum(likely.values()), 1e-300))
        for C, found in self.shrunk.items():
            trust = likely[C] ** 2 / (likely[C] ** 2 + told[C])
            own = float(np.clip(found.risk, 0.0, found.raw_risk))
            self.risk[C] = trust * own + (1 - trust) * most * likely[C]
        for C, raw in self.raw_risk.items():
            self.risk.setdefault(C, raw)
        again = repeated or {}
        for order in sorted({len(C) for C in again if C}):
            # An error of the total is in all tables, and none of them sees it by its own noise.
            there = [C for C in again if len(C) == order]
            more = max(1.0, sum(again[C] for C in there) / max(sum(self.risk[C] for C in there), 1e-300))
            for C in there:
                self.risk[C] = min(self.raw_risk[C], more * self.risk[C])

    def run(
        self, sets: Sequence[Columns], asked: Sequence[Columns], seed: int, progress: Progress | None = None
    ) -> None:
        """Denoise margins, then pairs, then larger tables."""
        cells = {C: prod(self.sizes[i] for i in C) for C in sets}
        all_cells, done = max(1, sum(cells.values())), 0

        def tell(share: float, what: str) -> None:
            if progress is not None:
                progress(min(1.0, share), what)

        columns = [C[0] for C in sets if len(C) == 1]
        for k, i in enumerate(columns):
            self.add_margin(i)
            tell(FOR_MARGINS * (k + 1) / len(columns), "smoothing margins")
        target = self.find_target(
            seed, lambda share: tell(FOR_MARGINS + FOR_CLASSES * share, "fitting classes of records")
        )
        most, order = max((len(C) for C in sets), default=0), 1
        for C in sets:
            done += cells[C]
            if len(C) < 2:
                continue
            if len(C) > order:  # what no larger table needs as a face
                order = len(C)
                for old in [own for own in self.tables if 1 < len(own) < order - 1 and own not in asked]:
                    del self.tables[old]
            self.add_table(C, target, keep=len(C) < most)
            before = FOR_MARGINS + FOR_CLASSES
            tell(before + (1 - before) * done / all_cells, f"shrinking tables of {len(C)} columns")


@one_thread
def denoise_tables(
    noisy: Parts,
    variances: Mapping[Columns, float],
    tables: Sequence[Columns],
    sizes: tuple[int, ...],
    seed: int,
    *,
    progress: Progress | None = None,
) -> DenoisedTables:
    """Denoised tables from noisy components; Ctrl-C gives what is found so far, and targets for the rest.

    Args:
        noisy: every component of the tables.
        variances: t, of the noise in every direction of each.
        tables: the columns of every table.
        sizes: how many values every column has.
        seed: where the search for classes starts.
        progress: called with (share done, what is being done).
    """
    asked = maximal(tuple(i for i in own if sizes[i] > 1) for own in tables)
    sets = closure(asked)
    work = _Tables({C: noisy[C] for C in sets}, variances, sizes)
    few = sum(prod(sizes[i] for i in C) for C in sets) <= MOST_REPEATED
    share = 0.5 if few else 1.0
    work.run(sets, asked, seed, None if progress is None else lambda done, what: progress(share * done, what))
    if progress is not None and few:
        progress(share, "denoising again, to know the error")
    work.judge(work.repeat(sets, asked, seed) if few and not work.stopped else None)
    found = {A: work.tables[A] for A in asked if A} or {(): np.array(work.total)}
    large = {A: x for A, x in found.items() if len(A) > 1}
    lifted, moved = lift(large, work.margins) if large else ({}, 0.0)
    status = Outcome.CANCELLED if work.stopped else Outcome.CONVERGED
    fitted = Fitted({**found, **lifted}, sizes, status, 0, 0.0, moved)
    share = variances[()] ** 0.5 / max(work.total, 1e-300)
    return DenoisedTables(fitted, work.risk, work.raw_risk, share)
