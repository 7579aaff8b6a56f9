"""Releases in files: one format, with a kind in its header and a codec for every kind.

Nothing in a file is executed, and what is not a release that hangs together is refused.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp import archive
from batchdp.errors import ReleaseError
from batchdp.release.certificate import PrivacyCertificate, packed

FORMAT = "batchdp-release-0.3"
MOST_COMPRESSED = 10_000_000
"""Bytes of numbers; most of them are noise, which does not shrink."""

Header = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
Encoded = tuple[dict[str, Any], dict[str, Any]]
"""What a kind of release is: a header with its `kind`, and arrays."""
Decode = Callable[[Header, Arrays, PrivacyCertificate, float, int | None], Any]
DECODERS: dict[str, Decode] = {}
"""By the kind in a file's header; each codec adds its own."""


@singledispatch
def encode(release: Any) -> Encoded:
    """A release as a header and arrays; each kind registers its own."""
    raise TypeError(f"nothing says how a {type(release).__name__} is saved")


def save_release(release: Any, path: str | os.PathLike[str]) -> None:
    """One file without pickle, under a digest, in one piece or not at all."""
    header, arrays = _written(release)
    few = sum(one.nbytes for one in arrays.values()) <= MOST_COMPRESSED
    archive.save(path, header, arrays, ReleaseError, compressed=few)


def _written(release: Any) -> Encoded:
    """What a release's file holds: a header and arrays."""
    own, arrays = encode(release)
    header = {"format": FORMAT, **own, "confidence": release.confidence, "certificate": release.certificate.header()}
    return header, {**arrays, "groups": np.frombuffer(packed(release.certificate.groups), dtype=np.uint8)}


def load_release(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Any:
    """A release that was saved; nothing in the file is executed, and its figures must not contradict each other.

    Returns: a `Release`, or a `TableRelease` where that was saved.

    Args:
        path: of the file.
        most_bytes: what it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    from batchdp.release.verify import check_release

    header, arrays = archive.load(path, FORMAT, ReleaseError, "release", most_bytes)
    try:
        decode = DECODERS.get(header["kind"])
        if decode is None:
            raise ReleaseError(f"kind={header['kind']!r} is not one of {', '.join(DECODERS)}")
        certificate = PrivacyCertificate.read(header["certificate"], arrays["groups"].tobytes())
        release = decode(header, arrays, certificate, float(header["confidence"]), most_bytes)
        check_release(release)
        archive.check_known(header, arrays, *_written(release))
        return release
    except (ReleaseError, archive.UnknownPartError) as error:
        raise ReleaseError(f"{path} cannot be used: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise ReleaseError(f"{path} is not a release, or is damaged ({type(error).__name__})") from error


def unknown_parts(path: str | os.PathLike[str], release: Any) -> list[str]:
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
