"""Ready-made workloads: the paper's three, and the ones that the field compares on."""

from batchdp.workloads.marginals import marginals
from batchdp.workloads.ordered import all_ranges, intervals, prefix, sliding
from batchdp.workloads.paper import discrete, ranges, related
from batchdp.workloads.products import products

__all__ = ["all_ranges", "discrete", "intervals", "marginals", "prefix", "products", "ranges", "related", "sliding"]
