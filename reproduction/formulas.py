"""The paper's formulas that need a correction, each with a case that shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchdp import bounds
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload
from reproduction.examples import SECOND
from reproduction.findings import short


@dataclass(frozen=True)
class Correction:
    """What is printed, what holds, and a case in figures."""

    where: str
    printed: str
    holds: str
    case: str


def corrections() -> list[Correction]:
    """All of them; the cases are computed here."""
    return [_noise_on_results(), _upper_bound(), _columns(), _lower_bound(), _ratio(), _relaxed()]


def _noise_on_results() -> Correction:
    W = np.asarray(SECOND.matrix)
    printed = 2 * len(W) * float(np.square(W).sum(axis=0).max())
    return Correction(
        "Section 3.2, noise on results",
        "2 m max_j Σ_i W_ij² / ε²",
        "2 m (max_j Σ_i ∣W_ij∣)² / ε²: the column sum is squared, not its terms",
        f"example 2: {short(printed)} as printed, {short(_error(noise_on_results(SECOND)))} in truth",
    )


def _upper_bound() -> Correction:
    one = MatrixWorkload([[1.0]])
    return Correction(
        "Lemma 3, upper bound",
        "r Σ λ_k² / ε²",
        "2 r Σ λ_k² / ε²: the variance of Laplace noise has a factor 2",
        f"one query about one cell: 1 as printed, {short(bounds.lemma_3_upper_bound(one))} corrected; Laplace noise "
        f"has {short(_error(noise_on_results(one)))}",
    )


def _columns() -> Correction:
    V = np.linalg.svd(np.ones((1, 4)), full_matrices=False)[2]
    return Correction(
        "Lemma 3, proof",
        "every column of V has L2 norm 1",
        "V has orthonormal rows; its columns have norm at most 1, which is all that the proof needs",
        f"the sum of four cells: columns of norm {short(float(np.linalg.norm(V[:, 0])))}",
    )


def _lower_bound() -> Correction:
    total = MatrixWorkload(np.ones((1, 50)))
    return Correction(
        "Lemma 4, lower bound",
        "of order ((2^r / r!) Π λ_k)^(2/r) r³ / ε²",
        "not a bound: V maps the L1 ball of R^n to its projection, not to that of R^r; its volume, that of the hull "
        "of ± the columns of UᵀW, takes the product's place",
        f"the sum of 50 cells: {short(bounds.lemma_4_as_printed(total))} as printed, yet an error of "
        f"{short(_error(noise_on_results(total)))} suffices",
    )


def _ratio() -> Correction:
    return Correction(
        "Theorem 2, approximation ratio",
        "(C/4)² r",
        "C² r / 8 with Lemma 3 corrected; it speaks of Lemma 4 as printed, and so bounds nothing",
        "",
    )


def _relaxed() -> Correction:
    x = np.array([3.0, 4.0])
    E = np.outer(np.ones(2), x)
    gamma, squares = float(np.linalg.norm(E)), float(x @ x)
    return Correction(
        "Theorem 3, relaxed decomposition",
        "2 tr(BᵀB) / ε² + γ Σ x_i²",
        "2 tr(BᵀB) / ε² + γ² Σ x_i², as its own proof has it",
        f"W − B L with both rows x = (3, 4): structural error {short(float(np.sum((E @ x) ** 2)))}; γ Σ x² is "
        f"{short(gamma * squares)}, γ² Σ x² is {short(bounds.structural_error_bound(gamma, squares))}",
    )


def _error(strategy: PairStrategy) -> float:
    return strategy.expected_squared_error(epsilon=1.0)
