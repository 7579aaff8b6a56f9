"""Ready-made workloads: the paper's three, and the ones that the field compares on."""

from batchdp.workloads.intervals import all_ranges, intervals, prefix, sliding
from batchdp.workloads.marginals import marginals
from batchdp.workloads.paper import discrete, ranges, related

__all__ = ["all_ranges", "discrete", "intervals", "marginals", "prefix", "ranges", "related", "sliding"]
