"""The low-rank mechanism: the paper's own.

`mechanism` is the family's function; `ranks` is the search that `optimize` spends work on.
"""

from dataclasses import dataclass
from typing import final

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.families.low_rank.mechanism import low_rank, solve_fast
from batchdp.optimizer.families.low_rank.ranks import improve_best, may_pay, search_low_rank
from batchdp.optimizer.families.low_rank.settings import SETTINGS, Settings
from batchdp.optimizer.family import Family
from batchdp.strategies.account import PairSearch
from batchdp.workloads.reduction import Reduction


@final
@dataclass(frozen=True, eq=False)
class _LowRank(Family):
    settings: Settings = SETTINGS

    def worth(self, reduction: Reduction) -> bool:
        return may_pay(reduction.reduced, self.settings) or reduction.workload.cells <= self.settings.most_cells

    def refine(self, search: PairSearch) -> None:
        improve_best(search, self.settings)

    def search(self, search: PairSearch, reduction: Reduction, seed: int, share: float) -> None:
        search_low_rank(search, reduction, seed, share, self.settings)

    def part(self, R: Dense) -> float:
        return self.settings.part if may_pay(R, self.settings) else 0.0

    def nominal_seconds(self, R: Dense) -> float:
        return self.settings.nominal_seconds(R.size) if may_pay(R, self.settings) else 0.0


LOW_RANK = _LowRank("low-rank", low_rank, searches=True)

__all__ = ["LOW_RANK", "SETTINGS", "Settings", "low_rank", "solve_fast"]
