"""How answers are read from the measurements of several releases together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.reader import CellReader


@dataclass(frozen=True, eq=False)
class CombinedReader(CellReader):
    """Reads a list of answers by least squares from all measurements, each in units of its noise.

    What is measured and asked is given in coordinates that all batches have in common (`mechanism.functions`), in the
    place of cells.

    Args:
        steps: of every measurement the scale of its noise, in steps of its own lattice.
    """

    steps: Dense = field(repr=False)

    def in_records(self, noisy: NDArray[Any]) -> Dense:
        """Measurements in units of their noise."""
        return np.asarray(noisy.astype(np.float64) / self.steps)
