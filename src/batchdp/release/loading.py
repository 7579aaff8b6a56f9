"""Releases from files: whatever is not a release that hangs together is refused."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from batchdp import archive
from batchdp.derived.expressions import read
from batchdp.errors import ReleaseError
from batchdp.measuring.law import NoiseLaw
from batchdp.measuring.shaping.law import ShapedLaw
from batchdp.privacy import NOISES
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.claims import check_release
from batchdp.release.components.file import FORMAT as TABLES
from batchdp.release.components.file import load_tables
from batchdp.release.records import FORMAT, FORMAT_DERIVED, Release, content_of
from batchdp.strategies.shape import Shape


def load_release(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Any:
    """A release that was saved; nothing in the file is executed, and its figures must not contradict each other.

    Returns: a `Release`, or a `TableRelease` where that was saved.

    Args:
        path: of the file.
        most_bytes: what it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    if archive.format_of(path) == TABLES:
        return load_tables(path, most_bytes)
    derived = archive.format_of(path) == FORMAT_DERIVED
    header, arrays = archive.load(path, FORMAT_DERIVED if derived else FORMAT, ReleaseError, "release", most_bytes)
    try:
        names = header["names"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ReleaseError("names must be texts")
        if header["privacy"] not in NOISES:
            raise ReleaseError(f"privacy must be one of {', '.join(NOISES)}")
        law = NoiseLaw(archive.whole("B", arrays, most_bytes), float(header["scale"]), header["privacy"])
        if "shape" in header:
            shape = Shape.read(header["shape"], lambda name: archive.numbers(name, arrays))
            law = ShapedLaw(law.reconstruct, law.scale, law.privacy, shape)
        release = Release(
            names=tuple(names),
            values=archive.numbers("values", arrays),
            law=law,
            measurements=archive.numbers("measurements", arrays),
            measure=sparse.csr_array(archive.whole("L", arrays, most_bytes)),
            workload=sparse.csr_array(archive.whole("W", arrays, most_bytes)),
            certificate=PrivacyCertificate.read(header["certificate"]),
            confidence=float(header["confidence"]),
            asked=read(header["asked"], len(names)) if derived else (),
        )
        check_release(release)
        archive.check_known(header, arrays, *content_of(release))
        return release
    except (ReleaseError, archive.UnknownPartError) as error:
        raise ReleaseError(f"{path} cannot be used: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise ReleaseError(f"{path} is not a release, or is damaged ({type(error).__name__})") from error


def unknown_parts(path: str | os.PathLike[str], release: Any) -> list[str]:
    """What a file holds beside, or otherwise than, what the release that was loaded from it would be saved as."""
    form = str(archive.format_of(path))
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again"
        release.save(again)
        if again.read_bytes() == Path(path).read_bytes():
            return []
        size = sum(one.stat().st_size for one in (Path(path), again))
        most = archive.allowance(size)
        header, arrays = archive.load(path, form, ReleaseError, "release", most)
        expected, numbers = archive.load(again, str(archive.format_of(again)), ReleaseError, "release", most)
    others = [name for name, value in header.items() if name not in expected or expected[name] != value]
    return others + [
        name for name, one in arrays.items() if name not in numbers or not np.array_equal(one, numbers[name])
    ]
