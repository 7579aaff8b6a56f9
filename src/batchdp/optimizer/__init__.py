"""`optimize`: the best strategy that any method here finds."""

from batchdp.optimizer.optimizing import ShapeChoice, optimize

__all__ = ["ShapeChoice", "optimize"]
