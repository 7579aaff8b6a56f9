"""From a strategy and counts to answers that may be published."""

from batchdp.release import cells_codec  # noqa: F401  # which says how cells are saved and read
from batchdp.release.answering import answer
from batchdp.release.answers import Answer
from batchdp.release.components import codec  # noqa: F401  # which says how tables are described, saved and read
from batchdp.release.consistent.answers import Consistent
from batchdp.release.estimating import Estimate, estimate
from batchdp.release.exporting import export
from batchdp.release.file import load_release
from batchdp.release.records import Release

__all__ = ["Answer", "Consistent", "Estimate", "Release", "answer", "estimate", "export", "load_release"]
