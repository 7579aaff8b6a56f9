"""A strategy as its two matrices: what to measure (L) and how to reconstruct the answers (B), B L = W."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.errors import StrategyError, check_finite
from batchdp.linalg.matrix import (
    MOST_DENSE_ENTRIES,
    Dense,
    Matrix,
    column_norms,
    dense,
    dense_product,
    frozen,
    plain,
    row_residuals,
    row_squares,
    rows_span,
)
from batchdp.linalg.product import Product
from batchdp.privacy import KNORM, LAPLACE, Budget, Noise, Privacy, noise_of
from batchdp.strategies.bounds.convex import Objective, OptimalityBound, certify
from batchdp.strategies.bounds.spectral import certify_worst, structural_error_bound
from batchdp.strategies.shape import Shape
from batchdp.strategies.strategy import TOLERANCE, Strategy
from batchdp.text import Outcome, Shown, draw
from batchdp.workloads.matrix import MatrixWorkload, Pair
from batchdp.workloads.records import by_kind
from batchdp.workloads.reduction import Reduction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def is_finite(matrix: Matrix) -> bool:
    """Whether no entry is NaN or infinite."""
    if isinstance(matrix, Product):
        return is_finite(matrix.left) and is_finite(matrix.right)
    entries = matrix if isinstance(matrix, np.ndarray) else matrix.data
    return bool(np.all(np.isfinite(entries)))


def real(matrix: Any) -> Matrix:
    """A factor as a matrix of floats."""
    if isinstance(matrix, Product):
        left, right = real(matrix.left), real(matrix.right)
        if isinstance(left, Product) or isinstance(right, Product):
            raise StrategyError("measurement and reconstruction may be products of two matrices, not of more")
        if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
            raise StrategyError(f"a product of {left.shape} and {right.shape} does not fit together")
        return matrix if left is matrix.left and right is matrix.right else Product(left, right)
    try:
        if not sparse.issparse(matrix):
            return np.asarray(matrix, dtype=np.float64)
        given: Any = matrix
        if given.format == "csc" and given.dtype == np.float64 and given.has_canonical_format:
            return given if isinstance(given, sparse.csc_array) else sparse.csc_array(given)
        rows = sparse.csr_array(given.tocsr().astype(np.float64))
        if not rows.has_canonical_format:  # an entry in several pieces has another norm than their sum
            rows = rows.copy()
            rows.sum_duplicates()
        return rows
    except (TypeError, ValueError) as error:
        raise StrategyError(f"measurement and reconstruction must be matrices of numbers ({error})") from error


def on_request(matrix: Matrix, name: str) -> Dense:
    """The factor as an array that cannot be written to; refused beyond memory."""
    if not isinstance(matrix, np.ndarray) and matrix.shape[0] * matrix.shape[1] > MOST_DENSE_ENTRIES:
        rows, columns = matrix.shape
        raise StrategyError(
            f"{name} is {rows} × {columns}, {rows * columns * 8 / 2**30:.0f} GiB as an array; use "
            f"{'measurement' if name == 'measure' else 'reconstruction'} instead, which is sparse or in factors"
        )
    array = dense(matrix)
    array.flags.writeable = False
    return array


EXACT = 1e-11
"""The relative residual up to which R = B L counts as held to rounding."""


def complete(R: Dense, L: Dense, rounds: int = 0, outcome: Outcome = Outcome.CLOSED_FORM) -> Pair | None:
    """L scaled to sensitivity 1 with its best B = R L⁺, or None if L cannot reproduce R."""
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0))
    if sensitivity == 0:
        return None
    L = L / sensitivity
    pair = Pair(L, least_reconstruct(R, L), outcome, rounds)
    return pair if is_exact(R, pair) else None


def scale_to_one(pair: Pair) -> Pair:
    """The same pair at sensitivity 1."""
    sensitivity = float(column_norms(pair.measure, 1).max())
    return Pair(pair.measure * (1 / sensitivity), pair.reconstruct * sensitivity, pair.outcome, pair.rounds)


def is_exact(R: Dense, pair: Pair) -> bool:
    """Whether R = B L to rounding."""
    miss = np.linalg.norm(R - dense_product(pair.reconstruct, pair.measure))
    return bool(miss <= EXACT * np.linalg.norm(R))


def least_reconstruct(R: Dense, L: Dense) -> Dense:
    """B = R L⁺: by Cholesky with one refinement where that is exact, else by least squares.

    The SVD inside least squares costs a second at a thousand columns; the Gram matrix a few hundredths.
    """
    r, n = L.shape
    try:
        if r >= n:
            factor = cho_factor(L.T @ L, lower=True, check_finite=False)
            B = cho_solve(factor, R.T, check_finite=False).T @ L.T
            B += cho_solve(factor, (R - B @ L).T, check_finite=False).T @ L.T
        else:
            factor = cho_factor(L @ L.T, lower=True, check_finite=False)
            B = cho_solve(factor, L @ R.T, check_finite=False).T
            B += cho_solve(factor, L @ (R - B @ L).T, check_finite=False).T
        pivots = np.diag(factor[0])
        # With dependent rows R = B L may hold though B is not the smallest.
        if pivots.min() > 1e-6 * pivots.max() and np.linalg.norm(R - B @ L) <= 1e-12 * np.linalg.norm(R):
            return np.asarray(B)
    except LinAlgError:
        pass
    return np.asarray(np.linalg.lstsq(L.T, R.T, rcond=1e-13)[0].T)


@dataclass(frozen=True, eq=False)
class PairStrategy(Strategy, Shown):
    """Measure L x with noise, answer B (L x + noise); refused unless B L = W.

    Under `privacy="pure"` the noise is Laplace, scaled to the largest column L1 norm of L, or has the shape of the
    columns; under "zcdp" it is Gaussian, scaled to the largest column L2 norm.

    Args:
        workload: the batch W that is answered.
        measurement: L, one measurement per row and one cell per column; dense, sparse or a product of two.
        reconstruction: B, one query per row and one measurement per column; dense, sparse or a product of two.
        method: the family that found it, for people to read.
        privacy: "pure" or "zcdp".
        rounds: how many rounds the search took.
        status: how the search ended; `status.advice` says what to try next.
        relaxation: γ; above 0, ‖W − B L‖_F may be up to γ (Formula 8).
        reason: why this kind of noise was chosen, where it was.
        proven: bounds that the search has proven, so that they need not be computed again; those that are asked for
            later are added, so that copies and files have them too.
        shape: the shape of the noise, where it has that of the columns of L; its errors are simulated.
    """

    workload: MatrixWorkload
    measurement: Matrix = field(repr=False)
    reconstruction: Matrix = field(repr=False)
    method: str = "own"
    privacy: Privacy = LAPLACE.privacy
    rounds: int = 0
    status: Outcome = Outcome.CLOSED_FORM
    relaxation: float = 0.0
    reason: str = ""
    proven: tuple[OptimalityBound, ...] = field(default=(), repr=False)
    shape: Shape | None = field(default=None, repr=False)
    residual: float = field(init=False)
    """‖W − B L‖_F / ‖W‖_F."""
    sensitivity: float = field(init=False)
    """Δ: how much one record can change L x, in the norm that the noise is scaled to."""

    def __post_init__(self) -> None:
        if not isinstance(self.workload, MatrixWorkload):
            raise StrategyError(f"workload is a {type(self.workload).__name__}; wrap it in a Workload")
        W, L, B = self.workload.matrix, real(self.measurement), real(self.reconstruction)
        object.__setattr__(self, "relaxation", check_finite("relaxation", self.relaxation, least=0))
        object.__setattr__(self, "status", Outcome.read(self.status))
        noise = noise_of(self.privacy)
        if len(L.shape) != 2 or len(B.shape) != 2 or (B.shape[0], L.shape[1]) != W.shape or B.shape[1] != L.shape[0]:
            raise StrategyError(
                f"reconstruction {B.shape} times measurement {L.shape} has not the workload's shape {W.shape}"
            )
        for name, matrix in (("measurement", L), ("reconstruction", B)):
            if not is_finite(matrix):
                raise StrategyError(f"{name} holds NaN or infinite entries; the method that made it has failed")
        L, B = frozen(L), frozen(B)
        object.__setattr__(self, "measurement", L)
        object.__setattr__(self, "reconstruction", B)
        norm = self.workload.norm
        misses = row_residuals(W, B, L)
        miss = float(np.linalg.norm(misses))
        relative = miss / (norm if norm > 0 else 1.0)
        # Query by query: a small one must not be wrong in the shadow of the large ones.
        sizes = np.sqrt(row_squares(W))
        shares = misses / np.where(sizes > 0, sizes, norm or 1.0)
        if not (np.all(shares <= TOLERANCE) or 0 < miss <= self.relaxation * (1 + TOLERANCE)):
            worst = int(np.argmax(shares))
            raise StrategyError(
                f"reconstruction times measurement misses the workload: query {self.workload.names[worst]!r} by "
                f"{shares[worst]:.2e} (relative), more than {TOLERANCE:g}, so its answer would be wrong whatever the "
                "noise; if its coefficients or weights are far from the others' in size, rescale it"
            )
        object.__setattr__(self, "residual", relative)
        object.__setattr__(
            self, "sensitivity", _sensitivity(self.workload, L, noise) if self.shape is None else self._shaped()
        )

    def _shaped(self) -> float:
        """In the norm of the shape: what a record adds is in every body, and the norm at most the shares of ε."""
        assert self.shape is not None
        if not noise_of(self.privacy).is_pure:
            raise StrategyError(f"shape: {noise_of(self.privacy).name} noise has no other; shapes are for pure ε alone")
        met = (self.workload.blocks, self.workload.meetings) if len(self.workload.blocks) > 1 else ((), ())
        if (self.shape.blocks, self.shape.meetings) != met:
            raise StrategyError("shape: its blocks, or which of them meet in a record, are not the workload's")
        if sum(self.shape.ranks) != self.measurements:
            raise StrategyError(f"shape: groups of {self.shape.ranks} are not {self.measurements} measurements")
        return 1.0

    @classmethod
    def lifted(
        cls,
        reduction: Reduction,
        pair: Pair,
        *,
        method: str,
        noise: Noise = LAPLACE,
        relaxation: float = 0.0,
        proven: tuple[OptimalityBound, ...] = (),
    ) -> PairStrategy:
        """The strategy for the full workload from a pair for the reduced problem."""
        used = row_squares(pair.measure) > 0  # a measurement of nothing would only cost a draw of noise
        return cls(
            reduction.workload,
            reduction.lift_measure(pair.measure[used]),
            reduction.lift_reconstruct(pair.reconstruct[:, used]),
            method=method,
            privacy=noise.privacy,
            rounds=pair.rounds,
            status=pair.outcome,
            relaxation=relaxation,
            proven=proven,
        )

    @property
    def noise(self) -> Noise:
        """The kind of noise: what `privacy` stands for, or K-norm noise where it has a shape."""
        return noise_of(self.privacy) if self.shape is None else KNORM

    @cached_property
    def measure(self) -> Dense:
        """L as a NumPy array, r × n."""
        return on_request(self.measurement, "measure")

    @cached_property
    def reconstruct(self) -> Dense:
        """B as a NumPy array, m × r."""
        return on_request(self.reconstruction, "reconstruct")

    @property
    def measurements(self) -> int:
        """r, the number of noisy measurements."""
        return int(self.measurement.shape[0])

    def noise_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The variance of the noise on one measurement: 2 (Δ/ε)² for Laplace, Δ²/2ρ for Gaussian."""
        if self.shape is not None:
            raise StrategyError(
                "shape: noise in the shape of a batch has no variance in common; see per_query_variance"
            )
        return self._unit_variance(epsilon, rho)

    def per_query_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of the noise in every answer; all of its expected squared error where B L = W."""
        return self._unit_variance(epsilon, rho) * self._row_squares

    def expected_squared_error(
        self, *, epsilon: float | None = None, rho: float | None = None, squared_counts: float | None = None
    ) -> float:
        """The total over all queries, each times its importance weight: 2 (Δ/ε)² ‖B‖²_F when pure.

        Args:
            epsilon, rho: the privacy budget, whichever the strategy's kind of privacy takes.
            squared_counts: Σ x² or a public bound on it, for a relaxed strategy only. Its answers miss the truth
                by (W − B L) x even without noise; the bound ‖W − B L‖²_F Σ x² of Theorem 3 is added.
        """
        total = self._at(self.total, epsilon, rho)
        if self.residual <= TOLERANCE:
            return total
        if not isinstance(squared_counts, Real) or not (np.isfinite(squared_counts) and squared_counts >= 0):
            raise StrategyError(
                f"squared_counts={squared_counts!r}: this strategy reproduces its workload only up to "
                f"relaxation={self.relaxation:g}, so its error depends on the counts; give a bound on their "
                "sum of squares"
            )
        heaviest = 1.0 if self.workload.weights is None else float(self.workload.weights.max())
        return total + heaviest * structural_error_bound(self.residual * self.workload.norm, float(squared_counts))

    @cached_property
    def limit(self) -> float:  # type: ignore[override]  # nobody writes to a strategy
        """No strategy of this kind has a smaller total; 0 for shaped noise, of which nothing is proven."""
        return 0.0 if self.shape is not None else self.optimality.lower_bound

    def certified(self, *, epsilon: float | None = None, rho: float | None = None) -> str:
        """The lower bound as a sentence: what it says, and what it does not."""
        if self.residual > TOLERANCE:
            return "This strategy reproduces its workload only nearly; the bound speaks of those that do so exactly."
        if self.shape is None:
            loose = "" if self.noise.bound_is_tight else f" The bound is not tight for {self.noise.name} noise."
            return super().certified(epsilon=epsilon, rho=rho) + loose
        bound, error = (self._at(one, epsilon, rho) for one in (self.optimality.lower_bound, self.total))
        budget = Budget.of(self.noise, epsilon=epsilon, rho=rho)
        return (
            "No limit is proven for noise in the shape of the batch. This one has a total expected squared error "
            f"of {error:.6g} ± {self.simulation_error * error:.2g} at {budget}, simulated; no pair B, L with "
            f"Laplace noise is below {bound:.6g}."
        )

    @property
    def optimality(self) -> OptimalityBound:
        """The convex bound behind `lower_bound`: the one that the search has proven, or computed once."""
        return self._bound("sum", certify)

    @property
    def certificate(self) -> OptimalityBound:
        """`optimality`, by its earlier name: a release's `certificate` is about privacy."""
        return self.optimality

    def largest_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The worst query's variance, each times its importance weight: what `objective="max"` minimises."""
        variances = self.per_query_variance(epsilon=epsilon, rho=rho)
        return float(np.max(variances if self.workload.weights is None else self.workload.weights * variances))

    def largest_variance_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy of this kind has a smaller largest variance; 0 for shaped noise, of which nothing is proven."""
        if self.shape is not None:
            return self._at(0.0, epsilon, rho)
        if self._largest_is_provable:
            return self._at(self.optimality_of_largest.lower_bound, epsilon, rho)
        return self._at(self.limit / self.workload.queries, epsilon, rho)  # the largest is no less than the mean

    @property
    def _largest_is_provable(self) -> bool:
        """Whether the bound on the largest is known, or can be proven: in several blocks only that on the sum can."""
        return len(self.workload.blocks) == 1 or any(bound.objective == "max" for bound in self.proven)

    def prove(self, objective: Objective) -> bool:
        """Solve for the lower bound of an objective, if it is not known; whether anything is known now that was not."""
        known = self.proven
        _ = self.optimality
        if objective == "max" and self._largest_is_provable:
            _ = self.optimality_of_largest
        return len(self.proven) > len(known)

    @property
    def optimality_of_largest(self) -> OptimalityBound:
        """The convex bound behind `largest_variance_bound`: the one that the search has proven, or computed once."""
        return self._bound("max", certify_worst)

    def know_limit(self, limit: float) -> None:
        """Take note of a limit on the total, in its unit, that somebody has proven; the larger one is kept."""
        if self.shape is None and limit > self.limit:
            better = replace(self.optimality, lower_bound=limit)
            object.__setattr__(self, "proven", (better, *(one for one in self.proven if one.objective != "sum")))
            self.__dict__.pop("limit", None)

    def _bound(self, objective: Objective, prove: Callable[[MatrixWorkload], OptimalityBound]) -> OptimalityBound:
        known = next((bound for bound in self.proven if bound.objective == objective), None)
        if known is None:
            known = prove(self.workload)
            object.__setattr__(self, "proven", (*self.proven, known))
        return known

    @cached_property
    def simulation_error(self) -> float:
        """The standard error of the expected squared error, relative to it: 0 where that has a closed form."""
        if self.shape is None:
            return 0.0
        return self.shape.relative_spread(plain(self.reconstruction), self.workload.weights)

    def plot(self, *, axes: Sequence[Axes] | None = None) -> Figure:
        """L and B as heat maps, on two matplotlib axes of your own if given."""
        return draw(self, axes=axes)

    @cached_property
    def _row_squares(self) -> Dense:
        B = self.reconstruction
        return row_squares(B) if self.shape is None else self.shape.row_squares(plain(B))

    def _unit_variance(self, epsilon: float | None, rho: float | None) -> float:
        """What `_row_squares` are multiples of."""
        return self._at(self.sensitivity**2, epsilon, rho)

    @cached_property
    def total(self) -> float:  # type: ignore[override]
        """Δ² ‖B‖²_F, each row times its query's weight."""
        weights, squares = self.workload.weights, self._row_squares
        return self.sensitivity**2 * float(np.sum(squares) if weights is None else weights @ squares)

    def distinct_variances(self, table: int) -> Dense:
        """The variances of a table's answers, in the unit of `total`."""
        batch = self.workload.structure
        if batch is None:  # every query is a table
            return np.asarray(self.sensitivity**2 * self._row_squares[table])
        start = int(batch.table_sizes()[:table].sum())
        one = batch.tables[table]
        return np.asarray(self.sensitivity**2 * self._row_squares[start : start + one.queries].reshape(one.shape))

    def _table_variances(self) -> Dense | None:
        return self.sensitivity**2 * self._row_squares if self.workload.structure is None else None

    def __repr__(self) -> str:
        m, r, n = self.workload.queries, self.measurements, self.workload.cells
        noise = self.privacy if self.shape is None else f"{self.privacy}, shaped"
        return (
            f"Strategy({self.method}, {noise}: {m} queries from {r} measurements of {n} cells, "
            f"sensitivity {self.sensitivity:.6g}, residual {self.residual:.1e})"
        )


def _sensitivity(workload: MatrixWorkload, L: Matrix, noise: Noise) -> float:
    """The largest column norm; over the blocks that a record can have a cell in at once they add up."""
    if workload.kinds is not None:
        return max(float(column_norms(part, noise.norm).max()) for part in by_kind(plain(L), workload.kinds))
    norms = workload.largest_by_block(column_norms(L, noise.norm))
    # Only L2 norms make a difference between measurements of one block and those that span several.
    apart = noise.norm > 1 and not rows_span(L, workload.blocks)
    return max(noise.together(norms[list(met)], at_right_angles=apart) for met in workload.meetings)
