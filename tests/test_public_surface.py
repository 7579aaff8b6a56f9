from __future__ import annotations

import batchdp


def test_every_export_exists_and_errors_share_one_root() -> None:
    for name in batchdp.__all__:
        exported = getattr(batchdp, name)
        if isinstance(exported, type) and issubclass(exported, Exception):
            assert issubclass(exported, batchdp.BatchDPError)
            assert exported.__doc__
    assert sorted(batchdp.__all__) == sorted(set(batchdp.__all__))
