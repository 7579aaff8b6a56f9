"""What keeps a paid release from being lost: Ctrl-C waits until it is stored, and the disk has room for it."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from batchdp.errors import LedgerError


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block ends; then it counts. Only the main thread is ever interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and callable(before):
        before(*came[0])


@contextmanager
def room_on_disk(ledger: Path, size: int) -> Iterator[Callable[[], None]]:
    """Take so many bytes beside the ledger, refused where there are not as many; given back when called, or at the end.

    A full disk is then noticed before anything is charged.
    """
    path = ledger.with_name(f".{ledger.name}.{secrets.token_hex(8)}.room")

    def give_back() -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)

    try:
        with path.open("xb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            else:
                file.write(b"\0" * size)
    except OSError as error:
        give_back()
        raise LedgerError(
            f"the output needs {size / 1e6:,.0f} MB beside {str(ledger)!r} ({error.strerror or error}); nothing was "
            "charged: free some space"
        ) from error
    try:
        yield give_back
    finally:
        give_back()
