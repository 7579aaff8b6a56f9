"""A release as the ledger keeps it: the certificate as a line of JSON, the noisy measurements, what they answered.

Answers and their standard errors follow from the measurements, but for the last bits, which differ from one processor
to the next: a repeat gives those that were given first, and a release that reads its measurements otherwise is told.
Earlier versions stored no answers, and 0.1.0 one JSON object; both are read as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchdp.errors import LedgerError, ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.release.certificate import PrivacyCertificate

FORMAT, WITHOUT_ANSWERS = "batchdp-output-4", "batchdp-output-2"
LONGEST_HEADER = 1_000_000


@dataclass(frozen=True, eq=False)
class Stored:
    """What a ledger has of a release."""

    certificate: PrivacyCertificate
    measurements: Dense
    values: Dense | None = None
    """The answers; None where an earlier version stored the release, as with the next."""
    standard_errors: Dense | None = None


def encoded(certificate: PrivacyCertificate, measurements: Dense, values: Dense, standard_errors: Dense) -> bytes:
    """What `Ledger.complete` stores."""
    sizes = {"measurements": len(measurements), "answers": len(values)}
    header = {"format": FORMAT, "certificate": certificate.as_dict(), **sizes}
    numbers = np.concatenate((measurements, values, standard_errors))
    return json.dumps(header).encode() + b"\n" + numbers.astype("<f8").tobytes()


def decoded(output: bytes, release_id: str) -> Stored:
    """What was stored; refused if it is anything else, for whoever can write to a ledger can put anything there."""
    try:
        line, _, rest = output.partition(b"\n")
        if rest and len(line) > LONGEST_HEADER:
            raise ValueError("a header without an end")
        header: Any = json.loads(line)
        m = None  # answers
        if not set(header) <= {"format", "certificate", "measurements", "answers"}:
            raise ValueError("something that no output has")
        if "format" not in header:
            numbers = np.array(header["measurements"], dtype=np.float64)
        else:
            if header["format"] not in (FORMAT, WITHOUT_ANSWERS):
                raise ValueError("another format")
            numbers = np.frombuffer(rest, dtype="<f8").astype(np.float64)
            m = header["answers"] if header["format"] == FORMAT else None
            if len(numbers) != header["measurements"] + 2 * (m or 0) or (m or 0) < 0:
                raise ValueError("another length")
        if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
            raise ValueError("no measurements")
        certificate = PrivacyCertificate.read(header["certificate"])
        if m is None:
            return Stored(certificate, numbers)
        r = len(numbers) - 2 * m
        return Stored(certificate, numbers[:r], numbers[r : r + m], numbers[r + m :])
    except (ReleaseError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LedgerError(
            f"release_id={release_id!r}: what the ledger has stored is not a release ({type(error).__name__}); "
            "choose a new release_id"
        ) from error
