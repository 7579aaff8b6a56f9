"""The write-ahead log that version 0.1.0 may have left beside a ledger, looked at before SQLite reads it.

SQLite stops reading a log at the first frame that is damaged, without a word: the spends in it would be forgotten. What
a kill leaves behind is told apart from damage: a kill cuts the last transaction short, so that the frame that ends a
transaction is missing; where it is there, and something before it is wrong, the log is refused.

The format is SQLite's: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from pathlib import Path

MAGIC = 0x377F0682
"""The last bit says whether checksums read their words with the high byte first."""
HEADER, FRAME = 32, 24
LARGEST = 2**31
"""Bytes of a log that is looked at; SQLite writes a log back to its file after some 4 MB."""


def damage(log: Path) -> str | None:
    """What is wrong with a log, if anything is: spends may be missing then, and nobody can say which."""
    size = log.stat().st_size
    if size == 0:
        return None
    if size > LARGEST:
        return f"it holds {size:,} bytes"
    content = log.read_bytes()
    if len(content) < HEADER:
        return "its beginning is cut off"
    magic, _, page, _, *salts, first, second = struct.unpack(">8I", content[:HEADER])
    if magic & ~1 != MAGIC or not 512 <= page <= 65536:
        return "its beginning is not that of a log"
    order = ">" if magic & 1 else "<"
    sums = _checksum(content[: HEADER - 8], order, (0, 0))
    if sums != (first, second):
        return "its beginning was changed"
    broken = False
    for start in range(HEADER, len(content) - FRAME - page + 1, FRAME + page):
        _, commits, *found = struct.unpack(">6I", content[start : start + FRAME])
        if found[:2] != salts:
            broken = True  # what an earlier use of the log left, if nothing of this one follows
            continue
        if not broken:
            body = start + FRAME
            sums = _checksum(content[start : start + 8], order, sums)
            sums = _checksum(content[body : body + page], order, sums)
            broken = sums != tuple(found[2:])
        if broken and commits:
            return f"the frame at byte {start} or one before it was changed, and a whole transaction ends there"
    return None


def _checksum(content: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & 0xFFFFFFFF
        second = (second + words[i + 1] + first) & 0xFFFFFFFF
    return first, second
