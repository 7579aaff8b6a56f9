"""Ready-made workloads: the paper's three, and the ones that the field compares on."""

from batchdp.workloads.kronecker import products
from batchdp.workloads.ready import all_ranges, discrete, intervals, marginals, prefix, ranges, related, sliding

__all__ = ["all_ranges", "discrete", "intervals", "marginals", "prefix", "products", "ranges", "related", "sliding"]
