"""From a strategy and counts to answers that may be published."""

from batchdp.release import codecs  # noqa: F401  # which says how cells are saved and read
from batchdp.release.answering import answer
from batchdp.release.answers import Answer
from batchdp.release.beside import Beside
from batchdp.release.changing import change
from batchdp.release.checking import check
from batchdp.release.combining import combine
from batchdp.release.consistency.release import Consistent
from batchdp.release.discovering import discover
from batchdp.release.estimates import Estimate, estimate
from batchdp.release.exports import export
from batchdp.release.file import load_release
from batchdp.release.release import Release

__all__ = [
    "Answer",
    "Beside",
    "Consistent",
    "Estimate",
    "Release",
    "answer",
    "change",
    "check",
    "combine",
    "discover",
    "estimate",
    "export",
    "load_release",
]
