"""The one idea: a strategy is a pair, what to measure (L) and how to reconstruct the answers (B), B L = W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from batchdp.bounds.convex import Certificate, certify
from batchdp.bounds.largest_error import WorstCase, certify_worst
from batchdp.bounds.relaxation import structural_error_bound
from batchdp.checks import finite
from batchdp.errors import PrivacyParameterError, StrategyError
from batchdp.linalg.matrix import (
    MOST_DENSE_ENTRIES,
    Dense,
    Matrix,
    Plain,
    column_norms,
    dense,
    frozen,
    row_residuals,
    row_squares,
    rows_span,
)
from batchdp.linalg.product import Product
from batchdp.markup import summary
from batchdp.workloads.reduction import Reduction
from batchdp.workloads.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Privacy = Literal["pure", "zcdp"]

TOLERANCE = 1e-9
"""The largest relative residual ‖W − B L‖_F / ‖W‖_F of a strategy that claims to reproduce its workload."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Measure L x with noise, answer B (L x + noise); refused unless B L = W.

    Under `privacy="pure"` the noise is Laplace, scaled to the largest column L1 norm of L; under "zcdp" it is
    Gaussian, scaled to the largest column L2 norm.

    Args:
        workload: the batch W that is answered.
        measurement: L, one measurement a row and one cell a column; dense, sparse or a product of two.
        reconstruction: B, one query a row and one measurement a column; dense, sparse or a product of two.
        method: the family that found it, for people to read.
        rounds, status: how long the search took and how it ended.
        relaxation: γ; above 0, ‖W − B L‖_F may be up to γ (Formula 8).
        reason: why this kind of noise was chosen, where it was.
    """

    workload: Workload
    measurement: Matrix = field(repr=False)
    reconstruction: Matrix = field(repr=False)
    method: str = "own"
    privacy: Privacy = "pure"
    rounds: int = 0
    status: str = "closed form"
    relaxation: float = 0.0
    reason: str = ""
    residual: float = field(init=False)
    """‖W − B L‖_F / ‖W‖_F."""
    sensitivity: float = field(init=False)
    """Δ: how much one record can change L x, in the norm that the noise is scaled to."""

    def __post_init__(self) -> None:
        if not isinstance(self.workload, Workload):
            raise StrategyError(f"workload is a {type(self.workload).__name__}; wrap it in a Workload")
        W, L, B = self.workload.matrix, _real(self.measurement), _real(self.reconstruction)
        object.__setattr__(self, "relaxation", finite("relaxation", self.relaxation, least=0))
        if self.privacy not in ("pure", "zcdp"):
            raise StrategyError(f'privacy={self.privacy!r} must be "pure" (Laplace) or "zcdp" (Gaussian)')
        if len(L.shape) != 2 or len(B.shape) != 2 or (B.shape[0], L.shape[1]) != W.shape or B.shape[1] != L.shape[0]:
            raise StrategyError(
                f"reconstruction {B.shape} times measurement {L.shape} has not the workload's shape {W.shape}"
            )
        for name, matrix in (("measurement", L), ("reconstruction", B)):
            if not _finite(matrix):
                raise StrategyError(f"{name} holds NaN or infinite entries; the method that made it has failed")
        object.__setattr__(self, "measurement", frozen(L))
        object.__setattr__(self, "reconstruction", frozen(B))
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
        object.__setattr__(self, "sensitivity", _sensitivity(self.workload, L, self.privacy))

    @classmethod
    def lifted(
        cls,
        reduction: Reduction,
        measure: Plain,
        reconstruct: Dense | None = None,
        *,
        method: str,
        privacy: Privacy = "pure",
        rounds: int = 0,
        status: str = "closed form",
        relaxation: float = 0.0,
        certificate: Certificate | None = None,
    ) -> Strategy:
        """The strategy for the full workload from one for the reduced problem; B is R L⁺ if left out."""
        B = reduction.reduced @ np.linalg.pinv(dense(measure)) if reconstruct is None else reconstruct
        used = row_squares(measure) > 0  # a measurement of nothing would only cost a draw of noise
        strategy = cls(
            reduction.workload,
            reduction.lift_measure(measure[used]),
            reduction.lift_reconstruct(B[:, used]),
            method=method,
            privacy=privacy,
            rounds=rounds,
            status=status,
            relaxation=relaxation,
        )
        if certificate is not None:
            strategy.__dict__["certificate"] = certificate  # what the cached property would compute again
        return strategy

    @cached_property
    def measure(self) -> Dense:
        """L as a NumPy array, r × n."""
        return _on_request(self.measurement, "measure")

    @cached_property
    def reconstruct(self) -> Dense:
        """B as a NumPy array, m × r."""
        return _on_request(self.reconstruction, "reconstruct")

    @property
    def measurements(self) -> int:
        """r, the number of noisy measurements."""
        return int(self.measurement.shape[0])

    def noise_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The variance of the noise on one measurement: 2 (Δ/ε)² for Laplace, Δ²/2ρ for Gaussian."""
        return self._at(self.sensitivity**2, epsilon, rho)

    def per_query_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The variance of the noise in every answer; all of its expected squared error where B L = W."""
        return self.noise_variance(epsilon=epsilon, rho=rho) * self._row_squares

    def expected_squared_error(
        self,
        *,
        epsilon: float | None = None,
        rho: float | None = None,
        squared_counts: float | None = None,
    ) -> float:
        """The total over all queries, each times its importance weight: 2 (Δ/ε)² ‖B‖²_F when pure.

        Args:
            epsilon, rho: the privacy budget, whichever the strategy's kind of privacy takes.
            squared_counts: Σ x² or a public bound on it, for a relaxed strategy only. Its answers miss the truth
                by (W − B L) x even without noise; the bound ‖W − B L‖²_F Σ x² of Theorem 3 is added.
        """
        total = self.noise_variance(epsilon=epsilon, rho=rho) * self._total
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

    def lower_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy of this kind, whatever its B and L, has a smaller expected squared error."""
        return self._at(self.certificate.lower_bound, epsilon, rho)

    def certified(self, *, epsilon: float | None = None, rho: float | None = None) -> str:
        """The lower bound as a sentence: what it says, and what it does not."""
        if self.residual > TOLERANCE:
            return "This strategy reproduces its workload only nearly; the bound speaks of those that do so exactly."
        bound = self.lower_bound(epsilon=epsilon, rho=rho)
        error = self.noise_variance(epsilon=epsilon, rho=rho) * self._total
        budget = f"ε = {epsilon:g}" if epsilon is not None else f"ρ = {rho:g}"
        noise = "Laplace" if self.privacy == "pure" else "Gaussian"
        ratio = f", {error / bound:.3g} times that" if bound > 0 else ""
        loose = " The bound is not tight for Laplace noise." if self.privacy == "pure" else ""
        return (
            f"No pair B, L with B L = W, whatever its size, has a total expected squared error below {bound:.6g} "
            f"with {noise} noise at {budget}; this one has {error:.6g}{ratio}.{loose}"
        )

    @cached_property
    def certificate(self) -> Certificate:
        """The convex bound behind `lower_bound`, computed once."""
        return certify(self.workload)

    def largest_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The worst query's variance, each times its importance weight: what `objective="max"` minimises."""
        variances = self.per_query_variance(epsilon=epsilon, rho=rho)
        return float(np.max(variances if self.workload.weights is None else self.workload.weights * variances))

    def largest_variance_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy of this kind has a smaller largest variance."""
        return self._at(self.worst_case.lower_bound, epsilon, rho)

    @cached_property
    def worst_case(self) -> WorstCase:
        """The convex bound behind `largest_variance_bound`, computed once."""
        return certify_worst(self.workload)

    def with_worst_case(self, worst_case: WorstCase) -> Strategy:
        """The same strategy, not having to compute this bound again."""
        self.__dict__["worst_case"] = worst_case
        return self

    def plot(self, *, axes: Sequence[Axes] | None = None) -> Figure:
        """L and B as heat maps, on two matplotlib axes of one's own if given."""
        from batchdp.plots.strategy import plot_strategy

        return plot_strategy(self.measurement, self.reconstruction, title=self.method, axes=axes)

    @cached_property
    def _row_squares(self) -> Dense:
        return row_squares(self.reconstruction)

    def _at(self, squared_scale: float, epsilon: float | None, rho: float | None) -> float:
        """A squared scale as a variance of this strategy's kind of noise."""
        if self.privacy == "pure":
            budget = _budget("epsilon", epsilon, "rho", rho)
            return 2 * squared_scale / budget / budget  # a tiny budget squared would be 0
        return squared_scale / (2 * _budget("rho", rho, "epsilon", epsilon))

    @property
    def _total(self) -> float:
        """‖B‖²_F, each row times its query's weight."""
        weights = self.workload.weights
        return float(np.sum(self._row_squares) if weights is None else weights @ self._row_squares)

    def __repr__(self) -> str:
        m, r, n = self.workload.queries, self.measurements, self.workload.cells
        return (
            f"Strategy({self.method}, {self.privacy}: {m} queries from {r} measurements of {n} cells, "
            f"sensitivity {self.sensitivity:.6g}, residual {self.residual:.1e})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "method": self.method,
            "noise": "Laplace (pure ε)" if self.privacy == "pure" else "Gaussian (zCDP)",
            "queries": f"{self.workload.queries:,}",
            "measurements": f"{self.measurements:,}",
            "cells": f"{self.workload.cells:,}",
            "sensitivity": f"{self.sensitivity:.6g}",
            "residual": f"{self.residual:.1e}",
        }
        if self.residual <= TOLERANCE:
            unit, budget = ("ε", {"epsilon": 1.0}) if self.privacy == "pure" else ("ρ", {"rho": 1.0})
            facts[f"expected squared error at {unit} = 1"] = f"{self.expected_squared_error(**budget):,.6g}"
        return summary("Strategy", facts)


