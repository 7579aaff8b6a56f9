"""What keeps a paid release from being lost: Ctrl-C waits until it is stored, and the disk has room for it."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from batchdp.errors import LedgerError


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block ends; then it counts. Only the main thread is ever interrupted."""
    foreign = signal.getsignal(signal.SIGINT) is None  # not Python's own, and could not be put back
    if foreign or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def room_on_disk(ledger: Path, size: int) -> Iterator[Callable[[], None]]:
    """Take so many bytes beside the ledger, refused where there are not as many; given back when called, or at the end.

    A full disk is then noticed before anything is charged.
    """
    path = ledger.with_name(f".{ledger.name}.{secrets.token_hex(8)}.room")
    with ExitStack() as taken:
        try:
            file = taken.enter_context(path.open("xb"))
            taken.callback(_remove, path)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            else:
                file.write(b"\0" * size)
            _remove(path)  # the room stays taken while the file is open, and no longer, even if this process is killed
        except OSError as error:
            raise LedgerError(
                f"the output needs {size / 1e6:,.0f} MB beside {str(ledger)!r} ({error.strerror or error}); nothing "
                "was charged: free some space"
            ) from error
        yield taken.close


def _remove(path: Path) -> None:
    with suppress(OSError):  # some systems remove no file that is open
        path.unlink(missing_ok=True)
