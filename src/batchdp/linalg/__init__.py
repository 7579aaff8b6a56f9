"""Matrices: dense, sparse and in factors; their ranks, projections and descents, one BLAS thread at a time."""
