"""The low-rank mechanism: the paper's own.

`mechanism` is the family's function; `ranks` is the search that `optimize` spends work on.
"""

from batchdp.strategies.families.low_rank.mechanism import low_rank, solve_fast
from batchdp.strategies.families.low_rank.ranks import improve_best, may_pay, search_low_rank
from batchdp.strategies.families.low_rank.settings import SETTINGS, Settings
from batchdp.strategies.family import Family
from batchdp.workloads.reduction import Reduction


def _worth(reduction: Reduction) -> bool:
    return may_pay(reduction.reduced, SETTINGS) or reduction.workload.cells <= SETTINGS.most_cells


LOW_RANK = Family(
    "low-rank",
    low_rank,
    settings=SETTINGS,
    searches=True,
    worth=_worth,
    refine=improve_best,
    search=search_low_rank,
    may_pay=may_pay,
    part=SETTINGS.part,
    nominal_seconds=lambda R, settings: settings.nominal_seconds(R.size) if may_pay(R, settings) else 0.0,
)

__all__ = ["LOW_RANK", "SETTINGS", "Settings", "low_rank", "solve_fast"]
