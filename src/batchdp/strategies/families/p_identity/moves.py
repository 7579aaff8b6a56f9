"""Changes of a p-Identity strategy's shared queries by hand, from one valley to the next."""

from __future__ import annotations

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.packed import pack, shared_of


def split(packed: Dense) -> Dense:
    """The wider half of the shared queries, each split in two."""
    T = _used(packed)
    if len(T) == 0:
        return hop(packed, np.random.default_rng(0))
    filled = np.abs(T) > 1e-6 * np.abs(T).max(initial=0.0)
    for i in np.argsort(-filled.sum(axis=1), kind="stable")[: (len(T) + 1) // 2]:
        T = _halved(T, int(i))
    return pack(T + 0.02 * np.random.default_rng(len(T)).random(T.shape))


def hop(packed: Dense, rng: np.random.Generator) -> Dense:
    """One shared query merged into another, split in two, or moved along the columns."""
    T = _used(packed)
    q, n = T.shape
    if q == 0:
        return pack(rng.random((1, n)))
    level = float(np.abs(T).max())
    move = int(rng.integers(3)) if q > 1 else 1
    one = int(rng.integers(q))
    if move == 0:
        other = (one + 1 + int(rng.integers(q - 1))) % q
        T[one] += T[other]
        T = np.delete(T, other, axis=0)
    elif move == 1:
        T = _halved(T, one)
    else:
        T[one] = np.roll(T[one], int(rng.choice([-5, -3, -2, -1, 1, 2, 3, 5])))
    return pack(T + 0.02 * level * rng.random(T.shape))


def _halved(T: Dense, one: int) -> Dense:
    """A shared query's columns given to two, those on the left to one of them."""
    support = np.flatnonzero(np.abs(T[one]) > 1e-6 * np.abs(T[one]).max())
    low = np.arange(T.shape[1]) < support[len(support) // 2]
    T = np.vstack([T, T[one] * ~low])
    T[one] *= low
    return T


def _used(packed: Dense) -> Dense:
    """The shared queries beside the identity, without those that are zero."""
    T = shared_of(packed)
    return np.asarray(T[np.abs(T).sum(axis=1) > 0])
