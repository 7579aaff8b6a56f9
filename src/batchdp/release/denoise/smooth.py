"""Smooth and non-negative: cells behind a matrix of measurements, and margins of one column with their total held.

Smooth cells are x = width · e^θ with the least −log-likelihood of the measurements plus (λ/2) Σ (Δθ)²/gap, over runs of
cells that no measurement tells apart. Several λ are averaged by the evidence e^−E, E = F + ½ log det H + ½ Σ log(2π
gap/λ). The other estimator are the answers of non-negative cells that are closest to the raw ones. How much of each is
added to the raw answers is chosen by the estimated risk, and the result is brought to the closest answers of
non-negative cells: as the true ones are such, and all of these are a convex cone, no squared error grows by that.

The likelihood is that of the noise. Laplace noise counts a measurement the less the farther it is off: where many
measurements tell of few smooth cells, that halves the variance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import linalg, sparse

from batchdp.linalg.matrix import Dense, Indices, dense
from batchdp.linalg.threads import one_thread
from batchdp.progress import Outcome, Progress
from batchdp.release.consistency.cells import Fit, closest_cells
from batchdp.release.consistency.tables import project_onto_simplex
from batchdp.release.denoise.mixing import average_weights, best_mix

STIFFNESS = (2000.0, 500.0, 120.0, 30.0, 8.0, 1.5, 0.3)
"""λ, the stiffest first: each starts from the one before."""
SHY = 2.0
"""What is taken off every gain, in variances of the noise along the way to it, as James and Stein do."""
MOST_SMOOTH = 1500
"""Runs of cells up to which smooth ones are looked for."""
MOST_DENSE = 20_000_000
"""Measurements times runs that are held as one array."""
MOST_JUDGED = 2000
"""Answers, or runs of cells, up to which the covariance of non-negative ones is looked at."""
MOST_STEPS = 60
LARGEST_STEP = 2.0
"""Of a logarithm."""
SETTLED = 1e-3
"""Of what is minimised, in units of log-likelihood."""
ROUNDED = 0.3
"""How far off, in standard deviations, a measurement with Laplace noise begins to count less: its corner, rounded."""
LAPLACE_TOLD = (1.2236, 0.9190)
"""E ψ² and E nψ for Laplace noise n of variance 1, ψ(n) = √2 n / √(n² + ROUNDED²): what it tells, and how it moves."""
MOVED = 1.25
"""How much more Laplace noise moves smooth cells than that says, which is true of many records alone: for risks."""
EVEN = 0.15
"""How strongly the mix is pulled to equal parts, in raw risks: few directions carry the error, so chance is large."""


MARGIN_STIFFNESS = (1000.0, 200.0, 40.0, 8.0, 1.5, 0.3)
"""λ of margins."""
MARGIN_SETTLED = 1e-5
PROBES = 8
"""Random signs that traces are estimated with where there are very many values."""
MOST_EXACT = 2000
"""Values up to which they are not."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What was measured, in units in which the noise has variance 1.

    Args:
        measure: L, measurement × run of cells.
        reconstruct: B, answer × measurement.
        queries: W, answer × run of cells; W = B L.
        measured: y.
        widths: how many cells every run has.
        independent: whether the noise is; if not, nothing is said of covariances, and cells are not smoothed.
        laplace: whether it is Laplace noise; if not, it is taken for Gaussian.
    """

    measure: sparse.csr_array
    reconstruct: Dense | sparse.csr_array
    queries: sparse.csr_array
    measured: Dense
    widths: Dense
    independent: bool = True
    laplace: bool = False

    @cached_property
    def variances(self) -> Dense:
        """Of the noise in every answer."""
        B = self.reconstruct
        return np.asarray((B.multiply(B) if sparse.issparse(B) else np.square(B)).sum(axis=1)).reshape(-1)


@dataclass(frozen=True, eq=False)
class DenoisedCells:
    """Answers, and what was found about them."""

    answers: Dense
    cells: Dense
    """Of every run, non-negative: the answers are theirs."""
    mix: tuple[float, float]
    """How much of the smooth and of the non-negative answers there is in them."""
    risks: Dense | None
    """Of every answer, estimated: to be added up over many, for chance is large in each. None where not known."""
    raw_risks: Dense
    status: Outcome


def runs_of(measure: sparse.csr_array) -> Indices:
    """The first cell of every run of neighbours that are measured alike."""
    L = sparse.csc_array(measure)
    L.sort_indices()
    first, before = [], None
    for j in range(L.shape[1]):
        part = slice(L.indptr[j], L.indptr[j + 1])
        own = (L.indices[part].tobytes(), L.data[part].tobytes())
        if own != before:
            first.append(j)
        before = own
    return np.array(first, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Smooth:
    """Smooth cells, averaged over λ."""

    cells: Dense
    covariance: Dense
    """Of every answer with the noise in the raw one."""


def descend(
    theta: Dense, cost: Callable[[Dense], float], step: Callable[[Dense, float], Dense], settled: float
) -> Dense:
    """The θ that damped steps end at.

    Args:
        theta: where they start.
        cost: what is minimised.
        step: from θ and a damping to the next θ.
        settled: what a step gains when they end.
    """
    damping, now = 1e-3, cost(theta)
    for _ in range(MOST_STEPS):
        tried = step(theta, damping)
        after = cost(tried)
        if after <= now:
            gained, theta, now = now - after, tried, after
            damping = max(damping / 10, 1e-9)
            if gained <= settled:
                break
        else:
            damping *= 10
            if damping > 1e8:
                break
    return theta


def _bounded(step: Dense) -> Dense:
    """No logarithm moves too far at once."""
    return step * min(1.0, LARGEST_STEP / max(float(np.abs(step).max()), 1e-300))


class _Stiff:
    """The problem of smooth cells, with a penalty on differences of neighbours."""

    def __init__(self, problem: Problem) -> None:
        self.p, self.L = problem, dense(problem.measure)
        self.gram = self.L.T @ self.L
        gaps = np.diff(np.cumsum(problem.widths) - problem.widths / 2)
        steps = np.diff(np.eye(len(problem.widths)), axis=0)
        self.bending, self.normaliser = steps.T @ (steps / gaps[:, None]), float(np.log(gaps).sum())

    def cost(self, theta: Dense, stiffness: float) -> float:
        """What is minimised."""
        off = self.L @ (self.p.widths * np.exp(theta)) - self.p.measured
        fit = 2**0.5 * float(np.hypot(off, ROUNDED).sum()) if self.p.laplace else float(off @ off) / 2
        return fit + stiffness / 2 * float(theta @ (self.bending @ theta))

    def step(self, theta: Dense, damping: float, stiffness: float) -> Dense:
        """The next θ, by squares that are above the cost and touch it."""
        x = self.p.widths * np.exp(theta)
        off, gram = self.L @ x - self.p.measured, self.gram
        if self.p.laplace:
            counted = 2**0.5 / np.hypot(off, ROUNDED)
            off, gram = counted * off, (self.L.T * counted) @ self.L
        slope = x * (self.L.T @ off) + stiffness * (self.bending @ theta)
        H = x[:, None] * gram * x + stiffness * self.bending
        H[np.diag_indices_from(H)] += damping * np.maximum(np.diag(H), 1e-6)
        return theta + _bounded(-linalg.cho_solve(linalg.cho_factor(H, check_finite=False), slope, check_finite=False))

    def solve(self, theta: Dense, stiffness: float) -> tuple[Dense, float, Dense]:
        """θ, the evidence's E, and the covariance of every answer with the noise in the raw one."""
        theta = descend(
            theta, partial(self.cost, stiffness=stiffness), partial(self.step, stiffness=stiffness), SETTLED
        )
        x = self.p.widths * np.exp(theta)
        told, moved = LAPLACE_TOLD if self.p.laplace else (1.0, 1.0)
        H = told * x[:, None] * self.gram * x + stiffness * self.bending
        ridge = np.diag(1e-9 * np.maximum(np.diag(H), 1e-9))
        factor = linalg.cholesky(H + ridge, lower=True, check_finite=False)
        evidence = self.cost(theta, stiffness) + float(np.log(np.diag(factor)).sum())
        evidence += (self.normaliser - (len(x) - 1) * np.log(stiffness)) / 2
        if not self.p.laplace:  # the exact second derivative, where that is positive
            with suppress(linalg.LinAlgError):
                bent = np.diag(x * (self.L.T @ (self.L @ x - self.p.measured)))
                factor = linalg.cholesky(H + bent, lower=True, check_finite=False)
        W = np.asarray((self.p.queries @ sparse.diags_array(x)).todense())
        half = linalg.solve_triangular(factor, W.T, lower=True, check_finite=False)
        return theta, evidence, np.asarray(moved * np.square(half).sum(axis=0))


