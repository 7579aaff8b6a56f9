"""Several blocks of cells: each optimised by itself, and the closed forms on all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from batchdp.portfolio.options import Options
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

OfBlock = Callable[[MatrixWorkload, Options], PairStrategy]
"""From a block and what is asked of the search to its strategy."""


def optimize_blocks(workload: MatrixWorkload, noise: Noise, options: Options, of_block: OfBlock) -> PairStrategy:
    """The strategies of all blocks as one, or a closed form on the whole if that is better."""
    parts = [part for _, _, part in workload.parts()]
    if options.seconds is None and len(parts) > MANY:
        options = replace(options, seconds=SECONDS)
    objective, progress = options.objective, options.progress
    found = []
    for i, part in enumerate(parts):

        def watch(share: float, trying: str, _: float, i: int = i) -> object:
            assert progress is not None
            # An error of one block says nothing about the batch.
            return progress((i + share) / len(parts), f"block {i + 1} of {len(parts)}: {trying}", float("nan"))

        found.append(of_block(part, options.split(len(parts), None if progress is None else watch)))
    methods = ", ".join(sorted({strategy.method for strategy in found}))
    name = f"{len(found)} blocks: {methods}" if found else "nothing to measure"
    best = assembled(workload, found, noise, method=name, objective=objective)
    if found and workload.queries * workload.cells <= MOST_ENTRIES:
        reduction = reduce(workload)
        closed = [family for family in families_for(noise) if not family.searches and family.worth(reduction)]
        whole = [family.method(workload) for family in closed]
        best = min([best, *whole], key=lambda strategy: error_of(strategy, objective))
    return best
