"""The one idea: a strategy is a pair, what to measure (L) and how to reconstruct the answers (B), B L = W."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from batchdp.bounds.convex import Certificate, certify
from batchdp.errors import PrivacyParameterError, StrategyError
from batchdp.matrix import Dense, Matrix, column_norms, dense, residual, row_squares
from batchdp.reduction import Reduction
from batchdp.workload import Workload

Privacy = Literal["pure", "zcdp"]

TOLERANCE = 1e-9
"""The largest relative residual ‖W − B L‖_F / ‖W‖_F of a strategy that claims to reproduce its workload."""

MOST_DENSE_ENTRIES = 500_000_000


@dataclass(frozen=True, eq=False)
class Strategy:
    """Measure L x with noise, answer B (L x + noise); refused unless B L = W.

    Under `privacy="pure"` the noise is Laplace, scaled to the largest column L1 norm of L; under "zcdp" it is
    Gaussian, scaled to the largest column L2 norm.

    Args:
        workload: the batch W that is answered.
        measurement: L, one measurement a row and one cell a column; dense or sparse.
        reconstruction: B, one query a row and one measurement a column; dense or sparse.
        method: the family that found it, for people to read.
    """

    workload: Workload
    measurement: Matrix = field(repr=False)
    reconstruction: Matrix = field(repr=False)
    method: str = "own"
    privacy: Privacy = "pure"
    residual: float = field(init=False)
    """‖W − B L‖_F / ‖W‖_F."""
    sensitivity: float = field(init=False)
    """Δ: how much one record can change L x, in the norm that the noise is scaled to."""

    def __post_init__(self) -> None:
        W, L, B = self.workload.matrix, self.measurement, self.reconstruction
        if self.privacy not in ("pure", "zcdp"):
            raise StrategyError(f'privacy={self.privacy!r} must be "pure" (Laplace) or "zcdp" (Gaussian)')
        if L.ndim != 2 or B.ndim != 2 or (B.shape[0], L.shape[1]) != W.shape or B.shape[1] != L.shape[0]:
            raise StrategyError(
                f"reconstruction {B.shape} times measurement {L.shape} has not the workload's shape {W.shape}"
            )
        for name, matrix in (("measurement", L), ("reconstruction", B)):
            entries = matrix if isinstance(matrix, np.ndarray) else matrix.data
            if not np.all(np.isfinite(entries)):
                raise StrategyError(
                    f"{name} holds NaN or infinite entries; the method that made it has failed"
                )
            entries.flags.writeable = False
        norm = self.workload.norm
        relative = residual(W, B, L) / (norm if norm > 0 else 1.0)
        if not relative <= TOLERANCE:
            raise StrategyError(
                f"reconstruction times measurement misses the workload by {relative:.2e} (relative), "
                f"more than {TOLERANCE:g}; its answers would be wrong whatever the noise"
            )
        object.__setattr__(self, "residual", relative)
        norms = column_norms(L, 1 if self.privacy == "pure" else 2)
        object.__setattr__(self, "sensitivity", float(np.max(norms, initial=0.0)))

    @classmethod
    def lifted(
        cls,
        reduction: Reduction,
        measure: Dense,
        reconstruct: Dense | None = None,
        *,
        method: str,
        privacy: Privacy = "pure",
    ) -> Strategy:
        """The strategy for the full workload from one for the reduced problem; B is R L⁺ if left out."""
        B = reduction.reduced @ np.linalg.pinv(measure) if reconstruct is None else reconstruct
        return cls(
            reduction.workload,
            reduction.lift_measure(measure),
            reduction.lift_reconstruct(B),
            method=method,
            privacy=privacy,
        )

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
        if self.privacy == "pure":
            return 2 * (self.sensitivity / _budget("epsilon", epsilon, "rho", rho)) ** 2
        return self.sensitivity**2 / (2 * _budget("rho", rho, "epsilon", epsilon))

    def per_query_variance(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """The expected squared error of every answer."""
        return self.noise_variance(epsilon=epsilon, rho=rho) * self._row_squares

    def expected_squared_error(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """The total over all queries, each times its importance weight: 2 (Δ/ε)² ‖B‖²_F when pure."""
        weights = self.workload.weights
        total = np.sum(self._row_squares) if weights is None else weights @ self._row_squares
        return self.noise_variance(epsilon=epsilon, rho=rho) * float(total)

    def lower_bound(self, *, epsilon: float | None = None, rho: float | None = None) -> float:
        """No strategy of this kind, whatever its B and L, has a smaller expected squared error."""
        if self.privacy == "pure":
            return 2 * self.certificate.lower_bound / _budget("epsilon", epsilon, "rho", rho) ** 2
        return self.certificate.lower_bound / (2 * _budget("rho", rho, "epsilon", epsilon))

    @cached_property
    def certificate(self) -> Certificate:
        """The convex bound behind `lower_bound`, computed once."""
        return certify(self.workload)

    @cached_property
    def _row_squares(self) -> Dense:
        return row_squares(self.reconstruction)

    def __repr__(self) -> str:
        m, r, n = self.workload.queries, self.measurements, self.workload.cells
        return (
            f"Strategy({self.method}, {self.privacy}: {m} queries from {r} measurements of {n} cells, "
            f"sensitivity {self.sensitivity:.6g}, residual {self.residual:.1e})"
        )


def _budget(name: str, value: float | None, other_name: str, other: float | None) -> float:
    if other is not None:
        raise PrivacyParameterError(
            f"{other_name}={other!r} is not this strategy's budget; give {name} instead"
        )
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
            f"{name} is {rows} × {columns}, {rows * columns * 8 / 2**30:.0f} GiB as an array; use the sparse "
            f"{'measurement' if name == 'measure' else 'reconstruction'} instead"
        )
    array = dense(matrix)
    array.flags.writeable = False
    return array
