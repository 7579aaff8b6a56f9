"""Outputs too large for a row of the ledger: files in a folder beside it, on the disk before the ledger mentions them.

A file is named by the SHA-256 of what it holds, and the ledger's entry has that and the length in its hash: a file that
is missing or altered is noticed, and its release is refused, never drawn again. One whose release was interrupted
between file and entry stays there unused; it was shown to nobody.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from batchdp.errors import LedgerError
from batchdp.ledger.chain import Event
from batchdp.ledger.syncing import sync_folder
from batchdp.regular import opened

LARGEST_ROW = 1_000_000
"""Bytes of an output that is kept in the ledger itself."""
CHUNK = 2**20


def folder_of(ledger: Path) -> Path:
    """Where the large outputs of a ledger are."""
    return ledger.with_name(f"{ledger.name}.outputs")


def store(ledger: Path, output: bytes) -> None:
    """Write an output beside the ledger; it and its name are on the disk when this returns."""
    folder = folder_of(ledger)
    target = folder / _name(hashlib.sha256(output).hexdigest())
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync_folder(ledger.parent)
        with beside.open("xb") as file:
            file.write(output)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
        sync_folder(folder)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise LedgerError(
            f"the output cannot be written to {str(folder)!r} ({error.strerror or error}); "
            "free some space or check the folder's rights"
        ) from error


def load(ledger: Path, event: Event) -> bytes:
    """The output of an entry that has it beside the ledger, if it still is what was written."""
    path = folder_of(ledger) / _name(event.output_sha256)
    try:
        with opened(path) as file:
            if os.fstat(file.fileno()).st_size != event.output_bytes:  # before so much is read
                raise _refusal(event, path, "has another length than it was written with")
            output = file.read()
    except OSError as error:
        raise _refusal(event, path, f"cannot be read ({error.strerror or error})") from error
    if hashlib.sha256(output).hexdigest() != event.output_sha256:
        raise _refusal(event, path, "was changed after it was written")
    return output


def is_here(ledger: Path, event: Event) -> bool:
    """Whether the output of an entry can be looked for: it is in the ledger, or its file exists."""
    return event.output_bytes is None or (folder_of(ledger) / _name(event.output_sha256)).exists()


def digest(ledger: Path, event: Event) -> str:
    """The SHA-256 of what is in the file now; as the entry says where there is no file, as in a copy of the ledger."""
    found = hashlib.sha256()
    try:
        with opened(folder_of(ledger) / _name(event.output_sha256)) as file:
            while chunk := file.read(CHUNK):
                found.update(chunk)
    except FileNotFoundError:
        return event.output_sha256
    return found.hexdigest()


def _name(output_sha256: str) -> str:
    if len(output_sha256) != 64 or set(output_sha256) - set("0123456789abcdef"):  # a forged entry could name any file
        raise LedgerError(f"output_sha256={output_sha256[:80]!r} is no digest; the ledger was forged")
    return f"{output_sha256}.output"


def _refusal(event: Event, path: Path, problem: str) -> LedgerError:
    return LedgerError(
        f"release_id={event.release_id!r} was released, but its output {problem}: {str(path)!r}; bring that file back. "
        "It is not drawn again, and its budget stays spent"
    )
