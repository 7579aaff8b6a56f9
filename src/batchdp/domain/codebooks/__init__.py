"""Codebooks: what somebody wrote down about a table's columns, as a start for its domain file."""

from batchdp.domain.codebooks.joining import joined
from batchdp.domain.codebooks.reading import Codebook, read_codebook

__all__ = ["Codebook", "joined", "read_codebook"]
