"""Smooth and non-negative: cells behind a matrix of measurements, and margins of one column with their total held.

Smooth cells are x = width · e^θ with the least ‖L x − y‖²/2 + Σ log(1 + λ d²) over runs of cells that no measurement
tells apart, d the differences of θ between neighbours, or of its slopes: many small ones, and a few of any size, which
stay as they are. Several λ are averaged by the evidence e^−E, E = F + ½ log det H − ½ k log λ. Two more estimators know
of cells that they are not negative: the closest to the measurements with the total held, and the closest answers. How
much of each is added to the raw answers is chosen by the estimated risk, and the result is brought to the closest
answers of non-negative cells: as the true ones are such, and all of these are a convex cone, no squared error grows by
that.

Laplace noise is taken for Gaussian of the same variance. Its own likelihood has smaller errors where records are few,
but counts a measurement the less the farther it is off, so that nobody knows the covariances well enough to mix.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from batchdp.linalg.matrix import Dense, Indices, dense
from batchdp.linalg.threads import one_thread
from batchdp.release.consistency.cells import Fit, closest_cells, held_totals
from batchdp.release.consistency.tables import project_onto_simplex
from batchdp.release.denoise.mixing import average_weights, best_mix
from batchdp.text import Outcome, Progress

STIFFNESS = {1: (30000.0, 3000.0, 300.0, 30.0, 3.0, 0.3), 2: (1e8, 1e6, 1e5, 1e4, 1e3, 1e2, 1e1)}
"""λ of neighbours and of slopes, the stiffest first: each starts from the one before."""
SHY = 1.0
"""What is taken off every gain, in variances of the noise along the way to it."""
COST = 2.0
"""What choosing the mix is taken to cost, in the same unit (James and Stein): for risks."""
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
EVEN = 0.1
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
    """

    measure: sparse.csr_array
    reconstruct: Dense | sparse.csr_array
    queries: sparse.csr_array
    measured: Dense
    widths: Dense
    independent: bool = True

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


class _Walk:
    """The problem of smooth cells, with a penalty on differences of neighbours (order 1) or of slopes (2)."""

    def __init__(self, problem: Problem, order: int) -> None:
        self.p, self.L = problem, dense(problem.measure)
        self.gram = self.L.T @ self.L
        gaps = np.diff(np.cumsum(problem.widths) - problem.widths / 2)
        gaps = gaps / max(float(gaps.sum()) / max(1, len(gaps)), 1e-300)
        D = _differences(len(problem.widths))
        if order == 1:
            D = sparse.diags_array(gaps**-0.5) @ D
        else:
            between = (gaps[1:] + gaps[:-1]) / 2
            D = sparse.diags_array(between**-0.5) @ _differences(len(gaps)) @ sparse.diags_array(1 / gaps) @ D
        self.bends = sparse.csr_array(D)

    def cost(self, theta: Dense, stiffness: float) -> float:
        """What is minimised."""
        off = self.L @ (self.p.widths * np.exp(theta)) - self.p.measured
        return float(off @ off) / 2 + float(np.log1p(stiffness * np.square(self.bends @ theta)).sum())

    def bent(self, theta: Dense, stiffness: float) -> tuple[Dense, Dense]:
        """Of every difference the slope of the penalty as a multiple of it, and the second derivative, no larger."""
        squares = stiffness * np.square(self.bends @ theta)
        return 2 * stiffness / (1 + squares), 2 * stiffness * (1 - squares) / np.square(1 + squares)

    def weighted(self, weights: Dense) -> Dense:
        """K with θᵀ K θ = Σ w · difference²."""
        return np.asarray((self.bends.T @ sparse.diags_array(weights) @ self.bends).todense())

    def step(self, theta: Dense, damping: float, stiffness: float) -> Dense:
        """The next θ, by squares that touch the penalty and are above it."""
        x, K = self.p.widths * np.exp(theta), self.weighted(self.bent(theta, stiffness)[0])
        slope = x * (self.L.T @ (self.L @ x - self.p.measured)) + K @ theta
        H = x[:, None] * self.gram * x + K
        H[np.diag_indices_from(H)] += damping * np.maximum(np.diag(H), 1e-6)
        return theta + _bounded(-linalg.cho_solve(linalg.cho_factor(H, check_finite=False), slope, check_finite=False))

    def solve(self, theta: Dense, stiffness: float) -> tuple[Dense, float, Dense]:
        """θ, the evidence's E, and the covariance of every answer with the noise in the raw one."""
        theta = descend(
            theta, partial(self.cost, stiffness=stiffness), partial(self.step, stiffness=stiffness), SETTLED
        )
        x, (each, second) = self.p.widths * np.exp(theta), self.bent(theta, stiffness)
        told = x[:, None] * self.gram * x
        H = told + self.weighted(each)
        factor = linalg.cholesky(H + np.diag(1e-9 * np.maximum(np.diag(H), 1e-9)), lower=True, check_finite=False)
        evidence = (
            self.cost(theta, stiffness) + float(np.log(np.diag(factor)).sum()) - len(each) / 2 * np.log(stiffness)
        )
        with suppress(linalg.LinAlgError):  # the exact second derivative, where that is positive
            off = np.diag(x * (self.L.T @ (self.L @ x - self.p.measured)))
            factor = linalg.cholesky(told + self.weighted(second) + off, lower=True, check_finite=False)
        W = np.asarray((self.p.queries @ sparse.diags_array(x)).todense())
        half = linalg.solve_triangular(factor, W.T, lower=True, check_finite=False)
        return theta, evidence, np.asarray(np.square(half).sum(axis=0))


