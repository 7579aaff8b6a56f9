"""p-Identity (McKenna, Miklau, Hay, Machanavajjhala: OPT₀): every cell once, and p shared queries.

`mechanism` is the family's function; `tournament` is the search that `optimize` spends work on.
"""

from batchdp.strategies.families.p_identity.mechanism import p_identity
from batchdp.strategies.families.p_identity.settings import SETTINGS, Settings
from batchdp.strategies.families.p_identity.tournament import search_shared
from batchdp.strategies.families.p_identity.wide_rows import from_wide_rows
from batchdp.strategies.family import Family

P_IDENTITY = Family(
    "p-identity",
    p_identity,
    settings=SETTINGS,
    searches=True,
    quick=True,
    search=search_shared,
    on_sparse=from_wide_rows,
    part=SETTINGS.part,
    nominal_seconds=lambda R, settings: settings.nominal_seconds(R.size),
)

__all__ = ["P_IDENTITY", "SETTINGS", "Settings", "p_identity"]
