"""First guesses of the shared queries Θ of a p-Identity strategy.

Which valley a search ends in matters more than how it descends: for ranges, groups of neighbouring columns are the
right beginning; for unordered workloads, random ones.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.settings import Settings

Kind = Literal["random", "tree", "blocks", "singular", "signed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of their use: the last are left out where time is short."""


def shared_start(kind: Kind, rows: int, right_vectors: Dense, rng: np.random.Generator, settings: Settings) -> Dense:
    """Θ of a kind, rows × n; `right_vectors` are those of R."""
    n = right_vectors.shape[1]
    noise = rng.random((rows, n))
    match kind:
        case "random":
            return min(1.0, settings.start_sum / rows) * noise
        case "signed":
            return 0.5 * rng.standard_normal((rows, n)) + 0.3
        case "blocks":
            return _blocks(rows, n) + 0.05 * noise
        case "tree":
            parents = max(1, rows // (settings.children + 1)) if rows > settings.children else 0
            return np.vstack([_blocks(rows - parents, n), _blocks(parents, n)]) + 0.05 * noise
        case "singular":
            V = right_vectors[:rows]
            V = V * np.where(V.sum(axis=1) < 0, -1.0, 1.0)[:, None]
            T = 0.05 * noise
            T[: len(V)] += np.maximum(V / np.abs(V).max(axis=1, keepdims=True), 0.0)
            return T


def _blocks(rows: int, columns: int) -> Dense:
    """Groups of neighbouring columns."""
    T = np.zeros((rows, columns))
    column = np.arange(columns)
    if rows:
        T[column * rows // columns, column] = 1.0
    return T