def _sensitivity(workload: Workload, L: Matrix, privacy: Privacy) -> float:
    """The largest column norm; a record has a cell in every block, so blocks add up."""
    norms = workload.largest_by_block(column_norms(L, 1 if privacy == "pure" else 2))
    if privacy == "zcdp" and not rows_span(L, workload.blocks):
        return float(np.linalg.norm(norms))  # measurements of different blocks are at right angles
    return float(norms.sum())


def _finite(matrix: Matrix) -> bool:
    if isinstance(matrix, Product):
        return _finite(matrix.left) and _finite(matrix.right)
    entries = matrix if isinstance(matrix, np.ndarray) else matrix.data
    return bool(np.all(np.isfinite(entries)))


def _real(matrix: Any) -> Matrix:
    """A factor as a matrix of floats."""
    if isinstance(matrix, Product):
        return _real_product(matrix)
    try:
        if not sparse.issparse(matrix):
            return np.asarray(matrix, dtype=np.float64)
        rows: Any = matrix
        if rows.format == "csc" and rows.dtype == np.float64 and rows.has_canonical_format:
            return sparse.csc_array(rows) if not isinstance(rows, sparse.csc_array) else rows
        real = sparse.csr_array(rows.tocsr().astype(np.float64))
        if not real.has_canonical_format:  # an entry in several pieces has another norm than their sum
            real = real.copy()
            real.sum_duplicates()
        return real
    except (TypeError, ValueError) as error:
        raise StrategyError(f"measurement and reconstruction must be matrices of numbers ({error})") from error