def _differences(n: int) -> sparse.csr_array:
    """Of neighbours among n."""
    return sparse.csr_array(np.diff(np.eye(n), axis=0))


def smooth_cells(problem: Problem, order: int, progress: Progress | None = None) -> Smooth:
    """Smooth cells, averaged over λ by their evidence; the order is that of the differences."""
    level = problem.measure @ problem.widths
    rate = float(level @ problem.measured) / max(float(level @ level), 1e-300)
    theta = np.full(len(problem.widths), np.log(max(rate, 1 / problem.widths.sum())))
    walk, found = _Walk(problem, order), []
    for stiffness in STIFFNESS[order]:
        theta, evidence, covariance = walk.solve(theta, stiffness)
        found.append((problem.widths * np.exp(theta), evidence, covariance))
        if progress is not None:
            progress((order - 1 + len(found) / len(STIFFNESS[order])) / len(STIFFNESS), "smoothing cells")
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


def _held(problem: Problem, cells: Dense) -> Dense:
    """The same of the cells closest to the measurements, with their total held.

    With P the projection onto what the cells above 0 are measured by, and u y the total, these answer
    B (P y + P u · uᵀ(y − P y) / uᵀP u).
    """
    B, L = problem.reconstruct, dense(problem.measure)[:, cells > 0]
    if L.shape[1] == 0:
        return np.zeros(B.shape[0])
    U, s, _ = linalg.svd(L, full_matrices=False, check_finite=False)
    U = U[:, s > 1e-9 * s[0]]
    found = np.asarray(np.square(B @ U).sum(axis=1))
    for u in held_totals(problem.measure):
        inside = U @ (U.T @ u)
        if u @ inside > 1e-9 * (u @ u):
            found += (B @ inside) * (B @ (u - inside)) / (u @ inside)
    return found


@one_thread
def denoise_cells(problem: Problem, progress: Progress | None = None) -> DenoisedCells:
    """The mix of smooth, non-negative and raw answers with the least estimated risk, made answers of cells.

    Ctrl-C gives the mix of what is found so far. Where there are too many cells for more, the closest non-negative
    answers are all there is.
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
    ways, covariances, smoothed = [alone.answers - raw], [], [False]
    try:
        covariances.append(_projected(problem, positive))
        if problem.independent and W.shape[1] <= MOST_SMOOTH and len(problem.measured) * W.shape[1] <= MOST_DENSE:
            for smooth in (smooth_cells(problem, order, progress) for order in STIFFNESS):
                covariances.append(smooth.covariance)
                ways.append(np.asarray(W @ smooth.cells) - raw)
                smoothed.append(True)
            held = closest_cells(problem.measure, problem.measured)
            if held.status is Outcome.CANCELLED:
                raise KeyboardInterrupt
            covariances.append(_held(problem, held.x))
            ways.append(np.asarray(W @ held.x) - raw)
            smoothed.append(False)
    except KeyboardInterrupt:
        status = Outcome.CANCELLED
        if not covariances:
            return replace(alone, status=status)
    return _mixed(problem, positive, np.array(ways), np.array(covariances[: len(ways)]), np.array(smoothed), status)


def _mixed(
    problem: Problem, positive: Dense, D: Dense, covariances: Dense, smoothed: NDArray[np.bool_], status: Outcome
) -> DenoisedCells:
    """Some of every way added to the raw answers; the first is that to the closest answers of non-negative cells."""
    rows, W = problem.variances, problem.queries
    raw = np.asarray(problem.reconstruct @ problem.measured)
    along = np.asarray([np.square(problem.reconstruct.T @ own).sum() for own in D])
    chance = along / np.maximum(np.square(D).sum(axis=1), 1e-300)
    mix = np.ones(1)
    if len(D) > 1:
        mix = best_mix(D @ D.T, (rows - covariances).sum(axis=1) - SHY * chance, pull=EVEN * float(rows.sum()))
    cost = COST * float(mix @ chance) / max(float(rows.sum()), 1e-300) if len(D) > 1 else 0.0
    risks = rows * (1 + cost) + np.square(mix @ D) - 2 * mix @ (rows - covariances)
    cells = _closest(problem, raw + mix @ D)[0] if len(D) > 1 else positive
    parts = (float(mix[smoothed].sum()), float(mix[~smoothed].sum()))
    return DenoisedCells(np.asarray(W @ cells), cells, parts, risks, rows, status)


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
