"""Cheap members of the portfolio: every mechanism in closed form, brought to the merged columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from batchdp.matrix import Dense
from batchdp.reduction import Reduction
from batchdp.strategies.hierarchical import tree, tree_levels
from batchdp.strategies.matrix_mechanism import matrix_mechanism
from batchdp.strategies.wavelet import haar

BRANCHINGS = (2, 3, 4, 8, 16)
MANY_COLUMNS = 1500
"""Above this, only what is built on the merged columns themselves is tried."""
MANY_QUERY_ENTRIES = 20_000_000
FEW_CELLS = 64
"""Up to this many cells the matrix mechanism is quick enough to be asked."""


def baselines(reduction: Reduction) -> Iterator[tuple[str, Dense]]:
    """Names and measures for the reduced problem, each never worse than the mechanism it stands for."""
    p, workload = reduction.columns, reduction.workload
    yield "noise-on-data", np.eye(p)
    if workload.queries * p <= MANY_QUERY_ENTRIES:
        yield "noise-on-results", reduction.restrict_measure(workload.matrix)
    if p <= MANY_COLUMNS:
        yield "wavelet", haar(p)[0].toarray()
        for branching in BRANCHINGS:
            if branching <= max(2, p):
                yield "hierarchical", tree(p, tree_levels(p, branching)).toarray()
        if p < workload.cells:  # the cells' own intervals differ from the merged columns'
            yield "wavelet", reduction.restrict_measure(haar(workload.cells)[0])
            nodes = tree(workload.cells, tree_levels(workload.cells, 2))
            yield "hierarchical", reduction.restrict_measure(nodes)
    if workload.cells <= FEW_CELLS:
        yield "matrix-mechanism", reduction.restrict_measure(matrix_mechanism(workload).measurement)
