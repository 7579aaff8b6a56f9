"""How good a strategy can be at all, and what the paper proves about its own."""

from batchdp.strategies.bounds.convex import OptimalityBound, certify
from batchdp.strategies.bounds.spectral import (
    certify_worst,
    lemma_3_upper_bound,
    lemma_4_as_printed,
    lemma_4_lower_bound,
    singular_values,
    structural_error_bound,
    svd_lower_bound,
    theorem_2_ratio,
)

__all__ = [
    "OptimalityBound",
    "certify",
    "certify_worst",
    "lemma_3_upper_bound",
    "lemma_4_as_printed",
    "lemma_4_lower_bound",
    "singular_values",
    "structural_error_bound",
    "svd_lower_bound",
    "theorem_2_ratio",
]
