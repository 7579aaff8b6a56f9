"""What margins and pairs of columns imply for tables of any columns: a mixture of a few classes of records.

Within a class columns have nothing to do with one another, so that a table is T Σ_k π_k θ_ik ⊗ θ_jk ⊗ …. The classes
are fitted to all noisy margins and pairs at once by the likelihood of their Gaussian noise, with a pull to the
margins: all pairs together are one product of matrices, T Θ diag(π) Θᵀ, whose blocks are centred as measured
components are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize

from batchdp.linalg.matrix import Dense, Indices
from batchdp.release.consistency.faces import Columns, split_table

CLASSES = 16
"""On eight invented populations 8, 24 and 32 were as good to 0.5 %."""
PULL = 30.0
"""Records that every class has beside the noisy ones, spread as the margins are; in units of log-likelihood. 100 was as
good to 0.5 %, 10 worse by 9 %."""
MOST_STEPS = 150
AGAIN = 60
"""The same where noise is added."""
ALIKE = 0.7
"""How far the logarithms of tables' sizes may be apart whose shares of noise are averaged."""
FEWEST_VALUES = 4
"""Of all columns together, for every class."""
MOST_VALUES = 4000
"""Of all columns together, for which pairs are one product."""
LEAST = 1e-6
"""Of a probability that is pulled to."""


@dataclass(frozen=True, eq=False)
class Target:
    """Classes of records."""

    shares: Dense
    """π."""
    within: Mapping[int, Dense]
    """Of every column, value × class: θ."""
    total: float
    leverage: Mapping[Columns, float] = field(default_factory=dict)
    """Of every pair, which share of its own noise the classes have taken for truth."""
    stopped: bool = False
    """Whether the search was: these are the best so far."""

    def table(self, columns: Columns) -> Dense:
        """What they imply for these columns."""
        found = self.total * self.shares[None, :]
        for i in columns:
            found = (found[:, None, :] * self.within[i][None, :, :]).reshape(-1, len(self.shares))
        return np.asarray(found.sum(axis=1)).reshape([len(self.within[i]) for i in columns])


def independent(margins: Mapping[int, Dense], total: float) -> Target:
    """One class: the product of margins."""
    return Target(np.ones(1), {i: (m / max(total, 1e-300))[:, None] for i, m in margins.items()}, total)


