"""Families of mechanisms, one file or folder each: from a workload to a strategy, and what `optimize` may know."""
