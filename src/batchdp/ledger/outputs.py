"""Outputs too large for a row of the ledger: files in a folder beside it, on the disk before the ledger mentions them.

A file is named by the SHA-256 of what it holds, and the ledger's entry has that and the length in its hash: a file that
is missing or altered is noticed, and its release is refused, never drawn again. One whose release was interrupted
between file and entry stays there unused; it was shown to nobody.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from batchdp.archive import open_regular, replace_file
from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger.account import DELTA, Account, Charges, carried_over, charges_of, check_chain, delta_of
from batchdp.ledger.books import Books
from batchdp.ledger.chain import BrokenChainError, Entry, Event, Reservation, StoredRelease, as_text, sha256
from batchdp.ledger.file import LedgerFile, sync_folder
from batchdp.mechanism.conversion import exact_delta
from batchdp.privacy import Amount, round_up

LARGEST_ROW = 1_000_000
"""Bytes of an output that is kept in the ledger itself."""


def folder_of(ledger: Path) -> Path:
    """Where the large outputs of a ledger are."""
    return ledger.with_name(f"{ledger.name}.outputs")


def store_output(ledger: Path, output: bytes) -> None:
    """Write an output beside the ledger; it and its name are on the disk when this returns."""
    folder = folder_of(ledger)
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync_folder(ledger.parent)
        replace_file(folder / _file_name(sha256(output)), output)
        sync_folder(folder)
    except OSError as error:
        raise LedgerError(
            f"the output cannot be written to {str(folder)!r} ({error.strerror or error}); "
            "free some space or check the folder's rights"
        ) from error


def load_output(ledger: Path, event: Event) -> bytes:
    """The output of an entry that has it beside the ledger, if it still is what was written."""
    path = folder_of(ledger) / _file_name(event.output_sha256)
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size != event.output_bytes:  # before so much is read
                raise _refuse(event, path, "has another length than it was written with")
            output = file.read()
    except OSError as error:
        raise _refuse(event, path, f"cannot be read ({error.strerror or error})") from error
    if sha256(output) != event.output_sha256:
        raise _refuse(event, path, "was changed after it was written")
    return output


def is_here(ledger: Path, event: Event) -> bool:
    """Whether the output of an entry can be looked for: it is in the ledger, or its file exists."""
    return event.output_bytes is None or (folder_of(ledger) / _file_name(event.output_sha256)).exists()


def digest_file(ledger: Path, event: Event) -> str:
    """The SHA-256 of what is in the file now; as the entry says where there is no file, as in a copy of the ledger."""
    try:
        with open_regular(folder_of(ledger) / _file_name(event.output_sha256)) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return event.output_sha256


def _file_name(output_sha256: str) -> str:
    if len(output_sha256) != 64 or set(output_sha256) - set("0123456789abcdef"):  # a forged entry could name any file
        raise LedgerError(f"output_sha256={output_sha256[:80]!r} is not a digest; the ledger was forged")
    return f"{output_sha256}.output"


def _refuse(event: Event, path: Path, problem: str) -> LedgerError:
    return LedgerError(
        f"release_id={event.release_id!r} was released, but its output {problem}: {str(path)!r}; bring that file back. "
        "It is not drawn again, and its budget stays spent"
    )


# ── What an id has in the ledger: a spend, and at most one output, which a repeat gets again.


def find_paid(books: Books, reservation: Reservation) -> Event:
    """The spend that pays for an output, if it has none yet."""
    named = f"release_id={reservation.release_id!r}"
    earlier = books.about(reservation.release_id)
    if not earlier or earlier[0].hash != reservation.head:
        raise BudgetError(f"{named} was not reserved in this ledger; reserve it here first")
    if len(earlier) > 1:
        raise BudgetError(f"{named} was completed already; reserve it again to get its stored output")
    return earlier[0]


def repeat(books: Books, earlier: list[Event], asked: Event, due: Charges, path: Path) -> StoredRelease:
    """The output of an id that was used before, if it has one and the same thing is asked."""
    reserved, named = earlier[0], f"release_id={asked.release_id!r}"
    for field_name in ("plan_digest", "table", "unit", "requested", "privacy_unit", "answers_digest", "snapshot"):
        before, now = getattr(reserved, field_name), getattr(asked, field_name)
        if before != now:
            raise BudgetError(
                f"{named} was used at {reserved.time} with {field_name}={before!r}, not {now!r}; "
                "choose a new release_id"
            )
    if delta_of(reserved) != due.get(DELTA):
        raise BudgetError(f"{named} was used at {reserved.time} with another delta; choose a new release_id")
    for unit, paid in charges_of(reserved, books.account(), books.first()).items():
        now = due[unit]
        if paid is not None and now is not None and paid < now:  # earlier versions may have charged more
            raise BudgetError(
                f"{named} was charged {as_text(paid, now)} at {reserved.time}, not {as_text(now, paid)}; "
                "choose a new release_id"
            )
    if len(earlier) == 1:
        raise BudgetError(
            f"{named} was charged at {reserved.time} but has no output (interrupted, or still running elsewhere); "
            "its budget stays spent, choose a new release_id"
        )
    return find_output(books, earlier, path)


def find_output(books: Books, earlier: list[Event], path: Path) -> StoredRelease:
    """The output of a release, which must be the one that was stored."""
    reserved, released = earlier
    output = books.output(released) if released.output_bytes is None else load_output(path, released)
    if output is None or sha256(output) != released.output_sha256:
        raise BrokenChainError(f"the output stored with entry {released.number} was changed after it was written")
    return StoredRelease(released.release_id, output, charged_as(reserved, books), reserved.hash)


def charged_as(reserved: Event, books: Books) -> float:
    """What a spend was charged, in the currency that the ledger's figures are in."""
    account = books.account()
    return round_up(charges_of(reserved, account, books.first())[account.leading] or Fraction(0))


