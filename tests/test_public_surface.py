from __future__ import annotations

import subprocess
import sys

import batchdp


def test_every_export_exists_and_errors_share_one_root() -> None:
    for name in batchdp.__all__:
        exported = getattr(batchdp, name)
        if isinstance(exported, type) and issubclass(exported, Exception):
            assert issubclass(exported, batchdp.BatchDPError)
            assert exported.__doc__
    assert sorted(batchdp.__all__) == sorted(set(batchdp.__all__))


def test_bounds_are_there_before_anything_else_is_used() -> None:
    program = "import batchdp; print(batchdp.bounds.svd_lower_bound.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "svd_lower_bound\n"
