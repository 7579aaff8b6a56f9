"""Files under a digest: what was saved is loaded, what was changed is refused, and nothing in a file is executed."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from batchdp import PlanError, archive
from batchdp.linalg.matrix import Plain, dense

ARRAYS = {"numbers": np.arange(5.0), "none": np.zeros((0, 3))}


def saved(path: Path, header: Any = None, arrays: Any = None) -> Path:
    archive.save(path, {"format": "f", **(header or {})}, ARRAYS if arrays is None else arrays, PlanError)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewritten(path: Path, content: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return path


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def load(path: Any) -> tuple[Any, dict[str, Any]]:
    return archive.load(path, "f", PlanError, "plan")


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    header, arrays = load(saved(tmp_path / "a.plan", {"text": "Zürich ' \" \n 😀", "list": [1, 0.1, None, True]}))
    assert header == {"format": "f", "text": "Zürich ' \" \n 😀", "list": [1, 0.1, None, True]}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["a.plan"]


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[0.0, -1.5], [1e-300, 0.0]]),
        np.zeros((2, 0)),
        np.zeros((0, 4)),
        sparse.csr_array(np.eye(3)),
        sparse.csr_array((2, 5)),
        sparse.csc_array(np.array([[1.0, 2.0], [0.0, 3.0]])),
    ],
)
def test_matrices_come_back_as_they_were(matrix: Plain, tmp_path: Path) -> None:
    _, arrays = load(saved(tmp_path / "m", arrays=archive.split_matrix("M", matrix)))
    found = archive.join_matrix("M", arrays)
    assert np.array_equal(dense(found), dense(matrix))
    assert isinstance(found, np.ndarray) == isinstance(matrix, np.ndarray)


@pytest.mark.parametrize("name", ["header", "digest", "numbers", "none"])
def test_a_change_to_any_member_is_refused(name: str, tmp_path: Path) -> None:
    content = members(saved(tmp_path / "a"))
    for change in (np.array("changed"), np.array(1.0), np.array(json.dumps({"format": "f", "more": 1}))):
        with pytest.raises(PlanError):
            load(rewritten(tmp_path / "b", {**content, f"{name}.npy": npy(change)}))
    with pytest.raises(PlanError):
        load(rewritten(tmp_path / "b", {key: data for key, data in content.items() if key != f"{name}.npy"}))


def test_an_array_more_is_refused(tmp_path: Path) -> None:
    content = members(saved(tmp_path / "a"))
    for more in ({"more.npy": npy(np.ones(2))}, {"more": b"raw bytes"}, {"numbers": npy(np.ones(5))}):
        with pytest.raises(PlanError):
            load(rewritten(tmp_path / "b", {**content, **more}))


def test_every_flipped_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    raw = saved(tmp_path / "a").read_bytes()
    before = load(tmp_path / "a")
    refused = 0
    for place in range(0, len(raw), 3):
        (tmp_path / "b").write_bytes(raw[:place] + bytes([raw[place] ^ 0x21]) + raw[place + 1 :])
        try:
            header, arrays = load(tmp_path / "b")
        except PlanError:
            refused += 1
            continue
        assert header == before[0]  # dates and the like in the archive's own directory
        assert all(np.array_equal(arrays[name], array) for name, array in before[1].items())
    assert refused > len(raw) / 6


def test_every_shorter_file_is_refused(tmp_path: Path) -> None:
    raw = saved(tmp_path / "a").read_bytes()
    for end in range(0, len(raw), 7):
        (tmp_path / "b").write_bytes(raw[:end])
        with pytest.raises(PlanError, match="b"):
            load(tmp_path / "b")


class Bomb:
    """Runs code when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_pickles_are_refused_and_not_run(tmp_path: Path) -> None:
    content = members(saved(tmp_path / "a"))
    target = tmp_path / "was run"
    bombs = [npy(np.array([Bomb(target)], dtype=object), allow_pickle=True), pickle.dumps(Bomb(target))]
    for bomb in bombs:
        for name in ("numbers.npy", "header.npy", "digest.npy", "more.npy"):
            with pytest.raises(PlanError):
                load(rewritten(tmp_path / "b", {**content, name: bomb}))
    (tmp_path / "c").write_bytes(bombs[1])
    with pytest.raises(PlanError):
        load(tmp_path / "c")
    assert not target.exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = members(saved(tmp_path / "a"))
    rewritten(tmp_path / "b", {**content, "numbers.npy": npy(np.zeros(2**24))})
    assert (tmp_path / "b").stat().st_size < 2**18

    def unpacked(*_: Any, **__: Any) -> None:
        raise AssertionError("it was unpacked")

    monkeypatch.setattr(archive, "_read_array", unpacked)
    with pytest.raises(PlanError, match=r"would unpack to 134,.* bytes, .* load it in Python with most_bytes=134"):
        load(tmp_path / "b")


