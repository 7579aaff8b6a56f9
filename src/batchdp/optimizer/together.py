"""Several blocks improved together: measurements that span them, found for the kinds of records that there are.

A measurement of the kinds can be made of the blocks' cells if it adds up over a record's cells. Mixtures of queries do,
since every query does. So a strategy for the kinds is brought to the nearest measurements that add up, which still
reproduce the queries; where it measures mixtures alone, nothing is lost. Blocks that search by themselves each pay for
what all of them have in common, and a record pays for the worst cell of every block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, dense, plain
from batchdp.optimizer.families import families_for
from batchdp.privacy import Noise
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.pair import PairStrategy, least_reconstruct
from batchdp.workloads.matrix import SMALLEST, MatrixWorkload

MOST_CELLS = 2000
"""Of all blocks: measurements are brought to them by the third power of their number."""
MOST_ENTRIES = 10_000_000
"""Of what kinds of records add to the queries' rank, where they are listed."""
MOST_CHOSEN = 500_000
"""The same where every choice of a cell or none in each block is a kind."""
COMMON = 64.0
"""How much larger than any other measurement what no record changes is measured."""
ROUNDING = 1e-9
"""Of what the queries are missed by, relative to W."""


def spanning(
    workload: MatrixWorkload, noise: Noise, objective: Objective, of_block: Callable[[MatrixWorkload], PairStrategy]
) -> Iterator[PairStrategy]:
    """Strategies for a workload of several blocks whose kinds of records are known, in measurements that span them.

    Args:
        workload: in several blocks.
        noise: of the strategies.
        objective: that is minimised.
        of_block: the best strategy for a workload in one block.
    """
    if workload.kinds is None or workload.cells > MOST_CELLS or workload.norm == 0:
        return
    kinds = workload.of_kinds()
    listed = workload.records is not None
    if min(kinds.queries, workload.cells) * kinds.cells > (MOST_ENTRIES if listed else MOST_CHOSEN):
        return
    if noise.bound_is_tight:
        found = [of_block(kinds)]
    else:  # searches are slow, and are kept for kinds that are listed
        families = families_for(noise) if listed and objective == "sum" else ()
        found = [family.method(kinds) for family in families if family.mixes]
    for one in found:
        try:
            yield _of_cells(workload, one)
        except StrategyError:  # which misses its workload by rounding; the blocks by themselves remain
            continue


def _of_cells(workload: MatrixWorkload, found: PairStrategy) -> PairStrategy:
    """The strategy for kinds of records with the nearest measurements that the blocks' cells can make."""
    assert workload.kinds is not None
    K, W = workload.kinds, dense(plain(workload.matrix))
    B, measured = dense(plain(found.reconstruction)), dense(plain(found.measurement))
    L = np.linalg.lstsq((K @ K.T).toarray().astype(np.float64), K @ measured.T, rcond=None)[0].T
    L = np.concatenate([L, COMMON * float(np.abs(L).max(initial=0.0)) * _unseen(W - B @ L, workload.norm)])
    return PairStrategy(
        workload,
        L,
        least_reconstruct(W, L),
        method=f"{len(workload.blocks)} blocks together: {found.method}",
        privacy=found.privacy,
        rounds=found.rounds,
        status=found.status,
        proven=found.proven,
    )


def _unseen(missing: Dense, norm: float) -> Dense:
    """Rows that span what W tells apart and no record changes: the difference between two counts of the same records.

    It is 0, so that it may be measured so large that the noise in it does not matter.
    """
    sizes, rows = np.linalg.svd(missing, full_matrices=False)[1:]
    own = rows[sizes > ROUNDING * norm]
    return np.asarray(own / np.abs(own).max(axis=1, keepdims=True, initial=SMALLEST))
