from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import batchdp
from batchdp.cli import main
from cases import EXAMPLE_1

LAPLACE = [name for name in batchdp.STRATEGIES if name != "gaussian"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batchdp", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_demo_shows_both_examples() -> None:
    done = run("demo")
    assert done.returncode == 0
    assert done.stderr == ""
    for text in (
        "Example 1",
        "Example 2",
        "noise-on-data, cells merged",
        "no Laplace strategy is below",
        *LAPLACE,
    ):
        assert text in done.stdout


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv"])
def test_compare_reads_every_form(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"w{ending}"
    if ending == ".npy":
        np.save(path, EXAMPLE_1)
    elif ending == ".npz":
        sparse.save_npz(path, sparse.csr_array(EXAMPLE_1))
    else:
        np.savetxt(path, EXAMPLE_1, delimiter=",")
    done = run("compare", str(path), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["m"], shown["n"], shown["rank"]) == (3, 4, 2)
    errors = {row["name"]: row["expected_squared_error"] for row in shown["methods"]}
    assert set(errors) == {"optimize", *LAPLACE}
    assert shown["gaussian"]["expected_squared_error"] > 0
    assert errors["optimize"] == pytest.approx(8)
    assert errors["noise-on-results"] == pytest.approx(24)
    assert all(row["residual"] <= 1e-9 for row in shown["methods"])
    assert shown["lower_bound"] <= min(errors.values())


@pytest.mark.parametrize("content", [b"", b"not a matrix", b"1,2\n3\n", b"nan,1\n", b"\x93NUMPY\x01\x00garbage"])
@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".txt"])
def test_a_bad_file_is_one_clear_line_and_exit_code_1(
    tmp_path: Path, content: bytes, ending: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"w{ending}"
    path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["batchdp", "compare", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.err.startswith("batchdp: ")


def test_a_byte_order_mark_and_brackets_in_the_name_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "we[red]ird.csv"
    path.write_bytes(b"\xef\xbb\xbf1,0\n0,1\n")
    done = run("compare", str(path))
    assert done.returncode == 0, done.stderr
    assert "we[red]ird.csv" in done.stdout.replace("\n", "")


def test_the_version_is_said() -> None:
    assert run("--version").stdout.startswith("batchdp 0.")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "w.npy"
    np.save(path, np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    done = run("compare", str(path))
    assert done.returncode == 1
    assert "does not hold a matrix" in done.stderr


def test_a_missing_file_and_wrong_usage() -> None:
    assert run("compare", "none.npy").returncode == 1
    assert run("compare").returncode == 2
    assert run("nonsense").returncode == 2
    for command in ("demo", "compare"):
        done = run(command, "--help")
        assert done.returncode == 0
        assert "Example: batchdp" in done.stdout
