"""Noise in the shape of a batch: the body that its columns span, and an exact sampler for it."""

from batchdp.measuring.shaped.body import Body
from batchdp.measuring.shaped.drawing import draw, draws

__all__ = ["Body", "draw", "draws"]
