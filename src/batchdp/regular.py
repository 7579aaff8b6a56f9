"""Opening what users name: regular files only, for a device or a pipe may never end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

NOT_REGULAR = "It is a device, a pipe or a socket, not a regular file"


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """The file, open for reading; an OSError says so where it is not a file with an end."""
    place = Path(path)
    _check(place.stat())  # first, since opening some devices does something
    with open(place, "rb", opener=_open_unwaiting) as file:
        _check(os.fstat(file.fileno()))
        yield file


def _open_unwaiting(path: str, flags: int) -> int:
    """Without waiting for somebody to write, where the file has become a pipe meanwhile."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check(status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a folder has an error of its own
        raise OSError(None, NOT_REGULAR)
