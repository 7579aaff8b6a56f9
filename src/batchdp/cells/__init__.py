"""From queries to cells: the atoms that they tell apart, and the classes of records that they treat alike."""

from batchdp.cells.cells import MOST_CELLS, Cells, cells_of

__all__ = ["MOST_CELLS", "Cells", "cells_of"]
