"""Searches for Gaussian strategies over many columns: groups of tables, their measures and limits, the solver."""
