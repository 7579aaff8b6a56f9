"""The SQLite file behind a ledger: one short connection an operation, one transaction each, one sentence an error.

Nothing stays open between operations, so threads share nothing and a ledger that is dropped without being closed holds
no lock. `hold` keeps the write-ahead log in place between them, which saves most of the waiting for the disk.

A fork waits for the operation that is under way and closes what is held: SQLite's record of this process's locks,
copied to a child, would be wrong there. For the same reason the file is never opened but by SQLite: closing any other
handle to it would drop the locks.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from batchdp.errors import LedgerError
from batchdp.ledger.books import Books, create_schema, difference_from_schema
from batchdp.ledger.chain import BrokenChainError, Event

_ONE_AT_A_TIME = threading.RLock()
_HELD: set[sqlite3.Connection] = set()


def _before_fork() -> None:
    _ONE_AT_A_TIME.acquire()
    while _HELD:
        _HELD.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_ONE_AT_A_TIME.release, after_in_child=_ONE_AT_A_TIME.release
    )

_LOCKED = "is locked by another process; try again, or wait longer than timeout={timeout} seconds"
_REFUSALS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_READONLY: "is read-only, so nothing can be charged; make the file and its folder writable",
    sqlite3.SQLITE_PERM: "may not be used by this user; make the file and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; the file and its folder must be readable and writable",
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full; free some space and try again",
    sqlite3.SQLITE_IOERR: "could not be read or written; the disk is full or failing, or the file is at a size limit",
    sqlite3.SQLITE_CORRUPT: "is damaged or truncated; restore a copy and check it with verify(head=…)",
    sqlite3.SQLITE_NOTADB: "is not a ledger but some other file, or its beginning is damaged",
}


@dataclass(frozen=True)
class LedgerFile:
    """Where the ledger is, and how many seconds to wait for another process that is writing to it."""

    path: Path
    timeout: float

    def create(self, first: Event) -> None:
        """Make the file, with its first entry; whatever is there already stays as it is."""
        with self._explained(), _ONE_AT_A_TIME:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
            except FileExistsError:
                raise LedgerError(f"path={str(self.path)!r} exists already; open it, or choose another name") from None
            try:
                with closing(self._connect()) as connection:
                    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                        raise LedgerError(f"path={str(self.path)!r}: its file system cannot share a write-ahead log")
                    connection.execute("BEGIN IMMEDIATE")
                    create_schema(connection)
                    Books(connection).append(first)
                    connection.execute("COMMIT")
            except BaseException:
                with suppress(OSError):
                    self.path.unlink()
                raise

    @contextmanager
    def writing(self) -> Iterator[Books]:
        """One immediate transaction: no other process writes meanwhile; on the disk when the block is left."""
        with self._explained(), _ONE_AT_A_TIME:
            self._look()
            if not self._writable():
                raise LedgerError(f"path={str(self.path)!r} {_REFUSALS[sqlite3.SQLITE_READONLY]}")
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._recognise(connection)
                    yield Books(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise

    @contextmanager
    def reading(self) -> Iterator[Books]:
        """One consistent view of the entries."""
        with self._explained(), _ONE_AT_A_TIME:
            self._look()
            with closing(self._view()) as connection:
                yield Books(connection)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the write-ahead log in place: the last connection to close would copy it to the file and delete it."""
        with self._explained(), _ONE_AT_A_TIME:
            self._look()
            connection = self._view()
            _HELD.add(connection)
            connection.execute("ROLLBACK")  # an idle connection, in nobody's way
        try:
            yield
        finally:
            with _ONE_AT_A_TIME:
                _HELD.discard(connection)
                connection.close()

    def _view(self) -> sqlite3.Connection:
        # A reader makes two files beside a ledger, a log and an index to it. One that may not write to the ledger
        # must not: they would be its own and lock the owner out. Without a log, all entries are in the file itself.
        unlogged = not self._writable() and not Path(f"{self.path}-wal").exists()
        connection = self._connect("?mode=ro&immutable=1" if unlogged else "?mode=rw")
        with _closed_on_failure(connection):
            connection.execute("BEGIN")
            self._recognise(connection)
        return connection

    def _connect(self, mode: str = "?mode=rw") -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path.as_uri() + mode,
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,  # what is held may be closed by a fork in another thread
        )
        with _closed_on_failure(connection):
            connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the disk has it
            connection.execute("PRAGMA fullfsync = ON")  # which on macOS takes more than fsync
            connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _writable(self) -> bool:
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _look(self) -> None:
        """What SQLite would not say, or say unclearly."""
        named = f"path={str(self.path)!r}"
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise LedgerError(f"{named} does not exist; create it with Ledger.create") from None
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{named} is not a file; give the ledger's file")
        if status.st_size == 0:
            raise LedgerError(f"{named} is empty, not a ledger; restore a copy, or delete it and create a new one")
        if status.st_nlink > 1:  # each name would have its own write-ahead log, and each its own budget
            raise LedgerError(f"{named} has {status.st_nlink} names (hard links), which SQLite cannot share; keep one")

    def _recognise(self, connection: sqlite3.Connection) -> None:
        difference = difference_from_schema(connection)
        if difference is not None:
            raise LedgerError(f"path={str(self.path)!r} {difference}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        named = f"path={str(self.path)!r}"
        try:
            yield
        except BrokenChainError as error:
            raise LedgerError(f"{named} was tampered with or damaged: {error}; restore a copy") from None
        except sqlite3.Error as error:
            refusal = _REFUSALS.get(_code(error), f"cannot be used ({error})")
            raise LedgerError(f"{named} {refusal.replace('{timeout}', f'{self.timeout:g}')}") from error
        except UnicodeDecodeError as error:  # SQLite quotes the damaged text in its message
            raise LedgerError(f"{named} {_REFUSALS[sqlite3.SQLITE_CORRUPT]}") from error
        except OSError as error:
            raise LedgerError(f"{named} cannot be used ({error.strerror}); check the folder and its rights") from error


@contextmanager
def _closed_on_failure(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where Python raised by itself."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
