"""The table of a ledger: append-only, and what one transaction reads from it and adds to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from batchdp.ledger.chain import BrokenChainError, Event

APPLICATION = 0x62647031  # "bdp1"
VERSION = 1
SCHEMA = (
    """CREATE TABLE event (
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
)""",
    "CREATE UNIQUE INDEX one_spend_an_id ON event (release_id, kind)",
    "CREATE TRIGGER never_deleted BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'entries stay'); END",
    "CREATE TRIGGER never_updated BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'entries stay'); END",
)
FIELDS = (
    "number, kind, time, release_id, plan_digest, table_name, unit, requested, charged, remaining, "
    "output_sha256, previous, hash"
)


def create_schema(connection: sqlite3.Connection) -> None:
    """The table and what guards it, in an empty database."""
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def difference_from_schema(connection: sqlite3.Connection) -> str | None:
    """Why this database is not a ledger that can be used, if it is not."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        return "is an SQLite database but not a ledger; give a file that Ledger.create made"
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        return f"has schema version {version}, this batchdp reads version {VERSION}; use the batchdp that made it"
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql").fetchall()
    if [sql for (sql,) in found] != sorted(SCHEMA):  # a trigger, for one, could drop entries silently
        return "was changed: its tables and triggers are not those of a ledger; restore a copy"
    return None


class Books:
    """The entries, as one transaction sees them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def first(self) -> Event:
        """The entry that says the total."""
        return self._one("number = 0")

    def last(self) -> Event:
        """The entry that says what remains."""
        return self._one("number = (SELECT max(number) FROM event)")

    def about(self, release_id: str) -> list[Event]:
        """Nothing for a new id; its reserve entry; or that and its release entry."""
        query = f"SELECT {FIELDS} FROM event WHERE release_id = ? AND kind != 'create' ORDER BY number"
        return [Event.read(row) for row in self._connection.execute(query, (release_id,))]

    def output(self, event: Event) -> bytes | None:
        """The output stored with an entry, if any."""
        found = self._connection.execute("SELECT output FROM event WHERE number = ?", (event.number,)).fetchone()[0]
        return None if found is None else bytes(found)

    def all(self) -> Iterator[Event]:
        """Every entry, first to last."""
        for row in self._connection.execute(f"SELECT {FIELDS} FROM event ORDER BY number"):
            yield Event.read(row)

    def append(self, event: Event, output: bytes | None = None) -> None:
        """Add the entry that follows the last one."""
        values = (*vars(event).values(), event.hash, output)
        self._connection.execute(f"INSERT INTO event VALUES ({', '.join('?' * len(values))})", values)

    def damage(self) -> str | None:
        """What SQLite's own check of the file finds wrong, if anything."""
        found = str(self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        return None if found == "ok" else found

    def _one(self, where: str) -> Event:
        row = self._connection.execute(f"SELECT {FIELDS} FROM event WHERE {where}").fetchone()
        if row is None:
            raise BrokenChainError("its entries are missing")
        return Event.read(row)
