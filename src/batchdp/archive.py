"""Files of arrays under a digest, without pickle; and opening what users name: files that end."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import secrets
import shutil
import stat
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.errors import BatchDPError
from batchdp.linalg.matrix import Plain

NOT_REGULAR = "It is a device, a pipe or a socket, not a regular file"


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """The file, open for reading; an OSError says so where it is not a file with an end."""
    place = Path(path)
    _check(place.stat())  # first, since opening some devices does something
    with open(place, "rb", opener=_open_unwaiting) as file:
        _check(os.fstat(file.fileno()))
        yield file


def read_text(path: str | os.PathLike[str], named: str, largest: int, advice: str, error: type[BatchDPError]) -> str:
    """The text in UTF-8 of a file of at most `largest` bytes; an `error` says what is wrong with it otherwise.

    Args:
        path: the file.
        named: what errors call it, such as "the domain file ".
        largest: bytes that are read at most.
        advice: what to do about a larger file.
        error: the kind of error.
    """
    try:
        with open_regular(path) as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as problem:
        raise error(f"cannot read {named}{path}: {getattr(problem, 'strerror', None) or problem}") from problem
    if len(content) > largest:
        size = f"{largest // 10**6} MB" if largest >= 10**6 else f"{largest // 1000} kB"
        raise error(f"{path} is larger than {size}; {advice}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{path} is not a text in UTF-8 ({problem.reason} at byte {problem.start})") from problem


def _open_unwaiting(path: str, flags: int) -> int:
    """Without waiting for somebody to write, where the file has become a pipe meanwhile."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check(status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a folder has an error of its own
        raise OSError(None, NOT_REGULAR)


ROOM = 64 * 2**20
"""Bytes that any archive may unpack to, beside `RATIO` times its own size: a small file cannot ask for much memory."""
RATIO = 8
MOST_MEMBERS = 100
STRICT = ("domain", "options")
"""Keys of headers whose readers refuse what they do not know."""
EARLIER = {
    "batchdp-plan-1": "0.1 or 0.2",
    "batchdp-table-plan-1": "0.2",
    "batchdp-release-2": "0.1 or 0.2",
    "batchdp-release-derived-1": "0.2",
    "batchdp-release-3": "0.2",
}
"""Formats that are no longer read, and the versions that wrote them."""
REMEDIES = {"plan": "plan again, or keep batchdp 0.2 to read it", "release": "keep batchdp 0.2 to read it"}


def allowance(size: int, most_bytes: int | None = None) -> int:
    """Bytes that a file of this size may unpack to."""
    return ROOM + RATIO * size if most_bytes is None else most_bytes


def save(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, Any],
    error: type[BatchDPError],
    *,
    compressed: bool = True,
) -> None:
    """One file, written beside and moved into place: a reader sees the old file, the new one, or none."""
    try:
        target = Path(path)
    except TypeError as failure:
        raise error(f"cannot write to a {type(path).__name__}; give the name of a file") from failure
    if any(np.asarray(one).dtype.hasobject for one in arrays.values()):
        raise error("it holds whole numbers too large for a file")
    text = json.dumps(header)
    members = {"header": np.array(text), "digest": np.array(_digest(text, arrays)), **arrays}
    buffer = io.BytesIO()
    if compressed:
        np.savez_compressed(buffer, **members)
    if not compressed or sum(member.nbytes + 1000 for member in members.values()) > allowance(buffer.tell()):
        buffer = io.BytesIO()
        np.savez(buffer, **members)  # noise does not shrink; or so well that `load` would take it for a bomb
    write_atomically(target, buffer.getvalue(), error)


