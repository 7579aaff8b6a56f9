"""What an id has in the ledger: a spend, and at most one output, which a repeat gets again."""

from __future__ import annotations

from pathlib import Path

from batchdp.errors import BudgetError
from batchdp.ledger import outputs
from batchdp.ledger.accounting import as_text
from batchdp.ledger.books import Books
from batchdp.ledger.chain import BrokenChainError, Event, sha256
from batchdp.ledger.records import Entry, Reservation, StoredRelease
from batchdp.privacy import rounded_up


def paid_by(books: Books, reservation: Reservation) -> Event:
    """The spend that pays for an output, if it has none yet."""
    named = f"release_id={reservation.release_id!r}"
    earlier = books.about(reservation.release_id)
    if not earlier or earlier[0].hash != reservation.head:
        raise BudgetError(f"{named} was not reserved in this ledger; reserve it here first")
    if len(earlier) > 1:
        raise BudgetError(f"{named} was completed already; reserve it again to get its stored output")
    return earlier[0]


def repeated(books: Books, earlier: list[Event], asked: Event, path: Path) -> StoredRelease:
    """The output of an id that was used before, if it has one and the same thing is asked."""
    reserved, named = earlier[0], f"release_id={asked.release_id!r}"
    for field_name in ("plan_digest", "table", "unit", "requested", "privacy_unit", "answers_digest"):
        before, now = getattr(reserved, field_name), getattr(asked, field_name)
        if before != now:
            raise BudgetError(
                f"{named} was used at {reserved.time} with {field_name}={before!r}, not {now!r}; "
                "choose a new release_id"
            )
    if reserved.cost < asked.cost:  # earlier versions rounded up, and may have charged more
        raise BudgetError(
            f"{named} was charged {as_text(reserved.cost)} at {reserved.time}, not {as_text(asked.cost)}; "
            "choose a new release_id"
        )
    if len(earlier) == 1:
        raise BudgetError(
            f"{named} was charged at {reserved.time} but has no output (interrupted, or still running elsewhere); "
            "its budget stays spent, choose a new release_id"
        )
    return output_of(books, earlier, path)


def output_of(books: Books, earlier: list[Event], path: Path) -> StoredRelease:
    """The output of a release, which must be the one that was stored."""
    reserved, released = earlier
    output = books.output(released) if released.output_bytes is None else outputs.load(path, released)
    if output is None or sha256(output) != released.output_sha256:
        raise BrokenChainError(f"the output stored with entry {released.number} was changed after it was written")
    return StoredRelease(released.release_id, output, rounded_up(reserved.cost), reserved.hash)


def digest_of(books: Books, event: Event, path: Path) -> str:
    """Of the output that is stored with an entry; "" where none is."""
    output = books.output(event)
    if output is not None:
        return sha256(output)
    return "" if event.output_bytes is None else outputs.digest(path, event)


def as_entry(reserved: Event, released: bool) -> Entry:
    """A spend as a ledger hands it out."""
    return Entry(
        release_id=reserved.release_id,
        plan_digest=reserved.plan_digest,
        table=reserved.table,
        unit=reserved.unit,
        requested=reserved.requested,
        charged=rounded_up(reserved.cost),
        time=reserved.time,
        state="released" if released else "reserved",
        privacy_unit=reserved.privacy_unit,
        head=reserved.hash,
        answers_digest=reserved.answers_digest,
    )
