"""What is measured, and how answers are read from it: pairs of matrices, residuals and marginals over many columns."""

from __future__ import annotations

from batchdp.strategies import bounds

__all__ = ["bounds"]
