"""The table of a ledger: append-only, and what one transaction reads from it and adds to it.

A copy of the file, taken while somebody writes to it, may hold pages of different moments. The seal, a row on a page
of its own, names the last entry: each page of the copy is at least as new as the beginning of the copying, so an entry
that is the last one and agrees with the seal says no less than what was spent then. Anything else is refused.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from batchdp.ledger.account import Account
from batchdp.ledger.chain import BrokenChainError, Entry, Event
from batchdp.mechanism.conversion import add_up, least_epsilon
from batchdp.privacy import CURRENCIES, UNITS, Budget, Currency, round_up, shortest

DELTAS = tuple(10.0**-power for power in range(3, 13))
MOST_CURVES = 20
"""Spends that get a curve of their own: the latest ones."""


@dataclass(frozen=True)
class Curve:
    """The ε of a guarantee for each δ."""

    name: str
    epsilons: tuple[float, ...]


def together(entries: Sequence[Entry]) -> tuple[dict[Currency, Fraction | None], Fraction]:
    """What a fixed sequence of spends guarantees in every currency, and the δ that its thresholds need beside."""
    each = [guarantee_of(entry) for entry in entries]
    amounts = {unit: add_up(one[unit] for one in each) for unit in CURRENCIES}
    return amounts, sum(map(_delta_of, entries), Fraction(0))


def list_curves(entries: Sequence[Entry], deltas: Sequence[float] = DELTAS) -> tuple[Curve, ...]:
    """One curve for each of the latest spends, and the last one for all together; none where nothing was spent."""
    if not entries:
        return ()
    shown = [Curve(entry.release_id, _curve(*together([entry]), deltas)) for entry in entries[-MOST_CURVES:]]
    return (*shown, Curve(f"all {len(entries):,}", _curve(*together(entries), deltas)))


def guarantee_of(entry: Entry) -> dict[Currency, Fraction | None]:
    """What a spend guarantees in every currency."""
    asked = Budget(UNITS[entry.unit], entry.requested)
    return {unit: asked.noise.charge(asked.amount, unit, entry.scale) for unit in CURRENCIES}


def _delta_of(entry: Entry) -> Fraction:
    """The δ of values that a spend finds by thresholds."""
    return Fraction(0) if entry.delta is None else shortest(entry.delta)


def _curve(guarantee: dict[Currency, Fraction | None], found: Fraction, deltas: Sequence[float]) -> tuple[float, ...]:
    """No number for a δ that thresholds have used up."""
    return tuple(
        round_up(least_epsilon(guarantee, delta, found)) if shortest(delta) > found else math.nan for delta in deltas
    )


APPLICATION = 0x62647031  # "bdp1"
VERSION = 6
FIRST_TABLE = """CREATE TABLE event (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('create', 'reserve', 'release')),
    time TEXT NOT NULL,
    release_id TEXT NOT NULL,
    plan_digest TEXT NOT NULL,
    table_name TEXT NOT NULL,
    unit TEXT NOT NULL,
    requested REAL NOT NULL,
    charged INTEGER NOT NULL CHECK (charged >= 0),
    remaining INTEGER NOT NULL CHECK (remaining >= 0),
    output_sha256 TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    output BLOB
)"""
"""As it was in version 1."""
ADDED = {
    2: ("privacy_unit TEXT", "output_bytes INTEGER"),
    3: ("answers_digest TEXT",),
    4: ("exact_charged TEXT", "exact_remaining TEXT"),
    5: ("scale REAL", "relation TEXT", "share TEXT", "charges TEXT", "account TEXT"),
    VERSION: ("snapshot TEXT",),
}
"""Columns by the version that added them; NULL in the entries of earlier ones, and where there is nothing to say."""
GUARDS = (
    "CREATE UNIQUE INDEX one_spend_an_id ON event (release_id, kind)",
    "CREATE TRIGGER never_deleted BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'entries stay'); END",
    "CREATE TRIGGER never_updated BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'entries stay'); END",
)
SEAL = "CREATE TABLE seal (one INTEGER PRIMARY KEY CHECK (one = 1), head TEXT NOT NULL)"


KINDS = "'create', 'reserve', 'release'", "'create', 'carry', 'share', 'reserve', 'release'"
"""Of entries, before version 5 and since."""


def schema(version: int) -> tuple[str, ...]:
    """The statements that make the tables of a version and what guards them."""
    table = ", ".join((FIRST_TABLE[:-1], *added_columns(version))) + ")"
    if version >= 5:
        table = table.replace(*KINDS)
    return (table, *GUARDS, *((SEAL,) if version > 1 else ()))


def added_columns(version: int) -> list[str]:
    """The columns that a version has beside those of the first."""
    return [column for own, columns in ADDED.items() if own <= version for column in columns]


def _fields(version: int, *more: str) -> str:
    """The names of a version's columns, and these."""
    return ", ".join((FIELDS, *(column.partition(" ")[0] for column in added_columns(version)), *more))


VERSIONS = (1, *ADDED)
CARRIED_OVER = 1000
"""What a ledger has as its version that `migrate` has carried over: no version of batchdp spends from it again."""
EARLIER = (
    "is a ledger of a version before 0.3; carry what it granted over to a new file with "
    "`batchdp budget OLD --migrate NEW`, and spend from that"
)
FIELDS = (
    "number, kind, time, release_id, plan_digest, table_name, unit, requested, charged, remaining, "
    "output_sha256, previous"
)
TORN = (
    "its pages are of different moments: it was copied or moved while it was written to, or its -journal file was left "
    "behind; bring that file back beside it under the same name, or copy again"
)


