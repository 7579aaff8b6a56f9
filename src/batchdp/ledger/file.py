"""The SQLite file behind a ledger: one short connection per operation, one transaction each, one sentence per error.

Nothing stays open between operations, so threads share nothing and a ledger that is dropped without being closed holds
no lock. What was promised is in the one file at every moment: with a rollback journal, a commit has written to the file
itself when it returns; the journal beside it only takes back what was not finished.

A fork waits for the operation that is under way: SQLite's record of this process's locks, copied to a child, would be
wrong there. For the same reason the file is opened by SQLite alone, but where a log lies beside it or it is read-only:
closing any other handle to it would drop the locks.
"""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from batchdp.errors import LedgerError
from batchdp.ledger.books import (
    EARLIER,
    VERSION,
    Books,
    carry_over,
    create_schema,
    difference_from_schema,
    schema_version,
)
from batchdp.ledger.chain import BrokenChainError, Event


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk when this returns, where the system can say so."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ONE_AT_A_TIME = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_ONE_AT_A_TIME.acquire, after_in_parent=_ONE_AT_A_TIME.release, after_in_child=_ONE_AT_A_TIME.release
    )

LOGGED = b"\2\2"
"""Bytes 18 and 19 of an SQLite file in write-ahead mode."""
_LOCKED = "is locked by another process; try again, or wait longer than timeout={timeout} seconds"
_INTERRUPTED = "was being written to when its writer was stopped; open it once as a user who may write to it"
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
        with self._explain(), _ONE_AT_A_TIME, self._new_file(), self._connect() as new, self._transaction(new):
            create_schema(new)
            Books(new).append(first)

    def carry_over(self, new: LedgerFile, check: Callable[[Books], None], *, again: bool = False) -> None:
        """Make a new file with every entry of this one, which is of an earlier version and then marked as spent.

        Both change in one transaction, whose two journals SQLite ties together: whoever is killed, at every moment
        this file is as it was and the other is no ledger, or the other has all and this one says so.

        Args:
            new: where there is no file yet.
            check: looks at the new entries before anything counts, and may add one.
            again: this file may also be of the present version.
        """
        with self._explain(), _ONE_AT_A_TIME:
            self._look(writable=True)
            self._convert(again=again)
            with new._new_file(), new._open() as connection:
                connection.execute("ATTACH ? AS old", (f"{self.path.as_uri()}?mode=rw",))
                connection.execute("PRAGMA old.synchronous = EXTRA")
                with self._transaction(connection):
                    modes = {
                        connection.execute(f"PRAGMA {name}.journal_mode").fetchone()[0] for name in ("main", "old")
                    }
                    if modes != {"delete"}:  # else a crash could finish one file alone
                        raise LedgerError(f"{self._named} {_LOCKED.format(timeout=f'{self.timeout:g}')}")
                    self._recognise(connection, earlier="old", again=again)
                    carry_over(connection, str(new.path))
                    check(Books(connection))

    @contextmanager
    def writing(self) -> Iterator[Books]:
        """One immediate transaction: no other process writes meanwhile; on the disk when the block is left."""
        with self._explain(), _ONE_AT_A_TIME:
            self._look(writable=True)
            with self._connect() as connection, self._transaction(connection):
                self._recognise(connection)
                yield Books(connection)

    @contextmanager
    def reading(self) -> Iterator[Books]:
        """One consistent view of the entries."""
        with self._explain(), _ONE_AT_A_TIME:
            self._look()
            with self._connect() as connection:
                connection.execute("BEGIN")
                self._recognise(connection)
                yield Books(connection)

    @contextmanager
    def _new_file(self) -> Iterator[None]:
        """An empty file, which is gone again if the block fails and leaves it so."""
        named = self._named
        with self._explain():
            for beside in (self._beside("-journal"), self._beside("-wal")):
                if beside.exists():  # SQLite would delete it, or write what it holds into the new file
                    raise LedgerError(
                        f"{named}: {beside.name} lies beside it, left by another ledger of that name; "
                        "it belongs beside that one, wherever it is now; choose another name"
                    )
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
            except FileExistsError:
                raise LedgerError(f"{named} exists already; open it, or choose another name") from None
        try:
            sync_folder(self.path.parent)  # else the file itself may be gone after a power failure
            yield
        except BaseException:
            with suppress(OSError):
                if self.path.stat().st_size == 0:  # else what was to be done is done
                    self.path.unlink()
            raise

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        writable = self._writable()
        if not writable and self._logged():  # to which even a reader adds two files, its own, and locks the owner out
            raise LedgerError(f"{self._named} {EARLIER}")
        with self._open("rw" if writable else "ro") as connection:
            if writable and connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                raise LedgerError(f"{self._named} {EARLIER}")
            yield connection

    @contextmanager
    def _open(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        address = f"{self.path.as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, uri=True, timeout=self.timeout, isolation_level=None)) as connection:
            # A commit returns when the disk has it; EXTRA: and has forgotten the journal, which would take it back.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")  # which on macOS takes more than fsync
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            yield connection

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        # The same short pauses for all who wait for the lock; SQLite's grow, so that who waits long waits longer.
        connection.execute("PRAGMA busy_timeout = 0")
        self._wait_for(lambda: connection.execute("BEGIN IMMEDIATE"))
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * self.timeout)}")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _convert(self, *, again: bool) -> None:
        """From a write-ahead log, which holds nothing, to a journal; SQLite does not wait for others that use it."""

        def convert() -> None:
            with self._open() as connection:
                self._recognise(connection, earlier="main", again=again)
                connection.execute("PRAGMA journal_mode = DELETE")

        self._wait_for(convert)

    def _wait_for(self, action: Callable[[], object]) -> None:
        """Try again while another process has the file, until the time is over."""
        patience = time.monotonic() + self.timeout
        while True:
            try:
                action()
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > patience:
                    raise
                time.sleep(random.uniform(0.0005, 0.005))

    def _writable(self) -> bool:
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _beside(self, ending: str) -> Path:
        return Path(f"{self.path}{ending}")

    @property
    def _named(self) -> str:
        return f"path={str(self.path)!r}"

    def _look(self, *, writable: bool = False) -> None:
        """What SQLite would not say, or say unclearly."""
        named = self._named
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise LedgerError(f"{named} does not exist; create it with Ledger.create") from None
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{named} is not a file; give the ledger's file")
        if status.st_size == 0:
            raise LedgerError(f"{named} is empty, not a ledger; restore a copy, or delete it and create a new one")
        if status.st_nlink > 1:  # each name would have its own journal, and a crash would tear the file
            raise LedgerError(f"{named} has {status.st_nlink} names (hard links), which SQLite cannot share; keep one")
        wal = self._beside("-wal")
        if wal.exists() and wal.stat().st_size:
            if not self._logged():  # SQLite would write what it holds into this ledger
                raise LedgerError(f"{named}: {wal.name} lies beside it and is not its own; move that file away")
            raise LedgerError(  # SQLite reads a log as far as it is whole, and does not say where it stopped
                f"{named}: its last spends are in {wal.name}; open it once with batchdp 0.2, which checks them and "
                "takes them into the file; then carry it over with `batchdp budget OLD --migrate NEW`"
            )
        if writable and not self._writable():
            raise LedgerError(f"{named} {_REFUSALS[sqlite3.SQLITE_READONLY]}")

    def _logged(self) -> bool:
        """Whether the ledger is in write-ahead mode, as those of version 0.1 are."""
        with self.path.open("rb") as file:
            return file.read(20)[18:] == LOGGED

    def _recognise(self, connection: sqlite3.Connection, *, earlier: str | None = None, again: bool = False) -> None:
        """Refuse what is no ledger of this version; or in the database `earlier`, of an earlier one, or of any."""
        database = earlier or "main"
        difference = difference_from_schema(connection, database)
        if (
            difference is None
            and not again
            and (schema_version(connection, database) == VERSION) == (earlier is not None)
        ):
            difference = EARLIER if earlier is None else "is a ledger of this version already; use it as it is"
        if difference is not None:
            raise LedgerError(f"{self._named} {difference}")

    @contextmanager
    def _explain(self) -> Iterator[None]:
        named = self._named
        try:
            yield
        except BrokenChainError as error:
            raise LedgerError(f"{named} was tampered with or damaged: {error}; restore a copy") from None
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK:
                raise LedgerError(f"{named} {_INTERRUPTED}") from error
            refusal = _REFUSALS.get(_code(error), f"cannot be used ({error})")
            raise LedgerError(f"{named} {refusal.replace('{timeout}', f'{self.timeout:g}')}") from error
        except UnicodeDecodeError as error:  # SQLite quotes the damaged text in its message
            raise LedgerError(f"{named} {_REFUSALS[sqlite3.SQLITE_CORRUPT]}") from error
        except OSError as error:
            raise LedgerError(f"{named} cannot be used ({error.strerror}); check the folder and its rights") from error


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where Python raised by itself."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
