"""From a strategy and counts to answers that may be published."""

from batchdp.release.answering import answer
from batchdp.release.components import codec  # noqa: F401  # which says how tables are described, saved and read
from batchdp.release.components.tables import TableRelease
from batchdp.release.consistent.records import Consistent
from batchdp.release.consistent.tables import ConsistentTables
from batchdp.release.estimating import Estimate, estimate
from batchdp.release.exporting import export
from batchdp.release.file import load_release
from batchdp.release.records import Answer, Release

__all__ = [
    "Answer",
    "Consistent",
    "ConsistentTables",
    "Estimate",
    "Release",
    "TableRelease",
    "answer",
    "estimate",
    "export",
    "load_release",
]
