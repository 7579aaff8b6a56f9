"""For a given B and every column of R, measurements of least L1 norm that reproduce it.

min ‖l‖₁ subject to B l = R_j, by the alternating direction method on all columns at once: shrink, then go back to the
solutions of B l = R_j, which is one r × r product. Every iterate is a solution, so one may stop at any time.
"""

from __future__ import annotations

import numpy as np

from batchdp.linalg.matrix import Dense

ROUNDS = 200
"""The rounds after which a column stays as short as it is: every iterate is a solution, so none is needed."""
SHRINK = 0.5
"""By how much a round shrinks entries, as a multiple of their mean size; any value converges, to the same end."""


def least_measure(B: Dense, R: Dense, enough: float = 1.0) -> Dense:
    """L with B L = R to rounding; columns are shortened until their L1 norm is at most `enough`.

    B has full row rank. Most columns are short enough from the start, where L2 norms are least, or after a few rounds,
    and only those that are not take part in the next.
    """
    k, r = B.shape
    plus = np.linalg.pinv(B)
    L = plus @ R
    L += plus @ (R - B @ L)
    norms = np.abs(L).sum(axis=0)
    long = np.flatnonzero(norms > enough)
    if r == k or long.size == 0:
        return L
    onto = np.eye(r) - plus @ B
    base = L[:, long]
    l, u, shrink = base, np.zeros_like(base), SHRINK * float(np.abs(base).mean())
    for _ in range(ROUNDS):
        z = l + u
        u = np.clip(z, -shrink, shrink)
        z -= u
        l = base + onto @ (z - u)
        lengths = np.abs(l).sum(axis=0)
        better = lengths < norms[long]
        L[:, long[better]], norms[long[better]] = l[:, better], lengths[better]
        still = norms[long] > enough
        if not still.any():
            break
        if not still.all():
            long, base, l, u = long[still], base[:, still], l[:, still], u[:, still]
    return L
