"""A release as the ledger keeps it: a line of JSON, the list of groups, the noisy integers, and what they answered.

Answers and their standard errors follow from the measurements, but for the last bits, which differ from one processor
to the next: a repeat gives those that were given first, and a release that reads its measurements otherwise is told.
Of very many answers the measurements alone are kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp import archive
from batchdp.errors import LedgerError, ReleaseError
from batchdp.mechanism.measurement import Dense
from batchdp.privacy import KNorm
from batchdp.release.certificate import PrivacyCertificate, packed

FORMAT = "batchdp-output-0.3"
BEGINNING = f'{{"format": "{FORMAT}"'.encode()
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
    """What `Ledger.complete` stores."""
    groups, wide = packed(stored.certificate.groups), stored.noisy.dtype == object
    noisy = whole_bytes(stored.noisy)
    kept = [] if stored.values is None or stored.standard_errors is None else [stored.values, stored.standard_errors]
    header = {
        "format": FORMAT,
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
        if set(header) != {"format", "certificate", "groups", "noisy", "wide", "answers"} or header["format"] != FORMAT:
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