def test_what_shrinks_like_a_bomb_is_saved_unshrunk_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "ROOM", 2**16)
    arrays = {"numbers": np.ones(2**17)}
    assert saved(tmp_path / "a", arrays=arrays).stat().st_size > 2**20
    assert np.array_equal(load(tmp_path / "a")[1]["numbers"], arrays["numbers"])
    content = members(tmp_path / "a")
    rewritten(tmp_path / "old", content)  # as version 0.1.0 saved everything
    with pytest.raises(PlanError, match="most_bytes="):
        load(tmp_path / "old")
    found = archive.load(tmp_path / "old", "f", PlanError, "plan", 2**21)[1]["numbers"]
    assert np.array_equal(found, arrays["numbers"])


def test_a_header_that_claims_a_huge_array_is_refused(tmp_path: Path) -> None:
    content = members(saved(tmp_path / "a"))
    for claimed in (10**13, 10**18, 2**70):
        forged = io.BytesIO()
        shape = {"descr": "<f8", "fortran_order": False, "shape": (claimed,)}
        np.lib.format.write_array_header_1_0(forged, shape)
        with pytest.raises(PlanError):
            load(rewritten(tmp_path / "b", {**content, "numbers.npy": forged.getvalue() + bytes(40)}))


def test_a_sparse_matrix_that_claims_to_be_a_huge_dense_one_is_refused() -> None:
    rows, columns = 10**6, 10**6
    arrays = {
        "M_data": np.zeros(0),
        "M_indices": np.zeros(0, int),
        "M_indptr": np.zeros(rows + 1, int),
        "M_shape": np.array([rows, columns, 1]),
    }
    with pytest.raises(ValueError, match="too large"):
        archive.join_matrix("M", arrays)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("indices", np.array([0, 7])),
        ("indices", np.array([0, -1])),
        ("indptr", np.array([0, 1, 5])),
        ("indptr", np.array([0, 2, 1])),
        ("indptr", np.array([0, 2, 0])),  # where SciPy's own check sees no entries, and checks none
        ("indptr", np.array([0, 1, 1])),
        ("indptr", np.array([1, 1, 2])),
        ("shape", np.array([2, -3, 1])),
        ("shape", np.array([3, 2, 1])),
        ("shape", np.array([2])),
        ("data", np.zeros(1)),
        ("data", np.zeros((2, 2))),
    ],
)
def test_indices_beyond_the_matrix_are_refused(part: str, value: np.ndarray) -> None:
    arrays = archive.split_matrix("M", np.eye(2))
    with pytest.raises((ValueError, IndexError, TypeError)):
        archive.join_matrix("M", {**arrays, f"M_{part}": value})


def test_another_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is of format 'g'; this version reads f"):
        load(saved(tmp_path / "a", {"format": "g"}))


@pytest.mark.parametrize("header", ["[1]", "null", "{", "3", '"text"', "[" * 100_000])
def test_a_header_that_is_none_is_refused(header: str, tmp_path: Path) -> None:
    text = np.array(header)
    content = {"header.npy": npy(text), "digest.npy": npy(np.array(hashlib.sha256(header.encode()).hexdigest()))}
    with pytest.raises(PlanError, match="not a plan"):
        load(rewritten(tmp_path / "a", content))


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + bytes(18), b"SELECT 1", bytes(1000)])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(PlanError, match="not a plan, or is damaged"):
        load(tmp_path / "a")


@pytest.mark.parametrize("path", ["missing", ".", "folder/", "a\0b", "", None, 3.5])
def test_a_path_without_a_file_is_refused(path: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlanError):
        load(str(tmp_path / path) if path and isinstance(path, str) else path)


@pytest.mark.parametrize("path", ["", ".", "/", "folder", "file/x", "missing/x", "a\0b", "x" * 300])
def test_a_path_that_cannot_be_written_is_refused_and_leaves_nothing(path: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(PlanError, match="cannot write"):
        saved(tmp_path / path if path.strip("./") else Path(path))
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved(tmp_path / "a").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PlanError, match="No space left"):
        saved(tmp_path / "a", {"other": 1})
    assert (tmp_path / "a").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
