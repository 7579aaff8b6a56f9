"""CSV records: bytes to columns of text, by rules that leave every record alone with its own bytes.

A quotation mark opens a field only at its start, two of them in a quoted field are one, and a line feed outside quotes
ends a record; nothing else does. The file is read from its start to its end, never from the middle, so no line has to
be guessed to be the first of a record. A carriage return belongs to the line's end where the header ends with one.

Fields are found with NumPy and cut out with Arrow's kernels. Where a quotation mark stands where a writer would not put
it, the same rules are applied field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

BLOCK = 2**22
"""Bytes that are read at a time."""
MOST = 2**31 - 1
"""Beyond every position in a block."""
LONGEST_RECORD = 2**24
"""A record of more bytes is left out; it is the only one that this touches."""

QUOTE, LINE_FEED, RETURN = b'"'[0], b"\n"[0], b"\r"[0]
Marks = npt.NDArray[np.int64]
"""Positions of the delimiters and line feeds outside quotes."""


@dataclass(frozen=True)
class Layout:
    """What the header says about all lines."""

    delimiter: str
    width: int
    """How many fields a record has."""
    returns: bool
    """Whether lines end with a carriage return before the line feed."""


def read_records(file: BinaryIO, layout: Layout, wanted: Sequence[int]) -> Iterator[list[Any]]:
    """The wanted fields of all records as Arrow arrays of bytes, block by block; an empty field is NULL.

    The file stands behind its header. Records of fewer fields than the header are left out; more are ignored.
    """
    rest = b""
    while block := file.read(BLOCK):
        rest += block
        marks = _find_marks(rest, layout)
        lines = marks[_bytes(rest)[marks] == LINE_FEED]
        if len(lines):
            end = int(lines[-1]) + 1
            yield _cut_fields(rest[:end], marks[: np.searchsorted(marks, end)], layout, wanted)
            rest = rest[end:]
        elif len(rest) > LONGEST_RECORD:
            rest = _skip_record(rest, file, layout)
    if rest:  # the last line may lack its end
        rest += b"\r\n" if layout.returns else b"\n"
        marks = _find_marks(rest, layout)
        lines = marks[_bytes(rest)[marks] == LINE_FEED]
        if len(lines):  # what an open quotation mark at the end swallows stands behind them
            end = int(lines[-1]) + 1
            yield _cut_fields(rest[:end], marks[: np.searchsorted(marks, end)], layout, wanted)


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


# ── where fields end ──


def _find_marks(data: bytes, layout: Layout) -> Marks:
    a = _bytes(data)
    marks = np.flatnonzero((a == ord(layout.delimiter)) | (a == LINE_FEED))
    if b'"' not in data:
        return marks
    quotes = np.flatnonzero(a == QUOTE)
    outside = marks[np.searchsorted(quotes, marks) % 2 == 0]
    lines = outside[a[outside] == LINE_FEED]
    if len(lines) and _is_well_formed(a, quotes[: np.searchsorted(quotes, lines[-1])], layout):
        complete: Marks = outside[outside <= lines[-1]]
        return complete
    return _find_marks_slowly(data, layout)


def _is_well_formed(a: npt.NDArray[np.uint8], quotes: Marks, layout: Layout) -> bool:
    """Whether every other quotation mark opens a field at its start, and the ones between end it, or are doubled."""
    opening, closing = quotes[::2], quotes[1::2]
    ends = [ord(layout.delimiter), LINE_FEED]
    before = a[np.maximum(opening - 1, 0)]
    doubled = np.zeros(len(opening), bool)
    doubled[1:] = opening[1:] == closing[:-1] + 1
    opens = np.isin(before, ends) | doubled | (opening == 0)
    behind = a[closing + 1]
    closes = np.isin(behind, [*ends, QUOTE])
    if layout.returns:  # a record ends behind the last of these, so that there are two more bytes
        closes |= (behind == RETURN) & (a[np.minimum(closing + 2, len(a) - 1)] == LINE_FEED)
    return bool(opens.all() and closes.all())


def _find_marks_slowly(data: bytes, layout: Layout) -> Marks:
    delimiter = re.escape(layout.delimiter.encode())
    field = re.compile(rb'(?>"[^"]*(?:""[^"]*)*+(?:"|\Z))?+[^' + delimiter + rb"\n]*[" + delimiter + rb"\n]")
    found, place = [], 0
    while one := field.match(data, place):
        place = one.end()
        found.append(place - 1)
    return np.array(found, np.int64)


def _skip_record(data: bytes, file: BinaryIO, layout: Layout) -> bytes:
    """What follows the record that `data` is the beginning of."""
    delimiter = re.escape(layout.delimiter.encode())
    closing = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')
    turning = re.compile(rb"\n|" + delimiter + rb'"')
    quoted, place = data.startswith(b'"'), int(data.startswith(b'"'))
    while True:
        one = closing.match(data, place) if quoted else turning.search(data, place)
        if one is not None and not (quoted and one.end() == len(data)):
            place = one.end()
            if data[place - 1] == LINE_FEED and not quoted:
                return data[place:]
            quoted = not quoted
            continue
        # A quotation mark or delimiter at the end may be half of what is looked for.
        behind = data[place:]
        held = (
            (len(behind) - len(behind.rstrip(b'"'))) % 2 if quoted else int(behind.endswith(layout.delimiter.encode()))
        )
        block = file.read(BLOCK)
        if not block:
            return b""
        data, place = behind[len(behind) - held :] + block, 0


# ── cutting them out ──


def _cut_fields(data: bytes, marks: Marks, layout: Layout, wanted: Sequence[int]) -> list[Any]:
    """Whole records, from their marks."""
    last = np.flatnonzero(_bytes(data)[marks] == LINE_FEED)
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = marks[last] - np.concatenate([[0], marks[last[:-1]] + 1])
    complete = (last - first + 1 >= layout.width) & (lengths <= LONGEST_RECORD)
    if layout.width == 1:
        complete &= lengths > int(layout.returns)  # an empty line is no record
    first, last = first[complete], last[complete]
    # Everything between two marks, with the mark before it (the very first gets one).
    offsets = np.concatenate([[0], marks + 1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"\n" + data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(marks), buffers)
    found = []
    for place in wanted:
        field = pc.binary_slice(pieces.take(pa.array(first + place)), 1, MOST)
        if layout.returns and place == layout.width - 1:
            field = pc.if_else(
                pc.and_(pa.array(first + place == last), _ends_with(field, b"\r")), _cut(field, 0), field
            )
        if b'"' in data:
            quoted = pc.and_(_ends_with(field, b'"'), pc.greater(pc.binary_length(field), 1))
            quoted = pc.and_(pc.starts_with(field, b'"'), quoted)
            inner = pc.replace_substring(_cut(field, 1), b'""', b'"')
            field = pc.if_else(quoted, inner, field)
        found.append(pc.if_else(pc.equal(pc.binary_length(field), 0), pa.scalar(None, pa.binary()), field))
    return found


def _ends_with(field: Any, end: bytes) -> Any:
    return pc.ends_with(field, end)


def _cut(field: Any, start: int) -> Any:
    """Without the last byte, from `start` on."""
    return pc.binary_slice(field, start, -1)
