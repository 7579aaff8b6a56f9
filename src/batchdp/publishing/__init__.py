"""From a release to a publication: record, checklist, note, metadata and evidence in one folder, and its check."""

from batchdp.publishing.verifying import Verified, verify
from batchdp.publishing.writing import Dossier, dossier

__all__ = ["Dossier", "Verified", "dossier", "verify"]
