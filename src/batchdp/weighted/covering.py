"""Starts for batches of very many whole tables: supersets of which each contains several of the asked ones.

With columns numbered 0 … d − 1, give every asked table of k columns one more column, the one that makes the sum of the
numbers a multiple of d. A set of k + 1 columns with such a sum comes from each of its k + 1 subsets, so that nearly all
tables of k columns are covered once by tables that are k + 1 times fewer. Where the column is in the table already, the
table stays as it is.
"""

from __future__ import annotations

import numpy as np

from batchdp.weighted.family import Asked, Dense, Flags, Tables, plain


def supersets(asked: Flags) -> Flags:
    """One more column for every table of as many columns as the largest; the others as they are."""
    lengths = asked.sum(axis=1)
    d = asked.shape[1]
    found = asked.copy()
    largest = np.flatnonzero(lengths == lengths.max())
    last = -(asked[largest] @ np.arange(d)) % d
    found[largest, last] = True
    return found


def starts(asked: Asked, tables: Tables) -> list[tuple[Tables, Dense]]:
    """The asked tables themselves, and supersets of the largest; the smaller ones with little weight."""
    found = []
    lengths = tables.apart.sum(axis=1)
    for apart in (tables.apart, supersets(tables.apart)):
        order = np.where(lengths == lengths.max(), 1.0, 1e-3)
        made = plain(apart)
        first = made.distinct()
        theta = order[first] * np.exp(-0.25 * np.log(asked.tau) @ made.apart[first].T)
        found.append((made.chosen(first), np.maximum(theta, theta.max() * 1e-6)))
    return found
