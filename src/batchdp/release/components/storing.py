"""A release of components as the ledger keeps it: a line of JSON, the list of components, the noisy integers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LedgerError, ReleaseError
from batchdp.release.components.certificate import ComponentCertificate, packed
from batchdp.release.storing import check_readable

FORMAT = "batchdp-table-output-0.3"
BEGINNING = f'{{"format": "{FORMAT}"'.encode()
LONGEST_HEADER = 1_000_000


def encoded(certificate: ComponentCertificate, noisy: NDArray[np.int64]) -> bytes:
    """What `Ledger.complete` stores."""
    components = packed(certificate.components)
    header = {"format": FORMAT, "certificate": certificate.header(), "components": len(components), "noisy": len(noisy)}
    line = json.dumps(header).encode() + b"\n"
    return b"".join((line, components, np.ascontiguousarray(noisy, dtype="<i8").tobytes()))


def is_encoded(output: bytes) -> bool:
    """Whether an output is a release of components."""
    return output.startswith(BEGINNING)


def decoded(output: bytes, release_id: str) -> tuple[ComponentCertificate, NDArray[np.int64]]:
    """What was stored; refused if it is anything else, for whoever can write to a ledger can put anything there."""
    check_readable(output, release_id)
    try:
        end = output.index(b"\n", 0, LONGEST_HEADER)
        header: Any = json.loads(output[:end])
        start = end + 1 + header["components"]
        if header["format"] != FORMAT or header["components"] < 0 or len(output) != start + 8 * header["noisy"]:
            raise ValueError("another format, or length")
        certificate = ComponentCertificate.read(header["certificate"], output[end + 1 : start])
        return certificate, np.frombuffer(output, dtype="<i8", offset=start).astype(np.int64)
    except (ReleaseError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LedgerError(
            f"release_id={release_id!r}: what the ledger has stored is not a release ({type(error).__name__}); "
            "choose a new release_id"
        ) from error
