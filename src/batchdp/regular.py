"""Opening what users name: regular files only, for a device or a pipe may never end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from batchdp.errors import BatchDPError

NOT_REGULAR = "It is a device, a pipe or a socket, not a regular file"


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """The file, open for reading; an OSError says so where it is not a file with an end."""
    place = Path(path)
    _check(place.stat())  # first, since opening some devices does something
    with open(place, "rb", opener=_open_unwaiting) as file:
        _check(os.fstat(file.fileno()))
        yield file


def read_text(path: str | os.PathLike[str], named: str, largest: int, advice: str, error: type[BatchDPError]) -> str:
    """The text in UTF-8 of a file of at most `largest` bytes; an `error` says what is wrong with it otherwise.

    Args:
        path: the file.
        named: what errors call it, such as "the domain file ".
        largest: bytes that are read at most.
        advice: what to do about a larger file.
        error: the kind of error.
    """
    try:
        with open_regular(path) as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as problem:
        raise error(f"cannot read {named}{path}: {getattr(problem, 'strerror', None) or problem}") from problem
    if len(content) > largest:
        size = f"{largest // 10**6} MB" if largest >= 10**6 else f"{largest // 1000} kB"
        raise error(f"{path} is larger than {size}; {advice}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{path} is not a text in UTF-8 ({problem.reason} at byte {problem.start})") from problem


def _open_unwaiting(path: str, flags: int) -> int:
    """Without waiting for somebody to write, where the file has become a pipe meanwhile."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check(status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a folder has an error of its own
        raise OSError(None, NOT_REGULAR)
