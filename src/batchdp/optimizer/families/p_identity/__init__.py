"""p-Identity (McKenna, Miklau, Hay, Machanavajjhala: OPT₀): every cell once, and p shared queries.

`mechanism` is the family's function; `tournament` is the search that `optimize` spends work on.
"""

from batchdp.optimizer.families.p_identity.mechanism import SETTINGS, Settings, p_identity
from batchdp.optimizer.families.p_identity.tournament import P_IDENTITY

__all__ = ["P_IDENTITY", "SETTINGS", "Settings", "p_identity"]
