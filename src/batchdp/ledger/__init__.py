"""The privacy budget: a file that is charged before an answer is drawn, and survives crashes."""

from batchdp.ledger.chain import Entry, Reservation, StoredRelease
from batchdp.ledger.ledger import AnyLedger, Ledger, as_ledger

__all__ = ["AnyLedger", "Entry", "Ledger", "Reservation", "StoredRelease", "as_ledger"]
