"""Releases in files: one format, with a codec for every kind of reader, whose name is in the header.

Nothing in a file is executed, and what is not a release that hangs together is refused.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp import archive
from batchdp.asking import Legend, read_runs
from batchdp.derived import expressions
from batchdp.derived.expressions import Asked
from batchdp.domain import Counted
from batchdp.errors import ReleaseError
from batchdp.mechanism.reader import Reader
from batchdp.release.certificate import PrivacyCertificate, packed
from batchdp.release.components.arrays import whole_numbers
from batchdp.release.store import whole_bytes, wide_numbers

if TYPE_CHECKING:
    from batchdp.release.records import Release

FORMAT = "batchdp-release-0.3"
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
    """What a release's file holds: a header and arrays."""
    own, arrays = encode(release.reader)
    wide = release.noisy.dtype == object
    noisy = whole_bytes(release.noisy)
    arrays |= {"noisy": np.frombuffer(noisy, dtype=np.uint8 if wide else "<i8")}
    if release.legend is not None:
        arrays["legend"] = release.legend.axes
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
    """A release that was saved; nothing in the file is executed, and its figures must not contradict each other.

    Args:
        path: of the file.
        most_bytes: what it may unpack to; if left out, 64 MiB and eight times its own size.
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
    """What a file says."""
    from batchdp.release.records import Release

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
    if header["asked"]:
        by_runs = reader.names is None and legend is not None
        asked = (
            read_runs(header["asked"], workload, legend)
            if by_runs and legend is not None
            else expressions.read(header["asked"], reader.answers)
        )
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
    )


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
    return others + [
        name for name, one in arrays.items() if name not in numbers or not np.array_equal(one, numbers[name])
    ]
