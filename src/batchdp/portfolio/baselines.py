"""Cheap members of the portfolio: every mechanism in closed form, brought to the merged columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from batchdp.linalg.matrix import Dense, Plain, column_norms, dense
from batchdp.strategies.hierarchical import tree, tree_levels, tree_reconstruct
from batchdp.strategies.matrix_mechanism import matrix_mechanism
from batchdp.strategies.wavelet import haar
from batchdp.workloads.reduction import Reduction

BRANCHINGS = (2, 3, 4, 8, 16)
MANY_COLUMNS = 1500
"""Above this, only what has a reconstruction in closed form is tried."""
FEW_COLUMNS = 500
"""Up to this many every reconstruction is quick."""
MANY_ENTRIES = 20_000_000
FEW_CELLS = 64
"""Up to this many cells the matrix mechanism is quick enough to be asked."""


def closed_forms(R: Dense) -> Iterator[tuple[str, Plain, Dense]]:
    """Names, measures and reconstructions of what is built on the merged columns themselves."""
    p = R.shape[1]
    if R.size > MANY_ENTRIES:
        return
    L, inverse = haar(p)
    yield "wavelet", L, np.asarray(R @ inverse)
    for branching in BRANCHINGS:
        if branching <= max(2, p):
            levels = tree_levels(p, branching)
            yield "hierarchical", tree(p, levels), tree_reconstruct(R, levels)


def baselines(reduction: Reduction, best: float) -> Iterator[tuple[str, Dense]]:
    """Names and measures for the reduced problem, each never worse than the mechanism it stands for.

    Where they take long, those that cannot matter are left out: `best` is ‖B‖²_F of a strategy that is known already.
    """
    p, workload = reduction.columns, reduction.workload
    if workload.queries * p <= MANY_ENTRIES and (p <= MANY_COLUMNS or _results_may_pay(reduction)):
        yield "noise-on-results", reduction.restrict_measure(workload.matrix)
    # The cells' own intervals differ from the merged columns'; with far more cells than columns they only do worse.
    if p < workload.cells and p <= MANY_COLUMNS and p * workload.cells <= MANY_ENTRIES:
        quick = p <= FEW_COLUMNS or workload.queries * workload.cells > MANY_ENTRIES
        W = None if quick else dense(workload.weighted)
        L, inverse = haar(workload.cells)
        if W is None or _error(L, W @ inverse) < best:
            yield "wavelet", reduction.restrict_measure(L)
        levels = tree_levels(workload.cells, 2)
        nodes = tree(workload.cells, levels)
        if W is None or _error(nodes, tree_reconstruct(W, levels)) < best:
            yield "hierarchical", reduction.restrict_measure(nodes)
    if workload.cells <= FEW_CELLS:
        yield "matrix-mechanism", reduction.restrict_measure(matrix_mechanism(workload).measurement)


def _error(measure: Plain, reconstruct: Dense) -> float:
    """‖B‖²_F at sensitivity 1."""
    return float(column_norms(measure, 1).max() ** 2 * np.vdot(reconstruct, reconstruct))


def _results_may_pay(reduction: Reduction) -> bool:
    """Whether noise on results, with k Δ² as its least error, comes near noise on data."""
    sensitivity = float(column_norms(reduction.workload.matrix, 1).max(initial=0.0))
    return reduction.rank * sensitivity**2 < 4 * float(np.vdot(reduction.reduced, reduction.reduced))
