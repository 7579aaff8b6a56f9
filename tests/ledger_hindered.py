"""A child process that spends from ledgers until something stops it, and prints what, a line each.

    python ledger_hindered.py PATH... [--bytes N] [--unprivileged]

Root may write to read-only files, so `--unprivileged` gives up root's rights once everything is imported.
"""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Iterator

from batchdp.errors import LedgerError
from batchdp.ledger import Ledger, Reservation

NOBODY = 65534


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--unprivileged", action="store_true")
    asked = parser.parse_args()
    if asked.bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked.bytes, asked.bytes))
    if asked.unprivileged and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    for path in asked.paths:
        print(*spend(path), sep=" | ")


def spend(path: str) -> Iterator[str]:
    granted = completed = 0
    try:
        ledger = Ledger.open(path)
        yield f"spent {ledger.spent} entries {len(ledger.history())} verified {ledger.verify() == ledger.head}"
        for i in range(1000):
            reservation = ledger.reserve(f"child-{i}", epsilon=0.0078125, plan_digest="plan", table="patients")
            granted += 1
            assert isinstance(reservation, Reservation)
            ledger.complete(reservation, bytes(3000))
            completed += 1
    except LedgerError as error:
        yield str(error)
    yield f"granted {granted} completed {completed}"


if __name__ == "__main__":
    main()
