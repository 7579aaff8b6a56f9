"""What a strategy costs that reproduces W only nearly (the paper's Section 4.2)."""

from __future__ import annotations

import numpy as np


def structural_error_bound(relaxation: float, squared_counts: float) -> float:
    """γ² Σ x_i²: the most that ‖W − B L‖_F ≤ γ adds to the total squared error (Theorem 3).

    The paper prints γ Σ x_i² in the theorem; its own proof gives ‖W − B L‖²_F Σ x_i², that is γ².
    """
    return float(np.square(relaxation) * squared_counts)
