"""A release as the ledger keeps it: the certificate as a line of JSON, then the noisy measurements as they are.

Version 0.1.0 wrote one JSON object with both, which is read as well.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from batchdp.errors import LedgerError, ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.release.certificate import PrivacyCertificate

FORMAT = "batchdp-output-2"
LONGEST_HEADER = 1_000_000


def encoded(certificate: PrivacyCertificate, measurements: Dense) -> bytes:
    """What `Ledger.complete` stores."""
    header = {"format": FORMAT, "certificate": certificate.as_dict(), "measurements": len(measurements)}
    return json.dumps(header).encode() + b"\n" + np.ascontiguousarray(measurements, dtype="<f8").tobytes()


def decoded(output: bytes, release_id: str) -> tuple[PrivacyCertificate, Dense]:
    """What was stored; refused if it is anything else, for whoever can write to a ledger can put anything there."""
    try:
        line, _, rest = output.partition(b"\n")
        if rest and len(line) > LONGEST_HEADER:
            raise ValueError("a header without an end")
        header: Any = json.loads(line)
        if "format" not in header:
            measurements = np.array(header["measurements"], dtype=np.float64)
        elif header["format"] != FORMAT or len(rest) != 8 * header["measurements"]:
            raise ValueError("another format, or length")
        else:
            measurements = np.frombuffer(rest, dtype="<f8").astype(np.float64)
        if measurements.ndim != 1 or not np.all(np.isfinite(measurements)):
            raise ValueError("no measurements")
        return PrivacyCertificate.read(header["certificate"]), measurements
    except (ReleaseError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LedgerError(
            f"release_id={release_id!r}: what the ledger has stored is not a release ({type(error).__name__}); "
            "choose a new release_id"
        ) from error
