"""The closest tables without a negative cell.

Minimise ½ Σ_C p_C ‖z_C − y_C‖² over components z such that every table made of them is ≥ 0, where y are the noisy
components and 1/p_C is the variance of their noise: the problem of GReM-LNN (Mullins et al. 2024).

The components of no column and of one are settled first and then held: the total as it was estimated, and with it the
closest one-way margins. Without that, the total would pay for the noise of every nearly empty table: 48 540 records
become 77 259 (docs/consistency.md). Tables with these margins always exist: their products.

A table of weight q = p_A pulls, by all its cells, also on the components below it, with q / n_{A∖C}; what their own
precision leaves of that, p_C − Σ_A q / n_{A∖C}, can be below 0. A proximal term takes it above, and its centre follows
the solution (Rockafellar 1976). What remains is a problem of prices on the tables' faces (`faces`), which damped Newton
steps solve (`newton`).

Tables of two columns share nothing but what is held. Where tables share more, most faces of large tables are left
without a cell above 0, and prices that nothing answers to cannot be found. So cells are kept above 0 by a barrier, −μ
log x, and μ falls until that costs next to nothing: an interior point method on the prices.

A search that ends before the tables agree has them lifted (`lifting`), so that it always has a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.release.consistency.faces import (
    Columns,
    Faces,
    Fit,
    Parts,
    Shared,
    closure,
    faces_of,
    join_components,
    maximal,
    project,
    split_table,
    spread,
)
from batchdp.release.consistency.newton import lift, newton_step
from batchdp.text import Outcome, Progress

# ── the total and the one-way margins ──


def hold_margins(noisy: Parts, sets: list[Columns], sizes: tuple[int, ...]) -> dict[Columns, Dense]:
    """The total, at least 0, and of every column the component of the closest non-negative margin with this total."""
    total = max(0.0, float(noisy[()]))
    held: dict[Columns, Dense] = {(): np.array(total)}
    for own in sets:
        if len(own) == 1:
            even = total / sizes[own[0]]
            held[own] = project_onto_simplex(noisy[own] + even, total) - even
    return held


def project_onto_simplex(values: Dense, total: float) -> Dense:
    """The closest non-negative values with this total: all are lowered alike, and cut at 0."""
    if total <= 0:
        return np.zeros_like(values)
    return np.asarray(np.maximum(values - find_lowering(values, total), 0.0))


def find_lowering(values: Dense, total: float) -> float:
    """By how much all values are lowered, so that those above 0 add up to the total."""
    falling = np.sort(values)[::-1]
    lowered = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > lowered)[-1])
    return float(lowered[last])


SHORTEST = 2.0**-20
"""Of a step."""
LEAST_DAMPING, MOST_DAMPING = 1e-7, 100.0
SLACK = 0.005
"""Of the standard error of a one-way margin: by how much, on average, lifting may add to its cells."""
ROUNDING = 1e-14
"""Of sums over all cells, as a share."""
PASS_SECONDS, CELL_SECONDS = 3e-4, 1.5e-8
"""Nominal seconds of a product with the second derivative, for every table and for every cell; measured."""
FIT = 3.0
"""Products that trying a step takes the time of."""
NEGLIGIBLE = 0.01
"""Of a squared distance, for every cell: noise alone has ½, so that what is less is not told apart from 0."""


@dataclass(frozen=True)
class Settings:
    """What the search ends by."""

    tolerance: float = 1e-8
    """Ends when no shared margin differs by more than this, as a share of it where it is above 1."""
    gap: float = 1e-4
    """And when the squared distance is at most this share above the least."""
    rounds: int = 2000
    """Steps at most."""
    seconds: float = 1500.0
    """Nominal ones at most, after which tables are lifted: work is counted by passes over the cells, not by a clock."""
    stiffness: float = 0.3
    """The least of a shared component's own, as a share of what all tables have on it: more makes steps easier and the
    centres slower."""
    damping: float = 1.0
    """Cells that a step takes every face to have more at first; less after each full step, more after each other."""
    products: int = 200
    """Of the second derivative, at most in a step."""
    softness: float = 1.0
    """μ at first, in squared distances: the noise of one cell has ½."""
    hardening: float = 5.0
    """What μ is divided by as soon as tables nearly agree."""
    nearly: float = 0.05
    """By how much shared margins may then differ, as `tolerance` has it."""
    settled: float = 1e-2
    """And how far shared components may be from their centres, as a share of their squared distance."""
    averaged: float = 1e-5
    """By how much shared margins may differ at last, where there is a barrier: lifting then only averages them, because
    no cell is so near to 0 that this would take it below."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Tables that agree and are not negative, and how they were found."""

    tables: Parts
    """Those that are no margin of another, without columns of one value."""
    sizes: tuple[int, ...]
    status: Outcome
    rounds: int
    gap: float
    """How far the squared distance to the noisy tables may be above the least, as a share of it."""
    lifted: float
    """Records that were moved in the end to make tables agree, as a share of all."""

    def table(self, columns: Columns) -> Dense:
        """The fitted table over these columns."""
        told = _drop_single(columns, self.sizes)
        whole = next(A for A in self.tables if set(told) <= set(A))
        return project(self.tables[whole], whole, told).reshape([self.sizes[i] for i in columns])