def check_entries(books: Books, path: Path) -> list[str]:
    """The hash of every entry, once the file and the whole chain with all its outputs are found to be sound."""
    books.check_damage()
    return check_chain((event, _digest(books, event, path)) for event in books.all())


def _digest(books: Books, event: Event, path: Path) -> str:
    """Of the output that is stored with an entry; "" where none is."""
    output = books.output(event)
    if output is not None:
        return sha256(output)
    return "" if event.output_bytes is None else digest_file(path, event)


def as_entry(reserved: Event, charged: Fraction, released: bool) -> Entry:
    """A spend as a ledger hands it out."""
    apart = ("state", "head", "delta")
    own = {one.name: getattr(reserved, one.name) for one in fields(Entry) if one.name not in apart}
    own["charged"] = round_up(charged)  # in the ledger's unit, not in billionths
    delta = delta_of(reserved)
    own["delta"] = None if delta is None else round_up(delta)
    return Entry(**own, state="released" if released else "reserved", head=reserved.hash)


def divided(books: Books, last: Event, delta: Amount | None) -> tuple[Event, Account]:
    """The last entry, not yet written where it divides δ for the first spend, and what may be spent after it."""
    account = books.account(last)
    if delta is None or books.terms().kind != "create":
        return last, account
    roomy = account.with_room(exact_delta(delta))
    if roomy is account:
        return last, account
    said: dict[str, Any] = dict.fromkeys(("release_id", "plan_digest", "table"), "")
    terms = {**roomy.terms(), "unit": roomy.unit, "requested": float(roomy.total)}
    return last.follow("carry", **said, **terms), roomy


# ── A ledger carried over to a new file: the same spends, outputs and hashes; of an earlier version, or into (ε, δ).


def migrate(old: LedgerFile, new: LedgerFile, promised: Callable[[Account], Account] | None = None) -> None:
    """Carry everything over, unless anything in the old ledger is not what it was when it was written.

    Args:
        old, new: the files.
        promised: from what an ε or ρ ledger has promised to a promise of (ε, δ); the same one if left out.
    """

    def look(books: Books) -> None:
        books.check_whole()
        check_entries(books, old.path)
        for event in books.all():
            if event.output_bytes is not None and is_here(old.path, event):
                store_output(new.path, load_output(old.path, event))
        if promised is not None:
            account, last = carried_over(books.all(), promised(books.account())), books.last()
            said: dict[str, Any] = {
                "release_id": "",
                "plan_digest": "",
                "table": "",
                "privacy_unit": None,
                "answers_digest": None,
            }
            books.append(
                last.follow("carry", **account.terms(), **said, unit=account.unit, requested=float(account.total))
            )
            check_entries(books, old.path)  # what nobody could read again must not take the old ledger's place

    old.carry_over(new, look, again=promised is not None)
