"""From a release to a publication: record, checklist, note, metadata and evidence in one folder, and its check."""

from batchdp.reports.dossier.verifying import Verified, verify
from batchdp.reports.dossier.writing import Dossier, dossier

__all__ = ["Dossier", "Verified", "dossier", "verify"]