def _drop_single(columns: Columns, sizes: tuple[int, ...]) -> Columns:
    """Without columns of one value, of which there is nothing to say."""
    return tuple(i for i in columns if sizes[i] > 1)


@one_thread
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
        progress: called with (share done, what is being done).
    """
    asked = maximal(_drop_single(own, sizes) for own in tables)
    sets = closure(asked)
    held = hold_margins({C: noisy[C] for C in sets}, sets, sizes)
    total = float(held[()])
    small = {A: join_components(held, A, sizes) for A in asked if len(A) < 2}
    if total <= 0 or len(small) == len(asked):
        nothing = {A: np.zeros([sizes[i] for i in A]) for A in asked}
        return Fitted(nothing if total <= 0 else small, sizes, Outcome.CLOSED_FORM, 0, 0.0, 0.0)
    large = [A for A in asked if len(A) > 1]
    search = _Search({C: noisy[C] for C in closure(large)}, precision, large, held, sizes, settings or Settings())
    found = search.run(progress)
    return replace(found, tables={**small, **found.tables})


class _Search:
    """The prices, the tables that they make, and the centres of what tables share."""

    def __init__(
        self,
        noisy: Parts,
        precision: Mapping[Columns, float],
        tables: list[Columns],
        held: Parts,
        sizes: tuple[int, ...],
        settings: Settings,
    ) -> None:
        self.y, self.p, self.sizes, self.settings = noisy, precision, sizes, settings
        sets = closure(tables)
        self.held = {C: held[C] for C in sets if C in held}
        self.inner = [C for C in sets if C not in held and C not in tables]
        self.total = float(held[()])
        self.margins = {C[0]: np.maximum(z + self.total / len(z), 0.0) for C, z in self.held.items() if C}
        empty = {i: np.flatnonzero(margin <= 0) for i, margin in self.margins.items()}
        start = {C: noisy[C] for C in sets} | self.held
        self.faces = Faces(
            {A: join_components(start, A, sizes) for A in tables}, {A: precision[A] for A in tables}, sizes, empty
        )
        self.cells = sum(t.size for t in self.faces.t.values())
        from_tables = {
            C: sum(precision[A] / spread(C, A, sizes) for A in tables if set(C) <= set(A)) for C in self.inner
        }
        self.left = {C: precision[C] - own for C, own in from_tables.items()}
        self.proximal = {C: max(0.0, settings.stiffness * own - self.left[C]) for C, own in from_tables.items()}
        self.stiffness = {C: self.left[C] + self.proximal[C] for C in self.inner}
        self.spent = 0.0
        self.damping, self.softness = settings.damping, settings.softness if self.inner else 0.0
        self.rounding = 1e-13 * max(float(np.abs(t).max()) for t in self.faces.t.values())
        self._centre({C: noisy[C] for C in self.inner})
        self._take(self.faces.fit(self._start(), self.softness))

    def _start(self) -> Dense:
        """One price for all cells of a table, by which it has the right total."""
        prices = np.zeros(self.faces.length)
        for A, t in self.faces.t.items():
            there = t[np.ix_(*(self.margins[i] > 0 for i in A))].reshape(-1)
            for F in faces_of(A):
                prices[self.faces.place[A, F]] = self.faces.q[A] * find_lowering(there, self.total) / len(A)
        return prices

    def _centre(self, centres: Parts) -> None:
        self.centres = centres
        towards = {
            C: (self.left[C] * self.y[C] + self.proximal[C] * centres[C]) / self.stiffness[C] for C in self.inner
        }
        self.shared = Shared(towards, self.stiffness, self.held)

    def _pull(self, fit: Fit) -> dict[Columns, Dense]:
        return self.faces.pulls(fit.prices, {**self.shared.centres, **self.held})

    def _take(self, fit: Fit) -> None:
        """These prices, and what follows from them."""
        pull = self._pull(fit)
        self.fit, self.cost, self.z = fit, fit.cost + self.shared.cost(pull), self.shared.pulled(pull)
        wanted = self.faces.spread_out(self.z)
        self.gradient = wanted - fit.margins
        allowed = np.maximum(1.0, np.abs(wanted)) + self.rounding / self.settings.tolerance
        self.off = float((np.abs(self.gradient) / allowed).max())

    def run(self, progress: Progress | None) -> Fitted:
        """Steps, each followed by what it allows, until tables agree and nothing moves."""
        self.gap, self.largest, self.settled = np.inf, NEGLIGIBLE * self.cells, self.settings.settled
        self.near = self.settings.nearly if self.inner else self.settings.tolerance
        status, rounds = Outcome.OUT_OF_ROUNDS, 0
        try:
            while rounds < self.settings.rounds:
                damping, gained = self.damping, self._step()
                rounds += 1
                if progress is not None:
                    progress(self._done(), f"making tables agree: margins differ by {self.off:.1e}")
                if self.off <= self.near and self._is_settled():
                    if self._is_closest():
                        status = Outcome.CONVERGED
                        break
                elif gained == 0 and damping >= MOST_DAMPING:
                    status = Outcome.STALLED
                    break
                elif not self._is_settled() and (self.off <= self.near or 0 < gained <= self._moved() / 10):
                    # Sums that rounding leaves in a component would double with every centre: nothing pulls on them.
                    self._centre({C: split_table(self.z[C], C)[C] for C in self.inner})
                    self._take(self.fit)
                if self.spent > self.settings.seconds:
                    status = Outcome.OUT_OF_TIME
                    break
        except KeyboardInterrupt:
            status = Outcome.CANCELLED
        found = {A: x for A, x, _ in self.faces.tables(self.fit.prices, self.softness)}
        if self.off <= self.settings.tolerance:
            return Fitted(found, self.sizes, status, rounds, float(self.gap), 0.0)
        slack = {i: SLACK * len(margin) / self.p[i,] ** 0.5 for i, margin in self.margins.items()}
        agreeing, moved = lift(found, self.margins, slack)
        return Fitted(agreeing, self.sizes, status, rounds, float(self.gap), moved)

    def _is_settled(self) -> bool:
        return self._moved() <= self.settled * self._distance()

    def _is_closest(self) -> bool:
        """Whether this is the end; if not, what is in the way is made less."""
        self.gap, self.largest = self._gap()
        if self.gap > self.settings.gap and self.inner:
            if self.softness * self.cells > self.settings.gap / 2 * self.largest:
                self.softness /= self.settings.hardening
                self._take(self.faces.fit(self.fit.prices, self.softness))
            else:
                self.settled /= 10
            return False
        self.near = self.settings.averaged if self.inner else self.settings.tolerance
        return self.off <= self.near

    def _done(self) -> float:
        """Of the way, by what the barrier costs and then by how well tables agree."""
        first, last = self.settings.softness, self.settings.gap * self.largest / self.cells
        hard = np.log(first / self.softness) / np.log(first / last) if self.inner else 1.0
        agree = np.log(max(self.off, 1e-300)) / np.log(self.settings.averaged)
        return float(np.clip(0.8 * hard + 0.2 * np.clip(agree, 0, 1), 0, 1))

    def _step(self) -> float:
        """A damped Newton step as far as it pays; by how much it was to, 0 where it did not."""
        step, products = newton_step(
            self.faces,
            self.shared,
            self.fit,
            self.gradient,
            damping=float(np.clip(self.off, LEAST_DAMPING, self.damping)),
            accuracy=float(np.clip(self.off, 1e-3, 0.1)),
            most=self.settings.products,
        )
        self._charge(products)
        slope, before, prices, length = float(self.gradient @ step), self.cost, self.fit.prices, 1.0
        while length >= SHORTEST:
            fit = self.faces.fit(prices + length * step, self.softness)
            self._charge(FIT)
            cost = fit.cost + self.shared.cost(self._pull(fit))
            if cost <= before + 1e-4 * length * slope + ROUNDING * abs(before):
                self._take(fit)
                self.damping = (
                    max(LEAST_DAMPING, self.damping / 4) if length == 1 else min(MOST_DAMPING, 4 * self.damping)
                )
                return -slope
            length /= 2
        self.damping = MOST_DAMPING
        return 0.0

    def _charge(self, passes: float) -> None:
        self.spent += passes * (PASS_SECONDS * len(self.faces.t) + CELL_SECONDS * self.cells)

    def _moved(self) -> float:
        """How far the shared components are from their centres."""
        return sum(self.proximal[C] * float(np.square(self.z[C] - self.centres[C]).sum()) for C in self.inner) / 2

    def _distance(self) -> float:
        return sum(self.p[C] * float(np.square(self.z[C] - self.y[C]).sum()) for C in self.inner) / 2

    def _gap(self) -> tuple[float, float]:
        """Between the squared distance and the least that any tables can have, by the dual: as a share, and of what."""
        pull = {C: np.zeros_like(part) for C, part in {**self.shared.centres, **self.held}.items()}
        primal, dual = self._distance(), 0.0
        for A, x, uncut in self.faces.tables(self.fit.prices, self.softness):
            own = split_table(x, A)[A] - self.y[A]
            primal += self.p[A] * float(np.square(own).sum()) / 2
            for C, part in split_table(self.p[A] * (x - uncut), A).items():
                if C == A:
                    dual -= float(np.square(part).sum()) / (2 * self.p[A]) + float((part * self.y[A]).sum())
                else:
                    pull[C] += part / spread(C, A, self.sizes)
        for C in self.inner:
            dual -= float(np.square(pull[C]).sum()) / (2 * self.p[C]) + float((pull[C] * self.y[C]).sum())
        for C, part in self.held.items():
            dual -= float((pull[C] * part).sum())
        largest = max(primal, dual, NEGLIGIBLE * self.cells)
        return abs(primal - dual) / largest, largest
