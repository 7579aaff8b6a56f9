"""One thread of linear algebra a test process: pytest-xdist already uses every core. Plans are remembered nowhere."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's plans are remembered: never in the user's own folder, never in another test's."""
    folder = tmp_path_factory.getbasetemp() / "plans" / os.urandom(8).hex()
    monkeypatch.setenv("BATCHDP_CACHE", str(folder))
    return folder