def create_schema(connection: sqlite3.Connection) -> None:
    """The tables and what guards them, in an empty database."""
    for statement in schema(VERSION):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def difference_from_schema(connection: sqlite3.Connection, database: str = "main") -> str | None:
    """Why this database is not a ledger, of whatever version, or is none any more; None if it is one."""
    if connection.execute(f"PRAGMA {database}.application_id").fetchone()[0] != APPLICATION:
        return "is an SQLite database but not a ledger; give a file that Ledger.create made"
    version = schema_version(connection, database)
    if version == CARRIED_OVER:
        (path,) = connection.execute(f"SELECT max(path) FROM {database}.carried_over").fetchone()
        return f"was carried over to {str(path)!r}, which has all that it granted; use that file"
    if version not in VERSIONS:
        return f"has schema version {version}, this batchdp reads up to version {VERSION}; use the batchdp that made it"
    found = connection.execute(f"SELECT sql FROM {database}.sqlite_master WHERE sql IS NOT NULL").fetchmany(100)
    # A trigger, for one, could drop entries silently. White space is SQLite's own where a column was added.
    if sorted("".join(sql.split()) for (sql,) in found) != sorted("".join(sql.split()) for sql in schema(version)):
        return "was changed: its tables and triggers are not those of a ledger; restore a copy"
    return None


def schema_version(connection: sqlite3.Connection, database: str = "main") -> int:
    """As the file says."""
    return int(connection.execute(f"PRAGMA {database}.user_version").fetchone()[0])


class Books:
    """The entries, as one transaction sees them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._fields = connection, _fields(VERSION, "hash")

    def first(self) -> Event:
        """The entry that made the ledger."""
        return self._one("number = 0")

    def terms(self) -> Event:
        """The entry that says what the ledger promises: the first, or the one that carried it over to (ε, δ)."""
        carried = self._connection.execute(
            "SELECT number FROM event WHERE release_id = '' AND kind = 'carry'"
        ).fetchone()
        return self.first() if carried is None else self._one("release_id = '' AND kind = 'carry'")

    def account(self, last: Event | None = None) -> Account:
        """What was spent, and what may be, after the last entry."""
        return Account.read(self.terms(), last or self.last())

    def last(self) -> Event:
        """The entry that says what remains."""
        last = self._one("number = (SELECT max(number) FROM event)")
        if self._connection.execute("SELECT head FROM seal").fetchone() != (last.hash,):
            raise BrokenChainError(TORN)
        return last

    def about(self, release_id: str) -> list[Event]:
        """Nothing for a new id; its reserve entry; or that and its release entry."""
        query = (
            f"SELECT {self._fields} FROM event WHERE release_id = ? AND kind IN ('reserve', 'release') ORDER BY number"
        )
        return [Event.read(row) for row in self._connection.execute(query, (release_id,))]

    def output(self, event: Event) -> bytes | None:
        """The output stored with an entry, if any."""
        found = self._connection.execute("SELECT output FROM event WHERE number = ?", (event.number,)).fetchone()[0]
        if found is not None and not isinstance(found, bytes):  # in a forged file
            raise BrokenChainError(f"the output stored with entry {event.number} was changed after it was written")
        return found

    def all(self) -> Iterator[Event]:
        """Every entry, first to last."""
        for row in self._connection.execute(f"SELECT {self._fields} FROM event ORDER BY number"):
            yield Event.read(row)

    def append(self, event: Event, output: bytes | None = None) -> None:
        """Add the entry that follows the last one, and seal it."""
        values = (*vars(event).values(), event.hash, output)
        places = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO event ({self._fields}, output) VALUES ({places})", values)
        self._connection.execute("INSERT OR REPLACE INTO seal VALUES (1, ?)", (event.hash,))

    def check_whole(self) -> None:
        """Refuse a copy of which the table or its index misses entries that the last one counts."""
        expected = self.last().number + 1
        for way in ("NOT INDEXED", "INDEXED BY one_spend_an_id"):
            if self._connection.execute(f"SELECT count(*) FROM event {way}").fetchone() != (expected,):
                raise BrokenChainError(TORN)

    def check_damage(self) -> None:
        """Refuse a file that SQLite's own check finds something wrong with."""
        found = str(self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if found != "ok":
            raise BrokenChainError(f"SQLite reports {found!r}")

    def _one(self, where: str) -> Event:
        row = self._connection.execute(f"SELECT {self._fields} FROM event WHERE {where}").fetchone()
        if row is None:
            raise BrokenChainError("its entries are missing")
        return Event.read(row)


def carry_over(connection: sqlite3.Connection, path: str) -> None:
    """Copy every entry of the attached ledger `old` into the empty main database, at `path`, and mark `old` as spent.

    The entries stay as they are, and so do their hashes: what a version did not know is NULL, and has no part in them.
    """
    version = schema_version(connection, "old")
    create_schema(connection)
    columns = _fields(version, "hash", "output")
    connection.execute(f"INSERT INTO main.event ({columns}) SELECT {columns} FROM old.event ORDER BY number")
    heads = "old.seal" if version > 1 else "(SELECT hash AS head FROM old.event ORDER BY number DESC LIMIT 1)"
    connection.execute(f"INSERT INTO main.seal SELECT 1, head FROM {heads}")
    connection.execute("CREATE TABLE old.carried_over (path TEXT NOT NULL)")
    connection.execute("INSERT INTO old.carried_over VALUES (?)", (path,))
    connection.execute(f"PRAGMA old.user_version = {CARRIED_OVER}")