def _real_product(matrix: Product) -> Product:
    """The same object where its factors are fit already: a right factor that is the workload's own is told by that."""
    left, right = _real(matrix.left), _real(matrix.right)
    if isinstance(left, Product) or isinstance(right, Product):
        raise StrategyError("measurement and reconstruction may be products of two matrices, not of more")
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
        raise StrategyError(f"a product of {left.shape} and {right.shape} does not fit together")
    return matrix if left is matrix.left and right is matrix.right else Product(left, right)


def _budget(name: str, value: float | None, other_name: str, other: float | None) -> float:
    if other is not None:
        raise PrivacyParameterError(f"{other_name}={other!r} is not this strategy's budget; give {name} instead")
    if value is None:
        raise PrivacyParameterError(f"{name} is missing; give the privacy budget, e.g. {name}=1.0")
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise PrivacyParameterError(f"{name}={value!r} must be a number above 0; 0.1 to 1 is usual")
    if not (np.isfinite(value) and value > 0):
        raise PrivacyParameterError(f"{name}={value!r} must be finite and above 0; 0.1 to 1 is usual")
    return float(value)


def _on_request(matrix: Matrix, name: str) -> Dense:
    if not isinstance(matrix, np.ndarray) and matrix.shape[0] * matrix.shape[1] > MOST_DENSE_ENTRIES:
        rows, columns = matrix.shape
        raise StrategyError(
            f"{name} is {rows} × {columns}, {rows * columns * 8 / 2**30:.0f} GiB as an array; use "
            f"{'measurement' if name == 'measure' else 'reconstruction'} instead, which is sparse or in factors"
        )
    array = dense(matrix)
    array.flags.writeable = False
    return array