def load(
    path: str | os.PathLike[str], format: str, error: type[BatchDPError], noun: str, most_bytes: int | None = None
) -> tuple[Any, dict[str, Any]]:
    """The header and the arrays of a file of this format, checked against its digest; nothing in it is executed."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as members:
            most = allowance(os.fstat(file.fileno()).st_size, most_bytes)
            content = {member.filename.removesuffix(".npy"): member for member in members.infolist()}
            unpacked = sum(member.file_size for member in members.infolist())
            if unpacked > most or len(members.infolist()) > MOST_MEMBERS:
                raise error(
                    f"{path} would unpack to {unpacked:,} bytes, more than a {noun} of its size should; if it is your "
                    f"own, load it in Python with most_bytes={unpacked} and save it again"
                )
            if len(content) != len(members.infolist()):
                raise ValueError("two members of one name")
            if content["header"].file_size > most // 2:  # parsed, it takes several times as much
                raise ValueError("a header too long")
            text = str(_read_array(members, content.pop("header"), "U"))
            header = parse_json(text)
            if (found := header.get("format")) != format:
                if found in EARLIER:
                    maker = str(header.get("planner", EARLIER[found]))[:20]
                    raise error(f"{path} was made by batchdp {maker}, before 0.3; {REMEDIES[noun]}")
                raise error(f"{path} is of format {str(found)[:50]!r}; this version reads {format}")
            digest = str(_read_array(members, content.pop("digest"), "U"))
            arrays = {name: _read_array(members, member, "biuf") for name, member in content.items()}
            if digest != _digest(text, arrays):
                raise error(f"{path} does not fit its digest: it was changed after it was saved")
            return header, arrays
    except OSError as failure:
        raise error(f"cannot read {path}: {failure.strerror or failure}") from failure
    except BatchDPError:
        raise
    except Exception as failure:  # whatever a damaged archive makes zipfile, zlib, NumPy or JSON say
        raise error(f"{path} is not a {noun}, or is damaged ({type(failure).__name__})") from failure


def check_known(
    header: Mapping[str, Any], arrays: Collection[str], known: Mapping[str, Any], parts: Collection[str]
) -> None:
    """Refuse keys and arrays that are none of those which a file of this content has: they would mean nothing.

    The domain and the options are left to those who read them, and who know what earlier versions wrote.
    """
    others = [name for name in header if name not in STRICT or name not in known]
    unknown = _find_unknown({name: header[name] for name in others}, known)
    for name in (*unknown, *(name for name in arrays if name not in parts)):
        raise UnknownPartError(f"it holds {name[:80]!r}, which this version does not know")


class UnknownPartError(BatchDPError):
    """A file holds more than what is read of it; becomes an error that names the file."""


def _find_unknown(found: Any, known: Any) -> Iterator[str]:
    """Keys of objects of JSON, at any depth, that are not among the known ones."""
    if isinstance(found, Mapping) and isinstance(known, Mapping):
        for name, value in found.items():
            if name not in known:
                yield str(name)
            else:
                yield from _find_unknown(value, known[name])
    elif isinstance(found, list) and isinstance(known, list | tuple):
        for one, other in zip(found, known, strict=False):
            yield from _find_unknown(one, other)


def parse_json(text: str | bytes) -> Any:
    """What a text in JSON says; refused where an object has a name twice, which other readers may read otherwise."""
    return json.loads(text, object_pairs_hook=_check_keys)


def _check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def read_format(path: str | os.PathLike[str]) -> str | None:
    """What a file says that it is; None where it says nothing. `load` checks all else."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as members:
            member = members.getinfo("header.npy")
            if member.file_size > ROOM:
                return None
            found = json.loads(str(_read_array(members, member, "U")))["format"]
            return found if isinstance(found, str) else None
    except Exception:  # whatever a damaged archive makes zipfile, zlib, NumPy or JSON say
        return None


def _read_array(members: zipfile.ZipFile, member: zipfile.ZipInfo, kinds: str) -> Any:
    """One array, of one of these kinds of entries; nothing is allocated that the member does not hold."""
    if not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename} is not an array")
    with members.open(member) as file:
        version = np.lib.format.read_magic(file)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_columns, dtype = readers[version](file)
        if dtype.kind not in kinds or dtype.hasobject:
            raise ValueError(f"{member.filename} holds entries of type {dtype}")
        if math.prod(shape) * max(dtype.itemsize, 1) > member.file_size or any(size < 0 for size in shape):
            raise ValueError(f"{member.filename} claims more entries than it holds")
        content = file.read()
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if by_columns else "C")


def write_atomically(path: Path, content: bytes, error: type[BatchDPError]) -> None:
    """Write beside the target and move into place: a reader sees the old file, the new one, or none."""
    if not path.name:
        raise error(f"cannot write {str(path)!r}: it is not the name of a file")
    try:
        replace_file(path, content)
    except (OSError, ValueError) as failure:
        raise error(f"cannot write {path}: {getattr(failure, 'strerror', None) or failure}") from failure


