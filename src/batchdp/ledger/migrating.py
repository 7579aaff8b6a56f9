"""A ledger of an earlier version, carried over to a new file: the same total, spends, outputs and chain of hashes."""

from __future__ import annotations

from batchdp.ledger import outputs
from batchdp.ledger.books import Books
from batchdp.ledger.chain import BrokenChainError, check
from batchdp.ledger.file import LedgerFile
from batchdp.ledger.repeating import digest_of


def migrate(old: LedgerFile, new: LedgerFile) -> None:
    """Carry everything over, unless anything in the old ledger is not what it was when it was written."""

    def look(books: Books) -> None:
        books.check_whole()
        damage = books.damage()
        if damage is not None:
            raise BrokenChainError(f"SQLite reports {damage!r}")
        check((event, digest_of(books, event, old.path)) for event in books.all())
        for event in books.all():
            if event.output_bytes is not None and outputs.is_here(old.path, event):
                outputs.store(new.path, outputs.load(old.path, event))

    old.carry_over(new, look)
