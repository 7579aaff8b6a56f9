"""Does a release keep what it promises? Exact checks of its arithmetic, and an attack on its noise."""

from batchdp.audits.auditing import Audit, audit
from batchdp.audits.exact import Finding

__all__ = ["Audit", "Finding", "audit"]
