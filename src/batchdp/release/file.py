"""Releases in files: one format, with a codec for every kind of reader, whose name is in the header.

Nothing in a file is executed, and what is not a release that hangs together is refused.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp import archive
from batchdp.domain import Counted
from batchdp.errors import LedgerError, ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.reader import Reader
from batchdp.plans.source import Source
from batchdp.privacy import KNorm
from batchdp.queries import expressions
from batchdp.queries.expressions import Asked
from batchdp.queries.views import View
from batchdp.release.certificate import PrivacyCertificate, packed
from batchdp.workloads.encode import Legend, read_runs

if TYPE_CHECKING:
    from batchdp.release.release import Release


class Content:
    """Arrays of a file that are read from their beginnings, piece by piece: lists of whole or of finite numbers."""

    def __init__(self, arrays: Mapping[str, Any], *, whole: Sequence[str] = (), finite: Sequence[str] = ()) -> None:
        self._left = {name: whole_numbers(name, arrays) for name in whole}
        self._left |= {name: archive.read_numbers(name, arrays) for name in finite}

    def next(self, name: str, *shape: int) -> NDArray[Any]:
        """The next entries of an array, in this shape."""
        left, size = self._left[name], prod(shape)
        if min(shape, default=0) < 0 or size > len(left):
            raise ReleaseError("an array is shorter than it should be")
        self._left[name] = left[size:]
        return left[:size].reshape(shape)

    def check_ended(self) -> None:
        """Refuse what is left of any."""
        if any(len(left) for left in self._left.values()):
            raise ReleaseError("an array is longer than it should be")


def whole_numbers(name: str, arrays: Mapping[str, Any]) -> NDArray[np.int64]:
    """An array of them."""
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ReleaseError(f"{name} is not a list of whole numbers")
    return np.asarray(array, dtype=np.int64)


OUTPUT_FORMAT = "batchdp-output-0.3"
BEGINNING = f'{{"format": "{OUTPUT_FORMAT}"'.encode()
EARLIER = re.compile(rb'\{"(certificate"|format": "batchdp-output-[234]")')
"""How outputs of versions before 0.3 begin, in ledgers that were carried over."""
LONGEST_HEADER = 1_000_000
MOST_WIDE = 900
"""Bits of measurements that are not clamped: a float can hold them."""
MOST_KEPT = 1_000_000
"""Answers that are kept beside the measurements."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What a ledger has of a release."""

    certificate: PrivacyCertificate
    noisy: NDArray[Any]
    """Measurements with their noise, as public as the answers; in 64 bits where they fit."""
    values: Dense | None = None
    """The answers; None where they are too many, as with the next."""
    standard_errors: Dense | None = None


def encoded(stored: Stored) -> bytes:
    """The bytes that `Ledger.complete` stores."""
    groups, wide = packed(stored.certificate.groups), stored.noisy.dtype == object
    noisy = whole_bytes(stored.noisy)
    kept = [] if stored.values is None or stored.standard_errors is None else [stored.values, stored.standard_errors]
    header = {
        "format": OUTPUT_FORMAT,
        "certificate": stored.certificate.header(),
        "groups": len(groups),
        "noisy": len(noisy),
        "wide": wide,
        "answers": len(kept[0]) if kept else None,
    }
    numbers = [np.ascontiguousarray(one, dtype="<f8").tobytes() for one in kept]
    return b"".join((json.dumps(header).encode(), b"\n", groups, noisy, *numbers))


def is_encoded(output: bytes) -> bool:
    """Whether an output is a release of this version, and not an earlier one's or somebody's own."""
    return output.startswith(BEGINNING)


