"""Files of arrays under a digest, without pickle: what plans and releases are saved as."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.errors import BatchDPError
from batchdp.linalg.matrix import Plain

LARGEST = 4 * 2**30
"""Bytes that an archive may unpack to."""


def save(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any], error: type[BatchDPError]
) -> None:
    """One file, written beside and moved into place: a reader sees the old file, the new one, or none."""
    try:
        target = Path(path)
    except TypeError as failure:
        raise error(f"cannot write to a {type(path).__name__}; give the name of a file") from failure
    buffer = io.BytesIO()
    text = json.dumps(header)
    np.savez_compressed(buffer, header=np.array(text), digest=np.array(_digest(text, arrays)), **arrays)
    write_atomically(target, buffer.getvalue(), error)


def load(path: str | os.PathLike[str], format: str, error: type[BatchDPError], noun: str) -> tuple[Any, dict[str, Any]]:
    """The header and the arrays of a file of this format, checked against its digest; nothing in it is executed."""
    try:
        with Path(path).open("rb") as opened:
            with zipfile.ZipFile(opened) as members:
                if sum(member.file_size for member in members.infolist()) > LARGEST:
                    raise error(f"{path} would unpack to more than {LARGEST // 2**30} GiB")
            with np.load(opened, allow_pickle=False) as file:
                text = str(file["header"])
                header = json.loads(text)
                if header.get("format") != format:
                    raise error(f"{path} is of format {header.get('format')!r}; this version reads {format}")
                arrays = {name: file[name] for name in file.files if name not in ("header", "digest")}
                if str(file["digest"]) != _digest(text, arrays):
                    raise error(f"{path} does not fit its digest: it was changed after it was saved")
                return header, arrays
    except OSError as failure:
        raise error(f"cannot read {path}: {failure.strerror or failure}") from failure
    except BatchDPError:
        raise
    except Exception as failure:  # whatever a damaged archive makes zipfile, zlib, NumPy or JSON say
        raise error(f"{path} is not a {noun}, or is damaged ({type(failure).__name__})") from failure


def write_atomically(path: Path, content: bytes, error: type[BatchDPError]) -> None:
    """Write beside the target and move into place: a reader sees the old file, the new one, or none."""
    try:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    except ValueError as failure:
        raise error(f"cannot write {str(path)!r}: it is not the name of a file") from failure
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, ValueError) as failure:
        with suppress(OSError, ValueError):
            beside.unlink(missing_ok=True)
        raise error(f"cannot write {path}: {getattr(failure, 'strerror', None) or failure}") from failure


def parts(name: str, matrix: Plain) -> dict[str, Any]:
    """A matrix as arrays to save."""
    rows = sparse.csr_array(matrix)
    return {
        f"{name}_data": rows.data,
        f"{name}_indices": rows.indices,
        f"{name}_indptr": rows.indptr,
        f"{name}_shape": np.array([*matrix.shape, isinstance(matrix, np.ndarray)]),
    }


def whole(name: str, arrays: Mapping[str, Any]) -> Plain:
    """The matrix in saved arrays, dense if it was."""
    rows, columns, dense = (int(size) for size in arrays[f"{name}_shape"])
    matrix = sparse.csr_array(
        (arrays[f"{name}_data"], arrays[f"{name}_indices"], arrays[f"{name}_indptr"]), shape=(rows, columns)
    )
    matrix.check_format(full_check=True)  # an index out of range would read beyond the arrays
    matrix.sum_duplicates()
    if dense and 8 * rows * columns > LARGEST:
        raise ValueError(f"a matrix of {rows} × {columns} is too large")  # few entries can claim to be many
    return matrix.toarray() if dense else matrix


def _digest(header: str, arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
