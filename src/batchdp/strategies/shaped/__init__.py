"""Noise in the shape of the batch (Hardt and Talwar 2010): the density falls with the norm that the batch defines.

K is the hull of ± the columns of what is measured. One record moves the measurements by one of these columns, so noise
of density ∝ exp(−ε ‖z‖_K) is ε-private by itself, whatever the queries' coordinates. Several groups of measurements,
each with its body and its share of ε, keep the dimension small enough to draw from.
"""

from batchdp.strategies.shape import Group, Shape
from batchdp.strategies.shaped.limits import DEFAULT, ShapeLimits
from batchdp.strategies.shaped.searching import shaped

__all__ = ["DEFAULT", "Group", "Shape", "ShapeLimits", "shaped"]
