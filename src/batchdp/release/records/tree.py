"""Records from a tree of pairs: the pairs that say most of one another, and no circle (Chow and Liu 1968)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from batchdp.linalg.matrix import Dense, Indices
from batchdp.release.consistency.rounding import round_margin
from batchdp.release.records.fitting import Codes


def draw_from_tree(
    margins: Sequence[Dense], pairs: Mapping[tuple[int, int], Dense], n: int, rng: np.random.Generator
) -> Codes:
    """Records × columns: every column given one that came before it, with whole margins that fit.

    Args:
        margins: shares of every column's values.
        pairs: shares of pairs of values, by the columns in ascending order.
        n: how many records.
        rng: what is random comes from it.
    """
    whole = [round_margin(margin * n, n) for margin in margins]
    parents, told = strongest_tree(len(margins), pairs), np.zeros((n, len(margins)), dtype=np.int32)
    for column, parent in parents:
        if parent is None:
            told[:, column] = rng.permutation(np.repeat(np.arange(len(whole[column])), whole[column]))
            continue
        joint = pairs[parent, column] if parent < column else pairs[column, parent].T
        told[:, column] = _draw_given(told[:, parent], joint, margins[column], rng)
        give_margin(told[:, column], whole[column], rng)
    return told


def strongest_tree(columns: int, pairs: Mapping[tuple[int, int], Dense]) -> list[tuple[int, int | None]]:
    """Every column with the one that it is drawn given; None where nothing is known of it and those before."""
    strength = np.full((columns, columns), -np.inf)
    for (i, j), shares in pairs.items():
        strength[i, j] = strength[j, i] = mutual_information(shares)
    found: list[tuple[int, int | None]] = []
    best, parent = np.full(columns, -np.inf), np.full(columns, -1)
    left = np.ones(columns, dtype=bool)
    while left.any():
        column = int(np.argmax(np.where(left, best, -np.inf))) if np.isfinite(best[left]).any() else -1
        if column < 0:
            own = np.where(left, strength.max(axis=1, initial=-np.inf), -np.inf)
            column = int(np.argmax(own)) if np.isfinite(own).any() else int(np.argmax(left))
        found.append((column, None if best[column] == -np.inf else int(parent[column])))
        left[column] = False
        closer = strength[column] > best
        best, parent = np.where(closer, strength[column], best), np.where(closer, column, parent)
    return found


def mutual_information(shares: Dense) -> float:
    """Of the rows and columns of a table, in nats."""
    apart = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    there = shares > 0
    return float((shares[there] * np.log(shares[there] / apart[there])).sum())


def _draw_given(given: Codes, joint: Dense, margin: Dense, rng: np.random.Generator) -> Codes:
    """A value for every record, such that each pair comes as often as it should, to the next whole number."""
    counts = np.bincount(given, minlength=len(joint))
    rows = joint.sum(axis=1, keepdims=True)
    shares = np.where(rows > 0, joint / np.maximum(rows, 1e-300), margin)
    ends = np.cumsum(shares, axis=1)
    ends /= ends[:, -1:]
    # One offset for all: rows add up to whole numbers, so that each begins anew.
    reached = np.floor(ends * counts[:, None] + rng.random())
    reached[:, -1] = counts
    many = np.diff(np.minimum(reached, counts[:, None]), axis=1, prepend=0).astype(np.int64)
    found = np.empty(len(given), dtype=np.int32)
    order = np.argsort(given + rng.random(len(given)), kind="stable")
    found[order] = np.repeat(np.tile(np.arange(joint.shape[1]), len(joint)), many.reshape(-1))
    return found


def give_margin(values: Codes, margin: Indices, rng: np.random.Generator) -> None:
    """Change as few values as possible, at random, for each to come as often as it should."""
    surplus = np.bincount(values, minlength=len(margin)) - margin
    if not surplus.any():
        return
    order = rng.permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    starts = np.cumsum(np.bincount(values, minlength=len(margin))) - np.bincount(values, minlength=len(margin))
    place = np.arange(len(values)) - starts[values[order]]
    moved = order[place < np.maximum(surplus, 0)[values[order]]]
    values[moved] = rng.permutation(np.repeat(np.arange(len(margin)), np.maximum(-surplus, 0)))
