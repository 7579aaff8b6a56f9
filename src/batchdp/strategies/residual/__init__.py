"""Gaussian strategies for batches over many columns, found and kept without ever having a number for each cell.

A query is split, column by column, into its average and what is left; what only some columns are left of is measured
over the table of these columns alone. See docs/many-columns.md for the formulas.
"""
