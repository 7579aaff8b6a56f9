"""Consistent answers for several commands: a bar, and Ctrl-C for the best so far."""

from __future__ import annotations

from batchdp.cli.show import progress
from batchdp.release import Consistent, Release


def made_consistent(release: Release, *, whole: bool) -> Consistent:
    """What `release.consistent()` gives."""
    with progress("Making answers agree (Ctrl-C: the best so far)") as bar:
        return release.consistent(whole=whole, progress=bar)
