"""One thread of linear algebra a test process, on the same kernels everywhere. Plans are remembered nowhere."""

import gc
import os
import platform
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Generated cases are the same in every run, so that a change is judged by what it changed; `make audit` and
# `pytest --hypothesis-profile fresh` look for new ones.
# None has a deadline: how long one takes says how busy the machine is.
settings.register_profile("fresh", derandomize=False, deadline=None)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("fresh" if "BATCHDP_EXAMPLES" in os.environ else "repeatable")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Rounding decides which valley a search ends in, and every kind of processor rounds in its own way: figures that pages
# quote are those of one kind, which most others can act as.
if platform.machine() == "x86_64":
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background has not


def pytest_collection_finish() -> None:
    """What the tests and their modules are made of stays to the end: no later collection need go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's plans are remembered: never in the user's own folder, never in another test's."""
    folder = tmp_path_factory.getbasetemp() / "plans" / os.urandom(8).hex()
    monkeypatch.setenv("BATCHDP_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_sockets_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark leaves sockets to the garbage collector, whose warnings would fail whatever test comes next."""
    yield
    if any(mark.args == ("spark",) for mark in request.node.iter_markers("xdist_group")):
        gc.collect()
