"""Laplace strategies for batches over many columns: tables that are measured whole, each with a weight of its own.

Centring a table doubles its L1 norm, so that components, which Gaussian noise is planned by, do not pay under Laplace
noise. See docs/many-columns.md for the formulas.
"""
