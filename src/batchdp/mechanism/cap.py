"""The public cap on the number of records: the one that was given, or the first default that is good enough.

A cap decides how fine the lattice can be, and so how large the bias: the more records must fit into 64 bits, the fewer
bits a measurement has. Whatever needs a cap asks here, so that plans, advice and releases agree.
"""

from __future__ import annotations

from batchdp.mechanism.lattice import FEWEST_BITS
from batchdp.mechanism.measurement import LARGEST
from batchdp.workloads.workload import MatrixWorkload

CAPS = tuple(10**power for power in range(12, 5, -1))
"""What is tried where no cap is given, the largest first."""
TABLE_CAPS = CAPS[3:]
"""The same for strategies over many columns."""
MOST_BIAS = 0.01
"""The largest bias that a release may have, relative to an answer's standard error."""


def caps_for(workload: MatrixWorkload, max_rows: int | None) -> tuple[int, ...]:
    """The caps to try, in order: the given one alone, or the defaults that leave the lattice bits enough.

    The first is the default where no budget says how much noise there is. A record is counted once in every block.
    """
    if max_rows is not None:
        return (max_rows,)
    return tuple(cap for cap in CAPS if cap * len(workload.blocks) <= LARGEST >> FEWEST_BITS) or CAPS[-1:]
