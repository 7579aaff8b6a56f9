"""Component strategies on the lattice: integer measurements by axes, their exact sensitivity, noise of their own."""

from batchdp.measuring.components.lattice import ComponentLattice, IntegerGroup
from batchdp.measuring.components.preparing import Prepared, prepare

__all__ = ["ComponentLattice", "IntegerGroup", "Prepared", "prepare"]