def smooth_cells(problem: Problem, progress: Progress | None = None) -> Smooth:
    """Smooth cells, averaged over λ by their evidence."""
    level = problem.measure @ problem.widths
    rate = float(level @ problem.measured) / max(float(level @ level), 1e-300)
    theta = np.full(len(problem.widths), np.log(max(rate, 1 / problem.widths.sum())))
    stiff, found = _Stiff(problem), []
    for stiffness in STIFFNESS:
        theta, evidence, covariance = stiff.solve(theta, stiffness)
        found.append((problem.widths * np.exp(theta), evidence, covariance))
        if progress is not None:
            progress(len(found) / len(STIFFNESS), "smoothing cells")
    weights = average_weights([evidence for _, evidence, _ in found])
    cells = np.sum([w * x for w, (x, _, _) in zip(weights, found, strict=True)], axis=0)
    answers = [problem.queries @ x for x, _, _ in found]
    middle = problem.queries @ cells
    # The weights move with the measurements too: that adds the variance between the averaged answers.
    between = sum(w * np.square(own - middle) for w, own in zip(weights, answers, strict=True))
    return Smooth(cells, np.asarray(weights @ np.array([covariance for _, _, covariance in found]) + between))


def _closest(problem: Problem, answers: Dense, progress: Progress | None = None) -> tuple[Dense, Outcome]:
    """Non-negative cells whose answers are closest, and how the search ended."""
    W = problem.queries
    squares = np.asarray(W.multiply(W).sum(axis=0)).reshape(-1)
    start = np.divide(np.maximum(W.T @ answers, 0.0), squares, out=np.zeros(W.shape[1]), where=squares > 0)
    whole = W @ start
    fitting = max(float(whole @ answers), 0.0) / max(float(whole @ whole), 1e-300)
    found = Fit(W)(answers, fitting * start)
    tried = [(found.x, found.status)]
    if found.status not in (Outcome.OPTIMAL, Outcome.CANCELLED):
        other = closest_cells(W, answers, progress=progress)
        tried.append((other.x, other.status))
    return min(tried, key=lambda one: float(np.square(W @ one[0] - answers).sum()))


