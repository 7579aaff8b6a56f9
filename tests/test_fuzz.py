"""Damaged files: the right answer or an error from the exception tree, never anything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import crafted
from batchdp import BatchDPError, Ledger, PlanError, answer, archive, load_plan, load_release, optimize, plan
from batchdp.cli.files import read_matrix
from batchdp.plans.file import FORMAT

changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6)


def damaged(content: bytes, edits: list[tuple[float, int]], cut: float) -> bytes:
    changed = bytearray(content)
    for place, value in edits:
        changed[int(place * len(changed))] = value
    return bytes(changed[: int(len(changed) * cut)])


@cache
def saved_release() -> bytes:
    with TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "l.db", epsilon=1)
        done = answer(optimize(np.eye(3)), [1, 2, 3], epsilon=0.5, ledger=ledger)
        done.save(Path(folder) / "r.npz")
        return (Path(folder) / "r.npz").read_bytes()


@cache
def saved_plan() -> bytes:
    described = {"table": "t", "columns": {"a": {"values": ["x", "y"]}, "b": {"range": [0, 9], "bins": [0, 3]}}}
    sql = "SELECT a, COUNT(*) AS n FROM t GROUP BY a; SELECT b, COUNT(*) AS m FROM t WHERE a <> 'x' GROUP BY b"
    with TemporaryDirectory() as folder:
        plan(sql, described, cache=False).save(Path(folder) / "p.plan")
        return (Path(folder) / "p.plan").read_bytes()


@cache
def saved_matrix(ending: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"w{ending}"
        if ending == ".npy":
            np.save(path, np.eye(4))
        elif ending == ".npz":
            sparse.save_npz(path, sparse.eye_array(4, format="csr"))
        else:
            np.savetxt(path, np.eye(4), delimiter=",")
        return path.read_bytes()


@settings(max_examples=150, deadline=None)
@given(edits=changes, cut=st.sampled_from([1.0, 1.0, 0.9, 0.3]))
def test_damaged_releases(edits: list[tuple[float, int]], cut: float) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.npz"
        path.write_bytes(damaged(saved_release(), edits, cut))
        with suppress(BatchDPError):
            assert len(load_release(path).answers) == 3


@settings(max_examples=80, deadline=None)
@given(edits=changes, cut=st.sampled_from([1.0, 1.0, 0.9, 0.3]))
def test_damaged_plans(edits: list[tuple[float, int]], cut: float) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "p.plan"
        path.write_bytes(damaged(saved_plan(), edits, cut))
        with suppress(PlanError):
            assert load_plan(path).names == ("n[a=x]", "n[a=y]", "m[b=0 to under 3]", "m[b=3 to 9]")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(key=st.sampled_from(["sql", "domain", "options", "blocks", "strategy"]), value=json_values)
def test_plans_with_another_header(key: str, value: object) -> None:
    """By somebody who computes the digest anew."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "p.plan"
        path.write_bytes(saved_plan())
        header, arrays = archive.load(path, FORMAT, PlanError, "plan")
        archive.save(path, {**header, key: value}, arrays, PlanError)
        with suppress(PlanError):
            assert load_plan(path).workload.queries == 4


@settings(max_examples=150, deadline=None)
@given(edits=changes, cut=st.sampled_from([1.0, 0.5]), ending=st.sampled_from([".npy", ".npz", ".csv"]))
def test_damaged_matrices(edits: list[tuple[float, int]], cut: float, ending: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"w{ending}"
        path.write_bytes(damaged(saved_matrix(ending), edits, cut))
        with suppress(BatchDPError):
            assert read_matrix(path).queries > 0


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if "shaped" in kind else ()) for kind in crafted.KINDS]
)
def test_crafted_and_damaged_files(kind: str, tmp_path: Path) -> None:
    """The long version of this is `python benchmarks/crafted.py`."""
    crafted.pristine(tmp_path)
    if "shaped" in kind:
        crafted.pristine_shaped(tmp_path)
    found = crafted.tried(tmp_path, kind, 1, 60)
    assert found["failures"] == []
    assert found["refused"] > 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("name", [name for name in crafted.CRAFTED if name not in crafted.SLOW])
def test_a_small_file_cannot_ask_for_much_memory(name: str, tmp_path: Path) -> None:
    crafted.pristine(tmp_path)
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import crafted; from pathlib import Path; "
        "found = crafted.in_a_child(lambda: crafted.tried_crafted(Path(sys.argv[2]), crafted.CRAFTED[sys.argv[3]])); "
        "print(json.dumps(found))"
    )
    command = [sys.executable, "-c", program, str(Path(crafted.__file__).parent), str(tmp_path), name]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert (found["refused"], found["failures"]) == (1, [])
    assert found["megabytes"] < crafted.MOST_MEGABYTES
