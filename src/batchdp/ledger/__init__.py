"""The privacy budget: a file that is charged before an answer is drawn, and survives crashes."""

from batchdp.ledger.ledger import Ledger
from batchdp.ledger.opening import AnyLedger, as_ledger
from batchdp.ledger.records import Entry, Reservation, StoredRelease

__all__ = ["AnyLedger", "Entry", "Ledger", "Reservation", "StoredRelease", "as_ledger"]