def _projected(problem: Problem, cells: Dense) -> Dense:
    """Of every answer of non-negative cells the covariance with the noise in the raw one: the diagonal of P B Bᵀ."""
    W = np.asarray(problem.queries[:, np.flatnonzero(cells > 0)].todense())
    if W.shape[1] == 0:
        return np.zeros(W.shape[0])
    U, s, _ = linalg.svd(W, full_matrices=False, check_finite=False)
    U = U[:, s > 1e-9 * s[0]]
    B = problem.reconstruct
    return np.asarray((U * (B @ (B.T @ U))).sum(axis=1))


@one_thread
def denoise_cells(problem: Problem, progress: Progress | None = None) -> DenoisedCells:
    """The mix of smooth, non-negative and raw answers with the least estimated risk, made answers of cells.

    Ctrl-C gives the non-negative ones. Where there are too many cells for more, these are all there is.
    """
    raw, W = np.asarray(problem.reconstruct @ problem.measured), problem.queries
    rows = problem.variances
    if progress is not None:
        progress(0.0, "fitting cells that are not negative")
    positive, ended = _closest(problem, raw, progress)
    status = ended if ended is Outcome.CANCELLED else Outcome.CONVERGED
    alone = DenoisedCells(np.asarray(W @ positive), positive, (0.0, 1.0), None, rows, status)
    if status is Outcome.CANCELLED or min(W.shape) > MOST_JUDGED or W.shape[0] * W.shape[1] > MOST_DENSE:
        return alone
    ways, covariances = [alone.answers - raw], []
    try:
        covariances.append(_projected(problem, positive))
        if problem.independent and W.shape[1] <= MOST_SMOOTH and len(problem.measured) * W.shape[1] <= MOST_DENSE:
            smooth = smooth_cells(problem, progress)
            ways.append(np.asarray(W @ smooth.cells) - raw)
            covariances.append(smooth.covariance)
    except KeyboardInterrupt:
        status = Outcome.CANCELLED
        if not covariances:
            return replace(alone, status=status)
    D, cov = np.array(ways), np.array(covariances)
    M = D @ D.T
    chance = np.array(
        [float(np.square(problem.reconstruct.T @ own).sum()) / max(float(own @ own), 1e-300) for own in D]
    )
    mix = np.ones(1)
    if len(ways) > 1:
        mix = best_mix(M, (rows - cov).sum(axis=1) - SHY * chance, pull=EVEN * float(rows.sum()))
    # What the handicap takes off is what choosing the mix is taken to cost.
    cost = SHY * float(mix @ chance) / max(float(rows.sum()), 1e-300) if len(ways) > 1 else 0.0
    if problem.laplace:
        cov[1:] *= MOVED
    risks = rows * (1 + cost) + np.square(mix @ D) - 2 * mix @ (rows - cov)
    cells = _closest(problem, raw + mix @ D)[0] if len(ways) > 1 else positive
    both = (float(mix[1]) if len(ways) > 1 else 0.0, float(mix[0]))
    return DenoisedCells(np.asarray(W @ cells), cells, both, risks, rows, status)


# ── Margins: x = e^θ with Σ x = T has the least ‖x − y‖²/2t + (λ/2) Σ (Δθ)² of neighbours, averaged and mixed alike.
# Where values have no order, smooth margins fit badly, and little is taken of them.


