"""What the reproduction raises on purpose."""

from __future__ import annotations

from batchdp.errors import BatchDPError


class ReproductionError(BatchDPError):
    """The paper's evaluation cannot be run: data or results that are missing, damaged or of another run."""
