"""A release as the ledger keeps it: a line of JSON, the list of groups, the noisy integers, and what they answered.

Answers and their standard errors follow from the measurements, but for the last bits, which differ from one processor
to the next: a repeat gives those that were given first, and a release that reads its measurements otherwise is told.
Of very many answers the measurements alone are kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchdp.errors import LedgerError, ReleaseError
from batchdp.mechanism.measurement import Dense, Integers
from batchdp.release.certificate import PrivacyCertificate, packed

FORMAT = "batchdp-output-5"
BEGINNING = f'{{"format": "{FORMAT}"'.encode()
LONGEST_HEADER = 1_000_000
MOST_KEPT = 1_000_000
"""Answers that are kept beside the measurements."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What a ledger has of a release."""

    certificate: PrivacyCertificate
    noisy: Integers
    """Measurements with their noise, as public as the answers."""
    values: Dense | None = None
    """The answers; None where they are too many, as with the next."""
    standard_errors: Dense | None = None


def encoded(stored: Stored) -> bytes:
    """What `Ledger.complete` stores."""
    groups = packed(stored.certificate.groups)
    kept = [] if stored.values is None or stored.standard_errors is None else [stored.values, stored.standard_errors]
    header = {
        "format": FORMAT,
        "certificate": stored.certificate.header(),
        "groups": len(groups),
        "noisy": len(stored.noisy),
        "answers": len(kept[0]) if kept else None,
    }
    numbers = [np.ascontiguousarray(one, dtype="<f8").tobytes() for one in kept]
    noisy = np.ascontiguousarray(stored.noisy, dtype="<i8").tobytes()
    return b"".join((json.dumps(header).encode(), b"\n", groups, noisy, *numbers))


def is_encoded(output: bytes) -> bool:
    """Whether an output is a release of this version, and not an earlier one's or somebody's own."""
    return output.startswith(BEGINNING)


def decoded(output: bytes, release_id: str) -> Stored:
    """What was stored; refused if it is anything else, for whoever can write to a ledger can put anything there."""
    try:
        end = output.index(b"\n", 0, LONGEST_HEADER)
        header: Any = json.loads(output[:end])
        if set(header) != {"format", "certificate", "groups", "noisy", "answers"} or header["format"] != FORMAT:
            raise ValueError("another format")
        groups, noisy, answers = header["groups"], header["noisy"], header["answers"]
        start, m = end + 1 + groups, 0 if answers is None else answers
        if min(groups, noisy, m) < 0 or len(output) != start + 8 * (noisy + 2 * m):
            raise ValueError("another length")
        certificate = PrivacyCertificate.read(header["certificate"], output[end + 1 : start])
        found = np.frombuffer(output, dtype="<i8", offset=start, count=noisy).astype(np.int64)
        if answers is None:
            return Stored(certificate, found)
        numbers = np.frombuffer(output, dtype="<f8", offset=start + 8 * noisy).astype(np.float64)
        if not np.all(np.isfinite(numbers)):
            raise ValueError("no answers")
        return Stored(certificate, found, numbers[:m], numbers[m:])
    except (ReleaseError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LedgerError(
            f"release_id={release_id!r}: what the ledger has stored is not a release of this version "
            f"({type(error).__name__}); choose a new release_id"
        ) from error
