"""Several blocks of cells: each optimised by itself, and the closed forms on all of them at once."""

from __future__ import annotations

from collections.abc import Callable

from batchdp.bounds.optimality import Objective
from batchdp.portfolio.search import Progress
from batchdp.privacy import Noise
from batchdp.strategies import families_for
from batchdp.strategies.blocks import assembled, error_of
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import MatrixWorkload

SECONDS = 40.0
"""For all blocks together, where the caller gives none and each would take seconds."""
MANY = 8
"""How many blocks may each take the time that its size asks for."""
MOST_ENTRIES = 1_000_000
"""Queries times cells up to which closed forms are tried on all blocks at once: measurements that span them."""

OfBlock = Callable[[MatrixWorkload, float | None, Progress | None], PairStrategy]
"""From a block, seconds and an observer to its strategy."""


def optimize_blocks(
    workload: MatrixWorkload,
    noise: Noise,
    objective: Objective,
    seconds: float | None,
    progress: Progress | None,
    of_block: OfBlock,
) -> PairStrategy:
    """The strategies of all blocks as one, or a closed form on the whole if that is better."""
    parts = [part for _, _, part in workload.parts()]
    each = (
        seconds / len(parts) if seconds is not None and parts else SECONDS / len(parts) if len(parts) > MANY else None
    )
    found = []
    for i, part in enumerate(parts):

        def watch(share: float, trying: str, _: float, i: int = i) -> object:
            assert progress is not None
            # An error of one block says nothing about the batch.
            return progress((i + share) / len(parts), f"block {i + 1} of {len(parts)}: {trying}", float("nan"))

        found.append(of_block(part, each, None if progress is None else watch))
    methods = ", ".join(sorted({strategy.method for strategy in found}))
    name = f"{len(found)} blocks: {methods}" if found else "nothing to measure"
    best = assembled(workload, found, noise, method=name, objective=objective)
    if found and workload.queries * workload.cells <= MOST_ENTRIES:
        reduction = reduce(workload)
        closed = [family for family in families_for(noise) if not family.searches and family.worth(reduction)]
        whole = [family.method(workload) for family in closed]
        best = min([best, *whole], key=lambda strategy: error_of(strategy, objective))
    return best
