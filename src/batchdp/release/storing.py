"""A release as the ledger keeps it: the certificate as a line of JSON, the noisy measurements, what they answered.

Answers and their standard errors follow from the measurements, but for the last bits, which differ from one processor
to the next: a repeat gives those that were given first, and a release that reads its measurements otherwise is told.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchdp.errors import LedgerError, ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.release.certificate import PrivacyCertificate

FORMAT = "batchdp-output-0.3"
LONGEST_HEADER = 1_000_000
EARLIER = re.compile(rb'\{"(certificate"|format": "batchdp-output-[234]")')
"""How outputs of versions before 0.3 begin, in ledgers that were carried over."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What a ledger has of a release."""

    certificate: PrivacyCertificate
    measurements: Dense
    values: Dense
    """The answers."""
    standard_errors: Dense


def encoded(certificate: PrivacyCertificate, measurements: Dense, values: Dense, standard_errors: Dense) -> bytes:
    """What `Ledger.complete` stores."""
    sizes = {"measurements": len(measurements), "answers": len(values)}
    header = {"format": FORMAT, "certificate": certificate.as_dict(), **sizes}
    numbers = np.concatenate((measurements, values, standard_errors))
    return json.dumps(header).encode() + b"\n" + numbers.astype("<f8").tobytes()


def is_earlier(output: bytes) -> bool:
    """Whether a version before 0.3 stored it."""
    return EARLIER.match(output) is not None


def check_readable(output: bytes, release_id: str) -> None:
    """Refuse what an earlier version stored: it is paid for, and nothing else may be drawn under its id."""
    if is_earlier(output):
        raise LedgerError(
            f"release_id={release_id!r} was released by a version before 0.3, and this one cannot read what is stored; "
            "its answers are in the file that was saved then, which batchdp 0.2 reads; choose a new release_id"
        )


def decoded(output: bytes, release_id: str) -> Stored:
    """What was stored; refused if it is anything else, for whoever can write to a ledger can put anything there."""
    check_readable(output, release_id)
    try:
        line, _, rest = output.partition(b"\n")
        if rest and len(line) > LONGEST_HEADER:
            raise ValueError("a header without an end")
        header: Any = json.loads(line)
        numbers = np.frombuffer(rest, dtype="<f8").astype(np.float64)
        r, m = header["measurements"], header["answers"]
        if header["format"] != FORMAT or len(numbers) != r + 2 * m or min(r, m) < 0:
            raise ValueError("another format, or length")
        if not np.all(np.isfinite(numbers)):
            raise ValueError("no measurements")
        certificate = PrivacyCertificate.read(header["certificate"])
        return Stored(certificate, numbers[:r], numbers[r : r + m], numbers[r + m :])
    except (ReleaseError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LedgerError(
            f"release_id={release_id!r}: what the ledger has stored is not a release ({type(error).__name__}); "
            "choose a new release_id"
        ) from error