@dataclass(frozen=True, eq=False)
class Margin:
    """A margin that is not negative and has its total."""

    values: Dense
    risk: float
    """Estimated, of all values together."""
    raw_risk: float
    kept: float
    """How much of the raw margin there is in it."""


def _bend(theta: Dense) -> Dense:
    """K θ."""
    d = np.diff(theta)
    return np.asarray(np.concatenate([[0.0], d]) - np.concatenate([d, [0.0]]))


def _bands(diagonal: Dense, stiffness: float) -> Dense:
    """diag(d) + λ K, as its upper bands."""
    found = np.full((2, len(diagonal)), -stiffness)
    found[1] = diagonal + 2 * stiffness
    found[1, [0, -1]] -= stiffness
    return found


def _solve(diagonal: Dense, stiffness: float, right: Dense) -> Dense:
    """(diag(d) + λ K)⁻¹ times columns."""
    return np.asarray(linalg.solveh_banded(_bands(diagonal, stiffness), right, check_finite=False))


def _margin_cost(theta: Dense, y: Dense, t: float, stiffness: float) -> float:
    return float(np.square(np.exp(theta) - y).sum()) / (2 * t) + stiffness / 2 * float(theta @ _bend(theta))


def _margin_step(theta: Dense, damping: float, y: Dense, t: float, total: float, stiffness: float) -> Dense:
    """The next θ, which keeps the total."""
    x = np.exp(theta)
    slope = x * (x - y) / t + stiffness * _bend(theta)
    square = np.square(x) / t
    diagonal = square + damping * (square + 1e-3 * stiffness + 1e-9)
    both = _solve(diagonal, stiffness, np.column_stack([-slope, x]))
    step = both[:, 0] - both[:, 1] * (float(x @ both[:, 0]) / float(x @ both[:, 1]))
    tried = theta + _bounded(step)
    return np.asarray(tried + np.log(total / np.exp(tried).sum()))


def _judge(y: Dense, t: float, total: float, theta: Dense, stiffness: float) -> tuple[float, float]:
    """−log of the evidence, and the degrees of freedom."""
    x = np.exp(theta)
    diagonal = np.square(x) / t + 1e-12
    along = _solve(diagonal, stiffness, x[:, None])[:, 0]
    curved = (
        2 * float(np.log(linalg.cholesky_banded(_bands(diagonal, stiffness), check_finite=False)[1]).sum())
        + np.log(float(x @ along))
        - 2 * np.log(total)
    )
    n = len(y)
    if n <= MOST_EXACT:
        trace = float((np.square(x) * np.diag(_solve(diagonal, stiffness, np.eye(n)))).sum())
    else:
        rng, trace = np.random.default_rng(0), 0.0
        for _ in range(PROBES):
            signs = np.where(rng.integers(0, 2, n) > 0, x, -x)
            trace += float(signs @ _solve(diagonal, stiffness, signs)) / PROBES
    df = (trace - float(np.square(x * along).sum()) / float(x @ along)) / t
    return _margin_cost(theta, y, t, stiffness) + curved / 2 - (n - 1) / 2 * np.log(stiffness), df


def denoise_margin(noisy: Dense, t: float, total: float) -> Margin:
    """The margin with this total and the least estimated risk.

    Args:
        noisy: y, with this total.
        t: the variance of the noise in every direction but that of the total.
        total: of the margin, above 0.
    """
    n = len(noisy)
    raw_risk = t * (n - 1)
    positive = project_onto_simplex(noisy, total)
    if n < 3 or t <= 0:
        return Margin(positive, raw_risk, raw_risk, 1.0)
    found, theta = [], np.full(n, np.log(total / n))
    for stiffness in MARGIN_STIFFNESS:
        given: dict[str, Any] = {"y": noisy, "t": t, "stiffness": stiffness}
        cost, step = partial(_margin_cost, **given), partial(_margin_step, total=total, **given)
        theta = descend(theta, cost, step, MARGIN_SETTLED)
        found.append((np.exp(theta), *_judge(noisy, t, total, theta, stiffness)))
    weights = average_weights([evidence for _, evidence, _ in found])
    smooth = np.sum([w * x for w, (x, _, _) in zip(weights, found, strict=True)], axis=0)
    between = sum(w * float(np.square(x - smooth).sum()) for w, (x, _, _) in zip(weights, found, strict=True))
    covariances = [t * float(weights @ [df for _, _, df in found]) + between, t * (np.count_nonzero(positive) - 1)]
    ways = np.array([smooth - noisy, positive - noisy])
    products, gains = ways @ ways.T, raw_risk - np.array(covariances)
    mix = best_mix(products, gains)
    risk = raw_risk + float(mix @ products @ mix - 2 * gains @ mix)
    return Margin(project_onto_simplex(noisy + mix @ ways, total), risk, raw_risk, float(1 - mix.sum()))
