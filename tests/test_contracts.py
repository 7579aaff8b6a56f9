"""The import contracts catch what they are for: a forbidden import that is put in is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INJECTED = {
    "planning reads exact counts": ("plans/options.py", "batchdp.private", "cannot see data"),
    "a lattice measures": ("mechanism/lattice.py", "batchdp.mechanism.measure", "cannot see data"),
    "calibration draws": ("mechanism/calibrate.py", "batchdp.mechanism.sample", "cannot see data"),
    "planning spends": ("plans/options.py", "batchdp.ledger", "cannot see data"),
    "planning opens tables": ("optimizer/blocks.py", "batchdp.engines", "cannot see data"),
    "the audit believes a sensitivity": ("audits/exact.py", "batchdp.mechanism.sensitivity", "derives again"),
    "the audit believes a calibration": ("audits/attack.py", "batchdp.mechanism.calibrate", "derives again"),
    "a new family knows another": ("optimizer/families/new.py", "batchdp.optimizer.families.wavelet", "one another"),
    "the optimizer knows a family": ("optimizer/blocks.py", "batchdp.optimizer.families.wavelet", "registry alone"),
}
APART = {"sample", "measure", "knorm"}
"""Modules of the mechanism that draw or count; of the folder, the contract names what planning needs."""


def contracts() -> list[dict[str, object]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, object]] = settings["tool"]["importlinter"]["contracts"]
    return found


def test_every_module_of_the_mechanism_is_under_the_contract() -> None:
    named = {str(one) for one in contracts()[0]["source_modules"]}  # type: ignore[attr-defined]
    there = {path.stem for path in (ROOT / "src/batchdp/mechanism").iterdir() if not path.stem.startswith("__")}
    assert {f"batchdp.mechanism.{name}" for name in there - APART} <= named
    assert {f"batchdp.mechanism.knorm.{name}" for name in ("lattice", "law", "body")} <= named


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", INJECTED)
def test_a_forbidden_import_is_caught(case: str, tmp_path: Path) -> None:
    for name in ("src", "reproduction"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    where, what, contract = INJECTED[case]
    place = tmp_path / "src/batchdp" / where
    place.write_text((place.read_text() if place.exists() else "") + f"\n\nimport {what}\n")
    done = linted(tmp_path)
    assert done.returncode == 1, done.stdout
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert any(contract in line for line in broken), broken
