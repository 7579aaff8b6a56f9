"""A pair for a reduced workload, and how the search that found it ended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchdp.linalg.matrix import Dense, Plain
from batchdp.outcome import Outcome


@dataclass(frozen=True, eq=False)
class Pair:
    """L and B with B L = R, the columns of L of norm at most 1: what every search here returns."""

    measure: Plain
    """L, one measurement a row and one class of cells a column."""
    reconstruct: Dense
    """B, one row of R a row and one measurement a column."""
    outcome: Outcome = Outcome.CLOSED_FORM
    rounds: int = 0

    @cached_property
    def error(self) -> float:
        """‖B‖²_F: half the expected squared error at ε = 1, and all of it at ρ = ½."""
        return float(np.vdot(self.reconstruct, self.reconstruct))
