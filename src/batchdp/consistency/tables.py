"""The closest tables without a negative cell: operator splitting on components.

Minimise ½ Σ_C p_C ‖z_C − y_C‖² over components z such that every table made of them is ≥ 0, where y are the noisy
components and 1/p_C is the variance of their noise. Components are orthogonal in every table, so that one half of a
round of ADMM (Boyd et al. 2011, with over-relaxation) is a weighted average of each component, in closed form, and the
other half cuts tables at 0.

The components of no column and of one are settled first and then held: the total as it was estimated, and with it the
closest one-way margins. Without that, the total would pay for the noise of every nearly empty table: 48 540 records
become 77 259 (docs/consistency.md). A table with these margins always exists: their product.

What a round leaves below 0 is lifted: the missing counts are added to the whole as if their records were spread evenly
over all other columns, and everything is scaled to its total. Adding and scaling non-negative tables keeps them
non-negative and in agreement, whatever the round, so that a search that is stopped has a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchdp.consistency.components import Columns, Parts, closure, joined, maximal, split, spread, subsets
from batchdp.consistency.margins import held_margins
from batchdp.outcome import Outcome
from batchdp.progress import Progress

Dense = NDArray[np.float64]

BALANCED = 2.0
"""How different the two halves of a round may be before the pressing is changed."""


@dataclass(frozen=True)
class Settings:
    """Of the search."""

    tolerance: float = 1e-6
    """Ends when less than this share of all records is missing below 0, and the gap is no more than 100 times that."""
    rounds: int = 3000
    relaxation: float = 1.6
    press: float = 5.0
    """How hard tables are pressed towards 0 and above at first, in units of one over the variance of their noise."""
    adapting: int = 1000
    """Rounds within which that changes, twice as hard or half, by how the search gets on."""
    look: int = 10
    """Rounds between two looks at the gap."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Components whose tables are non-negative, and how they were found."""

    parts: Parts
    sizes: tuple[int, ...]
    status: Outcome
    rounds: int
    gap: float
    """How far the squared distance to the noisy tables may be above the least, as a share of it."""
    lifted: float
    """Counts that were missing below 0 in the end and were spread, as a share of all records."""

    def table(self, columns: Columns) -> Dense:
        """Over these columns; what rounding leaves below 0 is 0."""
        return np.maximum(joined(self.parts, columns, self.sizes), 0.0)


