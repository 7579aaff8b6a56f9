"""Cells behind a matrix of measurements: smooth ones, non-negative ones, and the mix of both with the raw answers.

A smooth table of cells is x = width · e^θ with the least ‖L x − y‖²/2v + (λ/2) Σ (Δθ)²/gap, over runs of cells that no
measurement tells apart. Several λ are averaged by the evidence e^−E, E = F + ½ log det H + ½ Σ log(2π gap/λ). The other
estimator are the answers of non-negative cells that are closest to the raw ones. How much of each is added to the raw
answers is chosen by the estimated risk, and the result is brought to the closest answers of non-negative cells: as the
true ones are such, and all of these are a convex cone, no squared error grows by that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse

from batchdp.linalg.matrix import Dense, Indices, dense
from batchdp.linalg.threads import one_thread
from batchdp.progress import Outcome, Progress
from batchdp.release.consistency.cells import Fit, closest_cells
from batchdp.release.denoise.mixing import average_weights, best_mix

STIFFNESS = (2000.0, 500.0, 120.0, 30.0, 8.0, 1.5, 0.3)
"""λ, the stiffest first: each starts from the one before."""
SHY = 0.25
"""What is taken off every gain, in variances of the noise along the way to it; James and Stein take off 2."""
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
EVEN = 0.15
"""How strongly the mix is pulled to equal parts, in raw risks: few directions carry the error, so chance is large."""


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


class _Stiff:
    """The problem of one λ, with a penalty on differences of neighbours."""

    def __init__(self, problem: Problem, gram: Dense, along: Dense) -> None:
        self.p, self.gram, self.along = problem, gram, along
        self.squares = float(problem.measured @ problem.measured)
        gaps = np.diff(np.cumsum(problem.widths) - problem.widths / 2)
        steps = np.diff(np.eye(len(problem.widths)), axis=0)
        self.bending, self.normaliser = steps.T @ (steps / gaps[:, None]), float(np.log(gaps).sum())

    def cost(self, x: Dense, theta: Dense, stiffness: float) -> float:
        """What is minimised."""
        fit = float(x @ (self.gram @ x) - 2 * x @ self.along + self.squares) / 2
        return fit + stiffness / 2 * float(theta @ (self.bending @ theta))

    def solve(self, theta: Dense, stiffness: float) -> tuple[Dense, float, Dense]:
        """θ, the evidence's E, and the covariance of the answers with those of raw measurements."""
        damping = 1e-3
        x = self.p.widths * np.exp(theta)
        cost = self.cost(x, theta, stiffness)
        for _ in range(MOST_STEPS):
            gradient = x * (self.gram @ x - self.along) + stiffness * (self.bending @ theta)
            H = self._curvature(x, stiffness)
            H[np.diag_indices_from(H)] += damping * np.maximum(np.diag(H), 1e-6)
            step = -linalg.cho_solve(linalg.cho_factor(H, check_finite=False), gradient, check_finite=False)
            step *= min(1.0, LARGEST_STEP / max(float(np.abs(step).max()), 1e-300))
            tried = theta + step
            moved = self.p.widths * np.exp(tried)
            after = self.cost(moved, tried, stiffness)
            if after <= cost:
                gained, theta, x, cost = cost - after, tried, moved, after
                damping = max(damping / 10, 1e-9)
                if gained <= SETTLED:
                    break
            else:
                damping *= 10
                if damping > 1e8:
                    break
        H = self._curvature(x, stiffness)
        ridge = 1e-9 * np.maximum(np.diag(H), 1e-9)
        factor = linalg.cholesky(H + np.diag(ridge), lower=True, check_finite=False)
        evidence = cost + float(np.log(np.diag(factor)).sum())
        evidence += (self.normaliser - (len(x) - 1) * np.log(stiffness)) / 2
        return theta, evidence, self._covariance(x, H)

    def _curvature(self, x: Dense, stiffness: float) -> Dense:
        return x[:, None] * self.gram * x + stiffness * self.bending

    def _covariance(self, x: Dense, H: Dense) -> Dense:
        """The diagonal of W J Bᵀ with J = X H⁻¹ X Lᵀ, H the exact second derivative where that is positive."""
        W = np.asarray((self.p.queries @ sparse.diags_array(x)).todense())
        try:
            factor = linalg.cholesky(H + np.diag(x * (self.gram @ x - self.along)), lower=True, check_finite=False)
        except linalg.LinAlgError:
            factor = linalg.cholesky(H + np.diag(1e-9 * np.maximum(np.diag(H), 1e-9)), lower=True, check_finite=False)
        return np.asarray(np.square(linalg.solve_triangular(factor, W.T, lower=True, check_finite=False)).sum(axis=0))


def smooth_cells(problem: Problem, progress: Progress | None = None) -> Smooth:
    """Smooth cells, averaged over λ by their evidence."""
    L = dense(problem.measure)
    gram, along = L.T @ L, L.T @ problem.measured
    level = L @ problem.widths
    rate = float(level @ problem.measured) / max(float(level @ level), 1e-300)
    theta = np.full(len(problem.widths), np.log(max(rate, 1 / problem.widths.sum())))
    stiff, found = _Stiff(problem, gram, along), []
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


def _closest(problem: Problem, answers: Dense) -> Dense:
    """Non-negative cells whose answers are closest."""
    W = problem.queries
    squares = np.asarray(W.multiply(W).sum(axis=0)).reshape(-1)
    start = np.divide(np.maximum(W.T @ answers, 0.0), squares, out=np.zeros(W.shape[1]), where=squares > 0)
    whole = W @ start
    fitting = max(float(whole @ answers), 0.0) / max(float(whole @ whole), 1e-300)
    found = Fit(W)(answers, fitting * start)
    if found.status in (Outcome.OPTIMAL, Outcome.CANCELLED):
        return found.x
    tried = (found.x, closest_cells(W, answers).x)
    return min(tried, key=lambda x: float(np.square(W @ x - answers).sum()))


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
    positive = _closest(problem, raw)
    if min(W.shape) > MOST_JUDGED or W.shape[0] * W.shape[1] > MOST_DENSE:
        return DenoisedCells(np.asarray(W @ positive), positive, (0.0, 1.0), None, rows, Outcome.CONVERGED)
    ways, covariances, status = [np.asarray(W @ positive) - raw], [_projected(problem, positive)], Outcome.CONVERGED
    try:
        if problem.independent and W.shape[1] <= MOST_SMOOTH and len(problem.measured) * W.shape[1] <= MOST_DENSE:
            smooth = smooth_cells(problem, progress)
            ways.append(np.asarray(W @ smooth.cells) - raw)
            covariances.append(smooth.covariance)
    except KeyboardInterrupt:
        status = Outcome.CANCELLED
    D, cov = np.array(ways), np.array(covariances)
    M = D @ D.T
    chance = np.array(
        [float(np.square(problem.reconstruct.T @ own).sum()) / max(float(own @ own), 1e-300) for own in D]
    )
    mix = np.ones(1)
    if len(ways) > 1:
        mix = best_mix(M, (rows - cov).sum(axis=1) - SHY * chance, pull=EVEN * float(rows.sum()))
    risks = rows + np.square(mix @ D) - 2 * mix @ (rows - cov)
    cells = _closest(problem, raw + mix @ D) if len(ways) > 1 else positive
    both = (float(mix[1]) if len(ways) > 1 else 0.0, float(mix[0]))
    return DenoisedCells(np.asarray(W @ cells), cells, both, risks, rows, status)