def decoded(output: bytes, release_id: str) -> Stored:
    """What was stored; refused if it is anything else, for whoever can write to a ledger can put anything there."""
    if EARLIER.match(output):  # it is paid for, and nothing else may be drawn under its id
        raise LedgerError(
            f"release_id={release_id!r} was released by a version before 0.3, and this one cannot read what is stored; "
            "its answers are in the file that was saved then, which batchdp 0.2 reads; choose a new release_id"
        )
    try:
        if not is_encoded(output):
            raise ValueError("another format")
        end = output.index(b"\n", 0, LONGEST_HEADER)
        header: Any = archive.parse_json(output[:end])
        if set(header) != {"format", "certificate", "groups", "noisy", "wide", "answers"}:
            raise ValueError("another format")
        groups, noisy, answers = header["groups"], header["noisy"], header["answers"]
        start, m = end + 1 + groups, 0 if answers is None else answers
        if min(groups, noisy, m) < 0 or len(output) != start + noisy + 16 * m:
            raise ValueError("another length")
        certificate = PrivacyCertificate.read(header["certificate"], output[end + 1 : start])
        content = output[start : start + noisy]
        found = wide_numbers(content) if header["wide"] else np.frombuffer(content, dtype="<i8").astype(np.int64)
        if header["wide"] and not isinstance(certificate.noise, KNorm):
            raise ValueError("numbers that are clamped before noise is added")
        if answers is None:
            return Stored(certificate, found)
        numbers = np.frombuffer(output, dtype="<f8", offset=start + noisy).astype(np.float64)
        if not np.all(np.isfinite(numbers)):
            raise ValueError("no answers")
        return Stored(certificate, found, numbers[:m], numbers[m:])
    except (ReleaseError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LedgerError(
            f"release_id={release_id!r}: what the ledger has stored is not a release of this version "
            f"({type(error).__name__}); choose a new release_id"
        ) from error


def whole_bytes(noisy: NDArray[Any]) -> bytes:
    """Noisy measurements: of 64 bits each, or a list in text."""
    return json.dumps(noisy.tolist()).encode() if noisy.dtype == object else noisy.astype("<i8").tobytes()


def wide_numbers(content: bytes) -> NDArray[Any]:
    """Whole numbers from a list in text, of any size that a float can hold."""
    found = json.loads(content)
    if not isinstance(found, list) or not all(type(z) is int and z.bit_length() <= MOST_WIDE for z in found):
        raise ValueError("no whole numbers")
    return np.array(found, dtype=object)


FORMAT = "batchdp-release-0.3"
COMBINED = "combined"
"""What a file calls a combination of releases."""
MOST_COMPRESSED = 10_000_000
"""Bytes of numbers; most of them are noise, which does not shrink."""

Header = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
Encoded = tuple[dict[str, Any], dict[str, Any]]
"""What a kind of reader is: a header with its `kind`, and arrays."""
Decode = Callable[[Header, Arrays, PrivacyCertificate, int | None], Reader]
DECODERS: dict[str, Decode] = {}
"""By the kind in a file's header; each codec adds its own."""


@singledispatch
def encode(reader: Any) -> Encoded:
    """How answers are read, as a header and arrays; each kind registers its own."""
    raise TypeError(f"nothing says how a {type(reader).__name__} is saved")


def save_release(release: Release, path: str | os.PathLike[str]) -> None:
    """One file without pickle, under a digest, in one piece or not at all."""
    header, arrays = _written(release)
    few = sum(one.nbytes for one in arrays.values()) <= MOST_COMPRESSED
    archive.save(path, header, arrays, ReleaseError, compressed=few)


def _written(release: Release) -> Encoded:
    """What a release's file holds: a header and arrays; of a combination its parts' files."""
    if release.parts:
        files = {f"part{i}": np.frombuffer(bytes_of(part), dtype=np.uint8) for i, part in enumerate(release.parts)}
        return {"format": FORMAT, "kind": COMBINED, "parts": len(files), "confidence": release.confidence}, files
    own, arrays = encode(release.reader)
    wide = release.noisy.dtype == object
    noisy = whole_bytes(release.noisy)
    arrays |= {"noisy": np.frombuffer(noisy, dtype=np.uint8 if wide else "<i8")}
    if release.legend is not None:
        arrays["legend"] = release.legend.axes
    if release.kinds is not None:
        arrays |= archive.split_matrix("kinds", release.kinds)
    if release.given is not None or release.reader.answers <= release.reader.most_read:
        arrays["values"] = release.linear_answers
    header = {
        "format": FORMAT,
        **own,
        **release.said.header(),
        "wide": wide,
        "confidence": release.confidence,
        "certificate": release.certificate.header(),
    }
    return header, {**arrays, "groups": np.frombuffer(packed(release.certificate.groups), dtype=np.uint8)}


def load_release(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Release:
    """Read a release that was saved. Nothing in the file is executed, and its figures must not contradict each other.

    Args:
        path: the file.
        most_bytes: the most that it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    from batchdp.release.verify import check_release

    header, arrays = archive.load(path, FORMAT, ReleaseError, "release", most_bytes)
    try:
        release = _read(header, arrays, most_bytes)
        check_release(release)
        archive.check_known(header, arrays, *_written(release))
        return release
    except (ReleaseError, archive.UnknownPartError) as error:
        raise ReleaseError(f"{path} cannot be used: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise ReleaseError(f"{path} is not a release, or is damaged ({type(error).__name__})") from error


def _read(header: Header, arrays: Arrays, most_bytes: int | None) -> Release:
    from batchdp.release.release import Release

    if header["kind"] == COMBINED:
        return _combined(header, arrays, most_bytes)
    decode = DECODERS.get(header["kind"])
    if decode is None:
        raise ReleaseError(f"kind={header['kind']!r} is not one of {', '.join(DECODERS)}")
    certificate = PrivacyCertificate.read(header["certificate"], arrays["groups"].tobytes())
    reader = decode(header, arrays, certificate, most_bytes)
    names, told = header["column_names"], header["legend"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ReleaseError("column_names must be texts")
    if header["wide"] and not certificate.shape:
        raise ReleaseError("numbers that are clamped before noise is added are not that large")
    noisy = wide_numbers(arrays["noisy"].tobytes()) if header["wide"] else whole_numbers("noisy", arrays)
    workload: Any = getattr(reader, "workload", None)
    legend = None if told is None else Legend.read(told, whole_numbers("legend", arrays), workload)
    asked: Sequence[Asked[int]] = ()
    if header["asked"] and reader.names is None and legend is not None:
        asked = read_runs(header["asked"], workload, legend)
    elif header["asked"]:
        asked = expressions.read(header["asked"], reader.answers)
    return Release(
        reader=reader,
        noisy=noisy,
        certificate=certificate,
        column_names=tuple(names),
        confidence=float(header["confidence"]),
        asked=asked,
        legend=legend,
        counted=None if header["counted"] is None else Counted.read(header["counted"]),
        given=np.asarray(archive.read_numbers("values", arrays), dtype=np.float64) if "values" in arrays else None,
        views=tuple(map(View.read, header.get("views", ()))),
        source=Source.read(header["source"]) if "source" in header else None,
        kinds=sparse.csr_array(archive.join_matrix("kinds", arrays, most_bytes)) if "kinds_data" in arrays else None,
    )


def _combined(header: Header, arrays: Arrays, most_bytes: int | None) -> Release:
    """Its parts, combined again."""
    from batchdp.release.combining import combine

    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(int(header["parts"])):
            path = Path(folder) / f"part {i + 1}"
            path.write_bytes(arrays[f"part{i}"].tobytes())
            parts.append(load_release(path, most_bytes=most_bytes))
    return combine(parts, confidence=float(header["confidence"]))


def bytes_of(release: Release) -> bytes:
    """The file of a release."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release"
        save_release(release, path)
        return path.read_bytes()


def unknown_parts(path: str | os.PathLike[str], release: Release) -> list[str]:
    """What a file holds beside, or otherwise than, what the release that was loaded from it would be saved as."""
    form = str(archive.read_format(path))
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again"
        release.save(again)
        if again.read_bytes() == Path(path).read_bytes():
            return []
        size = sum(one.stat().st_size for one in (Path(path), again))
        most = archive.allowance(size)
        header, arrays = archive.load(path, form, ReleaseError, "release", most)
        expected, numbers = archive.load(again, str(archive.read_format(again)), ReleaseError, "release", most)
    others = [name for name, value in header.items() if name not in expected or expected[name] != value]
    return others + [name for name in arrays if name not in numbers or not np.array_equal(arrays[name], numbers[name])]