def closest_tables(
    noisy: Parts,
    precision: Mapping[Columns, float],
    tables: list[Columns],
    sizes: tuple[int, ...],
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """The non-negative tables closest to the noisy components; Ctrl-C gives the best so far.

    Args:
        noisy: y, every component of the tables.
        precision: p, one over the variance of the noise in each.
        tables: the columns of every table that must be non-negative.
        sizes: how many values every column has.
        settings: of the search.
        progress: called with (share, what is being done).
    """
    search = _Search(noisy, precision, maximal(tables), sizes, settings or Settings())
    return search.run(progress)


class _Search:
    """The state: for every table v, whose positive part is the table x and whose negative part the scaled dual."""

    def __init__(
        self,
        noisy: Parts,
        precision: Mapping[Columns, float],
        tables: list[Columns],
        sizes: tuple[int, ...],
        settings: Settings,
    ) -> None:
        self.y, self.p, self.tables, self.sizes, self.settings = noisy, precision, tables, sizes, settings
        self.sets = closure(tables)
        self.held = held_margins(noisy, self.sets, sizes)
        self.free = [own for own in self.sets if own not in self.held]
        self.total = float(self.held[()])
        self.empty = {C[0]: np.flatnonzero(z + self.total / len(z) <= 0) for C, z in self.held.items() if C}
        self.penalty = {A: settings.press / self._variance(A) for A in tables}
        self.z: dict[Columns, Dense] = {**self.held, **{C: noisy[C] for C in self.free}}
        self.v = {A: joined(self.z, A, sizes) for A in tables}

    def _variance(self, A: Columns) -> float:
        """Of the noise in the table's cells: in its units, rounds treat noise of any size alike."""
        variance = 0.0
        for C in subsets(A):
            n = [self.sizes[i] for i in C]
            share = float(np.prod([1 - 1 / k for k in n])) / spread(C, A, self.sizes) ** 2
            variance += share / self.p[C]
        return variance

    def run(self, progress: Progress | None) -> Fitted:
        status, gap, k = Outcome.OUT_OF_ROUNDS, np.inf, 0
        if self.total <= 0:
            return Fitted(
                {C: np.zeros_like(self.y[C]) for C in self.sets}, self.sizes, Outcome.CLOSED_FORM, 0, 0.0, 0.0
            )
        if not self.free:
            return Fitted(self.z, self.sizes, Outcome.CLOSED_FORM, 0, 0.0, 0.0)
        try:
            for k in range(1, self.settings.rounds + 1):
                missing, balance = self._round()
                if k % self.settings.look and k < self.settings.rounds:
                    continue
                gap = self._gap()
                if progress is not None:
                    progress(
                        k / self.settings.rounds,
                        f"making tables agree: {missing / self.total:.1e} below 0, gap {gap:.1e}",
                    )
                if missing <= self.settings.tolerance * self.total and gap <= 100 * self.settings.tolerance:
                    status = Outcome.CONVERGED
                    break
                if k <= self.settings.adapting and not 1 / BALANCED < balance < BALANCED:
                    self._press(2.0 if balance > 1 else 0.5)
        except KeyboardInterrupt:
            status = Outcome.CANCELLED
        parts, lifted = self._lifted()
        return Fitted(parts, self.sizes, status, k, float(gap), lifted)

    def _round(self) -> tuple[float, float]:
        """Average the components, cut the tables.

        Returns how many counts are missing below 0, and how the distance of the averages from the tables compares with
        how far the tables moved: where one is far above the other, pressing harder or less would get on faster.
        """
        found = {C: self.p[C] * self.y[C] for C in self.free}
        weight = {C: self.p[C] for C in self.free}
        for A, v in self.v.items():
            for C, part in split(2 * self._cut(v, A) - v, A).items():  # x − u, where v = x + u
                if C in found:
                    share = self.penalty[A] / spread(C, A, self.sizes)
                    found[C] += part * share
                    weight[C] += share
        self.z = {**self.held, **{C: part / weight[C] for C, part in found.items()}}
        missing = apart = moved = 0.0
        for A, v in self.v.items():
            table, x = joined(self.z, A, self.sizes), self._cut(v, A)
            missing += float(np.maximum(self._cut(table, A) - table, 0.0).sum())
            v += self.settings.relaxation * (table - x)
            after = self._cut(v, A)
            apart += self.penalty[A] * float(np.square(table - after).sum())
            moved += self.penalty[A] * float(np.square(after - x).sum())
        return missing, float(np.sqrt(apart / moved)) if moved > 0 else 1.0

    def _press(self, factor: float) -> None:
        """Press harder: the dual stays the same, so that its scaled form shrinks."""
        for A, v in self.v.items():
            self.penalty[A] *= factor
            x = self._cut(v, A)
            self.v[A] = x + (v - x) / factor

    def _cut(self, table: Dense, A: Columns) -> Dense:
        """The closest table that is nowhere below 0, and 0 where a margin is: said outright, since a sum of 0 does not
        press on its terms, and rounds without number would be needed to make them so."""
        cut = np.maximum(table, 0.0)
        for axis, i in enumerate(A):
            if len(self.empty[i]):
                np.moveaxis(cut, axis, 0)[self.empty[i]] = 0.0
        return cut

    def _gap(self) -> float:
        """Between the squared distance of z and the least that any tables can have, by the dual, as a share of it."""
        pull = {C: np.zeros_like(self.y[C]) for C in self.sets}
        for A, v in self.v.items():
            for C, part in split(self.penalty[A] * (self._cut(v, A) - v), A).items():
                pull[C] += part / spread(C, A, self.sizes)
        primal = dual = 0.0
        for C in self.free:
            primal += self.p[C] * float(np.square(self.z[C] - self.y[C]).sum()) / 2
            dual -= float(np.square(pull[C]).sum()) / (2 * self.p[C]) + float((pull[C] * self.y[C]).sum())
        for C, part in self.held.items():
            dual -= float((pull[C] * part).sum())
        scale = max(primal, dual, 1e-12 * self._noise())
        return abs(primal - dual) / scale

    def _noise(self) -> float:
        """What the distance would be by noise alone."""
        return float(sum(self.y[C].size for C in self.free)) / 2 or 1.0

    def _lifted(self) -> tuple[Parts, float]:
        """Components whose tables have nothing below 0 and the same total."""
        added = {C: np.zeros_like(self.y[C]) for C in self.sets}
        for A in self.tables:
            for C, part in split(np.maximum(-joined(self.z, A, self.sizes), 0.0), A).items():
                added[C] += part
        missing = float(added[()])
        scale = self.total / (self.total + missing)
        return {C: scale * (self.z[C] + added[C]) for C in self.sets}, missing / self.total
