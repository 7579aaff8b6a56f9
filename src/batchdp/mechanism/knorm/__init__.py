"""Noise in the shape of a batch: the body that its columns span, and an exact sampler for it."""

from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.drawing import draw, draws

__all__ = ["Body", "draw", "draws"]
