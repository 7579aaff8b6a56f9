"""Releases of measured cells in files: B, L and W, and the law of the noise."""

from __future__ import annotations

from scipy import sparse

from batchdp import archive
from batchdp.errors import ReleaseError
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.reader import CellReader, Reader
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import DECODERS, Arrays, Encoded, Header, encode
from batchdp.strategies.shape import Shape

KIND = "cells"
"""What a file calls releases of measured cells."""


@encode.register
def _(reader: CellReader) -> Encoded:
    law = reader.noise_law
    shape, points = law.shape.written() if isinstance(law, ShapedLaw) else (None, {})
    arrays = {
        **archive.split_matrix("B", reader.reconstruct),
        **archive.split_matrix("L", reader.measure),
        **archive.split_matrix("W", reader.workload),
        **points,
    }
    header = {"kind": KIND, "names": list(reader.names), "scale": law.scale, "bits": reader.bits, "shape": shape}
    return header, arrays


def _decode(header: Header, arrays: Arrays, certificate: PrivacyCertificate, most_bytes: int | None) -> Reader:
    names, bits = header["names"], header["bits"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ReleaseError("names must be texts")
    if isinstance(bits, bool) or not isinstance(bits, int):
        raise ReleaseError("bits must be a whole number")
    law = NoiseLaw(archive.join_matrix("B", arrays, most_bytes), float(header["scale"]), certificate.noise)
    if header["shape"] is not None:
        shape = Shape.read(header["shape"], lambda name: archive.read_numbers(name, arrays))
        law = ShapedLaw(law.reconstruct, law.scale, law.noise, shape=shape)
    measure, workload = (sparse.csr_array(archive.join_matrix(name, arrays, most_bytes)) for name in ("L", "W"))
    return CellReader(tuple(names), measure, workload, law, bits)


DECODERS[KIND] = _decode