def replace_file(path: Path, content: bytes) -> None:
    """The same with errors as they come; the content is on the disk when this returns, and nothing stays beside it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        with suppress(OSError, ValueError):
            beside.unlink(missing_ok=True)


def check_folder(
    folder: str | os.PathLike[str], maker: str, mark: str, error: type[BatchDPError], *, overwrite: bool = False
) -> Path:
    """A folder that may be written: a new or empty one, or, to be replaced, one with the `mark` of the same maker."""
    try:
        target = Path(folder)
    except TypeError as failure:
        raise error(f"folder={folder!r} is not the name of a folder") from failure
    if target.name in ("", "..") or "\0" in str(target):
        raise error(f"folder={str(folder)!r} is not the name of a new folder")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise error(f"{target} is not a folder; name a new one")
    if not target.parent.is_dir():
        raise error(f"the folder of {target} does not exist; create {target.parent} first")
    if target.is_dir() and any(target.iterdir()):
        if not overwrite:
            raise error(f"{target} already holds files; name a new folder, or allow it to be replaced")
        if not (target / mark).is_file():
            raise error(f"{target} holds files that no {maker} wrote; name a new folder")
    return target


@contextmanager
def write_folder(target: Path, error: type[BatchDPError], *, overwrite: bool = False) -> Iterator[Path]:
    """A folder beside the target to write into, moved into its place at the end: it appears whole or not at all."""
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        beside.mkdir()
        yield beside
        _move(beside, target, overwrite)
    except OSError as failure:
        raise error(f"cannot write {target}: {failure.strerror or failure}") from failure
    except UnicodeEncodeError as failure:
        raise error(f"cannot write {target}: {failure.object[:50]!r} is not a text that files can hold") from failure
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move(beside: Path, target: Path, overwrite: bool) -> None:
    """A rename replaces an empty folder, and fails where somebody has filled it meanwhile."""
    old = target.with_name(f".{target.name}.{secrets.token_hex(8)}.old")
    if overwrite and target.exists():
        target.rename(old)
    try:
        beside.rename(target)
    except OSError:
        with suppress(OSError):
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def split_matrix(name: str, matrix: Plain) -> dict[str, Any]:
    """A matrix as arrays to save."""
    rows = sparse.csr_array(matrix)
    return {
        f"{name}_data": rows.data,
        f"{name}_indices": rows.indices.astype(np.int64),  # as they are read again: the same content, the same bytes
        f"{name}_indptr": rows.indptr.astype(np.int64),
        f"{name}_shape": np.array([*matrix.shape, isinstance(matrix, np.ndarray)]),
    }


def join_matrix(name: str, arrays: Mapping[str, Any], most_bytes: int | None = None) -> Plain:
    """The matrix in saved arrays, dense if it was."""
    rows, columns, dense = (int(size) for size in arrays[f"{name}_shape"])
    data, indices, indptr = (read_numbers(f"{name}_{part}", arrays) for part in ("data", "indices", "indptr"))
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError(f"{name}: indices are not whole numbers")
    if not 0 <= rows < len(indptr) or columns < 0:
        raise ValueError(f"{name}: a matrix of {rows} × {columns} with {len(indptr) - 1} rows")
    # Few entries can claim to be many: the allowance is that of a file which holds them all.
    held = sum(part.nbytes for part in (data, indices, indptr))
    if dense and 8 * rows * columns > allowance(held, most_bytes):
        raise ValueError(f"a matrix of {rows} × {columns} is too large for the {held} bytes that describe it")
    # An index out of range would be read or written beyond the arrays, and SciPy's own check looks at none where the
    # last pointer is 0.
    ends, places = indptr.astype(np.int64), indices.astype(np.int64)
    if len(ends) != rows + 1 or ends[0] != 0 or ends[-1] != len(places) or np.any(np.diff(ends) < 0):
        raise ValueError(f"{name}: rows that do not begin and end among its {len(places)} entries")
    if len(places) != len(data) or np.any((places < 0) | (places >= columns)):
        raise ValueError(f"{name}: entries outside of {columns} columns")
    matrix = sparse.csr_array((data.astype(np.float64), places, ends), shape=(rows, columns))
    matrix.sum_duplicates()
    return matrix.toarray() if dense else matrix


def read_numbers(name: str, arrays: Mapping[str, Any]) -> Any:
    """A list of finite numbers."""
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} is not a list of finite numbers")
    return array


def _digest(header: str, arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
