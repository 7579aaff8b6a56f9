"""The low-rank mechanism: the paper's own.

`mechanism` is the family's function, and the search that `optimize` spends work on.
"""

from batchdp.optimizer.families.low_rank.fast import SETTINGS, Settings
from batchdp.optimizer.families.low_rank.mechanism import LOW_RANK, low_rank, solve_fast

__all__ = ["LOW_RANK", "SETTINGS", "Settings", "low_rank", "solve_fast"]
