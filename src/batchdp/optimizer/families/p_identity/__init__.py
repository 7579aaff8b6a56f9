"""p-Identity (McKenna, Miklau, Hay, Machanavajjhala: OPT₀): every cell once, and p shared queries.

`mechanism` is the family's function; `tournament` is the search that `optimize` spends work on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from scipy import sparse

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.families.p_identity.mechanism import p_identity
from batchdp.optimizer.families.p_identity.settings import SETTINGS, Settings
from batchdp.optimizer.families.p_identity.tournament import from_wide_rows, search_shared
from batchdp.optimizer.family import Family
from batchdp.strategies.account import PairSearch
from batchdp.workloads.matrix import Pair
from batchdp.workloads.reduction import Reduction


@final
@dataclass(frozen=True, eq=False)
class _PIdentity(Family):
    settings: Settings = SETTINGS

    def worth(self, reduction: Reduction) -> bool:
        return True

    def on_sparse(self, matrix: sparse.csr_array) -> tuple[float, Callable[[], Pair | None]]:
        return from_wide_rows(matrix)

    def search(self, search: PairSearch, reduction: Reduction, seed: int, share: float) -> None:
        search_shared(search, reduction, seed, share, self.settings)

    def part(self, R: Dense) -> float:
        return self.settings.part

    def nominal_seconds(self, R: Dense) -> float:
        return self.settings.nominal_seconds(R.size)


P_IDENTITY = _PIdentity("p-identity", p_identity, searches=True, quick=True)

__all__ = ["P_IDENTITY", "SETTINGS", "Settings", "p_identity"]
