"""The files of a folder and their digests; links, devices and paths that lead out of it are refused."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from batchdp.archive import open_regular
from batchdp.errors import DossierError

LINE = re.compile(r"([0-9a-f]{64})  ([^\n\r\0]{1,1000})")
LARGEST_LIST = 100_000_000
"""Bytes."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_in(folder: Path) -> Iterator[str]:
    """Every file by its path in the folder; links, devices and empty folders are refused."""
    for place, folders, names in os.walk(folder, followlinks=False, onerror=_refused):
        if not folders and not names:
            raise DossierError(f"{place} is an empty folder, which no dossier holds")
        for name in (*folders, *names):
            path = Path(place) / name
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise DossierError(f"{path} is a link or a device, which no dossier holds")
            if stat.S_ISREG(mode):
                yield path.relative_to(folder).as_posix()


def read_sums(path: Path) -> dict[str, str]:
    """The list of digests, by path."""
    found: dict[str, str] = {}
    for line in read_text(path, LARGEST_LIST).splitlines():
        fits = LINE.fullmatch(line)
        if fits is None or fits[2] in found:
            raise DossierError(f"{path} is not a list of digests, or names a file twice")
        found[fits[2]] = fits[1]
    return found


def read_text(path: Path, most: int) -> str:
    """A text of a limited length."""
    try:
        if path.is_symlink() or not path.is_file():
            raise DossierError(f"{path} is missing: the folder is not a dossier, or was never finished")
        with open_regular(path) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise DossierError(f"{path} is larger than {most:,} bytes, which no dossier needs")
        return content.decode()
    except OSError as error:
        raise DossierError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DossierError(f"{path} is not a text in UTF-8; it was edited") from error


def _refused(error: OSError) -> None:
    raise DossierError(f"cannot read {error.filename}: {error.strerror or error}") from error