def fit_target(
    margins: Mapping[int, Dense],
    noisy: Mapping[Columns, Dense],
    variances: Mapping[Columns, float],
    total: float,
    seed: int,
    *,
    tell: Callable[[float], None] | None = None,
) -> Target:
    """Classes that fit the noisy pairs among these components, and the margins.

    Args:
        margins: of every column, denoised.
        noisy: components.
        variances: t of each.
        total: of all records.
        seed: of where the search starts.
        tell: called with the share that is done.
    """
    pairs: list[Columns] = [C for C in noisy if len(C) == 2]
    columns = sorted({i for C in pairs for i in C})
    values = sum(len(margins[i]) for i in columns)
    classes = min(CLASSES, values // FEWEST_VALUES)
    if not pairs or values > MOST_VALUES or total <= 1 or classes < 2:
        return independent(margins, total)
    fit = _Fit(margins, {C: noisy[C] for C in pairs}, variances, total, columns, classes, PULL)
    rng = np.random.default_rng(seed)
    start = np.concatenate([np.zeros(classes), (fit.centre + 0.5 * rng.standard_normal(fit.centre.shape)).reshape(-1)])
    search = _Search(fit, MOST_STEPS + AGAIN, tell)
    found = search(start, MOST_STEPS)
    if search.stopped:
        return replace(fit.target(found, margins), stopped=True)
    # What more noise, as large again, does to the classes says what the noise has done to them.
    more = fit.disturb(rng)
    moved = search(found, AGAIN)
    made, again = fit.target(found, margins), fit.target(moved, margins)
    taken: dict[Columns, float] = {
        C: float((more[C] * (again.table(C) - made.table(C))).sum()) / max(variances[C], 1e-12) for C in pairs
    }
    sizes: dict[Columns, float] = {C: float(np.prod([len(margins[i]) - 1 for i in C])) for C in pairs}
    return replace(made, leverage=_pooled(taken, sizes), stopped=search.stopped)


class _Search:
    """L-BFGS that tells how far it is; Ctrl-C ends it with the best so far."""

    def __init__(self, fit: _Fit, steps: int, tell: Callable[[float], None] | None) -> None:
        self.fit, self.steps, self.tell, self.done, self.stopped = fit, steps, tell, 0, False

    def __call__(self, start: Dense, steps: int) -> Dense:
        self.best, step = start, cast(Any, self._step)
        try:
            options: Any = {"maxiter": steps, "maxcor": 12}
            return np.asarray(minimize(self.fit, start, jac=True, method="L-BFGS-B", callback=step, options=options).x)
        except KeyboardInterrupt:
            self.stopped = True
            return self.best

    def _step(self, x: Dense) -> None:
        self.best, self.done = x.copy(), self.done + 1
        if self.tell is not None:
            self.tell(self.done / self.steps)


def _pooled(taken: Mapping[Columns, float], sizes: Mapping[Columns, float]) -> dict[Columns, float]:
    """Shares of the noise, averaged over tables of similar size."""
    logs = np.log([sizes[C] for C in taken])
    near = np.exp(-np.square((logs[:, None] - logs) / ALIKE) / 2)
    shares = near @ np.array(list(taken.values())) / (near @ np.exp(logs))
    return dict(zip(taken, np.clip(shares, 0.0, 1.0).tolist(), strict=True))


class _Fit:
    """−log of the likelihood of classes, and its gradient."""

    def __init__(
        self,
        margins: Mapping[int, Dense],
        pairs: Mapping[Columns, Dense],
        variances: Mapping[Columns, float],
        total: float,
        columns: Sequence[int],
        classes: int,
        pull: float,
    ) -> None:
        self.total, self.classes, self.pull, self.columns = total, classes, pull, columns
        self.pairs, self.variances = pairs, variances
        sizes = [len(margins[i]) for i in columns]
        ends = np.cumsum(sizes)
        self.spans = [slice(end - n, end) for end, n in zip(ends, sizes, strict=True)]
        self.sizes: Indices = np.array(sizes, dtype=np.int64)
        self.starts: Indices = ends - self.sizes
        self.place = place = dict(zip(columns, self.spans, strict=True))
        self.noisy, self.precision = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], ends[-1]))
        for (i, j), z in pairs.items():
            own = 1 / max(variances[i, j], 1e-12)
            self.noisy[place[i], place[j]], self.noisy[place[j], place[i]] = z, z.T
            self.precision[place[i], place[j]] = self.precision[place[j], place[i]] = own
        p = np.concatenate([margins[i] / total for i in columns])
        self.margin = np.maximum(p, LEAST)
        self.one_way = np.concatenate(
            [np.full(n, 1 / max(variances.get((i,), 1.0), 1e-12)) for i, n in zip(columns, sizes, strict=True)]
        )
        self.measured = total * p
        self.centre = np.repeat(np.log(self.margin)[:, None], classes, axis=1)

    def disturb(self, rng: np.random.Generator) -> dict[Columns, Dense]:
        """Add noise as large as there is to all pairs; what was added."""
        added = {}
        for C, z in self.pairs.items():
            noise = split_table(rng.standard_normal(z.shape), C)[C] * self.variances[C] ** 0.5
            self.noisy[self.place[C[0]], self.place[C[1]]] += noise
            self.noisy[self.place[C[1]], self.place[C[0]]] += noise.T
            added[C] = noise
        return added

    def target(self, x: Dense, margins: Mapping[int, Dense]) -> Target:
        """The classes, also of columns that no pair has."""
        shares, theta = self.unpack(x)
        within = {i: theta[own] for i, own in self.place.items()}
        rest = {i: m for i, m in margins.items() if i not in within}
        others = {i: np.repeat((m / self.total)[:, None], self.classes, axis=1) for i, m in rest.items()}
        return Target(shares, {**within, **others}, self.total)

    def unpack(self, x: Dense) -> tuple[Dense, Dense]:
        """π and Θ from their logarithms, which need not add up."""
        a = x[: self.classes]
        shares = np.exp(a - a.max())
        logits = x[self.classes :].reshape(-1, self.classes)
        top = np.maximum.reduceat(logits, self.starts, axis=0)
        theta = np.exp(logits - np.repeat(top, self.sizes, axis=0))
        theta /= np.repeat(np.add.reduceat(theta, self.starts, axis=0), self.sizes, axis=0)
        return shares / shares.sum(), theta

    def _centred(self, of: Dense) -> Dense:
        means = np.add.reduceat(of, self.starts, axis=0) / self.sizes[:, None]
        return np.asarray(of - np.repeat(means, self.sizes, axis=0))

    def __call__(self, x: Dense) -> tuple[float, Dense]:
        shares, theta = self.unpack(x)
        centred = self._centred(theta)
        off = self.total * (centred * shares) @ centred.T - self.noisy
        pulled = self.precision * off
        cost = float(np.vdot(pulled, off)) / 4  # every pair is there twice
        # By Θ: T E Θc π, centred; by π: T/2 Σ Θc ∘ (E Θc).
        slope = self.total * (pulled @ centred)
        by_theta, by_share = self._centred(slope * shares), 0.5 * (slope * centred).sum(axis=0)
        expected = self.total * theta @ shares - self.measured
        cost += float(self.one_way @ np.square(expected)) / 2
        own = self.total * self.one_way * expected
        by_theta, by_share = by_theta + own[:, None] * shares, by_share + theta.T @ own
        cost -= self.pull * float(self.margin @ np.log(np.maximum(theta, 1e-300)).sum(axis=1))
        logits = theta * by_theta
        within = np.repeat(np.add.reduceat(logits, self.starts, axis=0), self.sizes, axis=0)
        mass = np.repeat(np.add.reduceat(self.margin, self.starts), self.sizes)[:, None]
        gradient = logits - theta * within - self.pull * (self.margin[:, None] - theta * mass)
        by_a = shares * (by_share - float(shares @ by_share))
        return cost, np.concatenate([by_a, gradient.reshape(-1)])
