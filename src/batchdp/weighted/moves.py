"""From one choice of measured tables to a better one.

Weights alone end in a valley: a table that is not measured is never worth a little weight, only a lot at once. So
tables are changed by hand: a larger one takes the place of all that it contains, one loses a column, or takes the
difference of one. All changes of a round are priced at once, with a few weights each; the best that do not meddle with
one another are made, and the weights fitted anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchdp.strategies.account import Account
from batchdp.weighted.family import Asked, Dense, Fitted, Flags, Tables, fit, seen, sizes_of

GRID = (0.3, 0.5, 0.75, 1.0, 1.4)
"""The new table's weight, relative to the weight of those whose place it takes."""
MOST_ENTRIES = 6_000_000
"""Components times changes that are priced in a round."""
ROUNDS = 60
"""Of fitting the weights after a change."""
LEAST_GAIN = 1e-5
FEW_COLUMNS = 10
"""Up to which all sets of columns are tried as one more table."""
ANY = 200
"""Sets of columns that are tried so where there are more."""
PRICE = 1 / 4e8
"""Nominal seconds an operation of pricing changes and fitting weights; measured."""
ONE_MORE = 0.2
"""What the weight of one more table is relative to, all others having 1 together."""


def improve(asked: Asked, start: Fitted, rng: np.random.Generator, account: Account, *, patience: int = 2) -> Fitted:
    """Change tables until no change pays, or the account is over."""
    best, at_once, failed = start, 64, 0
    while failed < patience:
        new, gone, gain, weight = _priced(asked, best, rng)
        work = float(len(asked.needed)) * (len(new) * (2 * len(GRID) + len(best.tables) / 4))
        better = False
        if len(new):
            while True:
                chosen = _apart(gone, gain, at_once)
                changed = _made(best, new, gone, weight, chosen)
                found = fit(asked, *changed, ROUNDS)
                work += 8.0 * found.evaluations * len(asked.needed) * len(best.tables)
                if found.value < best.value * (1 - LEAST_GAIN):
                    best, better = found, True
                    break
                if len(chosen) <= 1:
                    break
                at_once = max(1, len(chosen) // 4)
        failed = 0 if better else failed + 1
        at_once = min(64, 2 * at_once) if better else at_once
        account.charge(work * PRICE)
        if account.over():
            break
    return best


def _candidates(asked: Asked, tables: Tables, rng: np.random.Generator, most: int) -> tuple[Tables, Flags]:
    """New tables, and for each which of the present ones it takes the place of."""
    S, d = tables.apart.shape
    looked = tables.looked
    parts: list[tuple[Flags, Flags, Flags]] = []  # apart, difference, gone

    def alone(which: NDArray[np.int64]) -> Flags:
        gone = np.zeros((len(which), S), dtype=bool)
        gone[np.arange(len(which)), which] = True
        return gone

    # One more column, and everything below.
    one, column = np.nonzero(~tables.apart)
    grown = tables.apart[one].copy()
    grown[np.arange(len(one)), column] = True
    parts.append((grown, np.zeros_like(grown), _inside(looked, grown)))
    parts.append((grown, tables.difference[one] & ~grown, alone(one)))
    # Two as one.
    count = min(S * (S - 1) // 2, 4 * len(one) + 64)
    first, second = rng.integers(0, S, count), rng.integers(0, S, count)
    union = looked[first] | looked[second]
    parts.append((union, np.zeros_like(union), _inside(looked, union)))
    # One column less.
    one, column = np.nonzero(looked)
    less, fewer = tables.apart[one].copy(), tables.difference[one].copy()
    less[np.arange(len(one)), column] = fewer[np.arange(len(one)), column] = False
    parts.append((less, fewer, alone(one)))
    one, column = np.nonzero(tables.apart & asked.two)
    less, more = tables.apart[one].copy(), tables.difference[one].copy()
    less[np.arange(len(one)), column], more[np.arange(len(one)), column] = False, True
    parts.append((less, more, alone(one)))
    # Any other, beside all that there are.
    some = _every(d) if d <= FEW_COLUMNS else rng.random((ANY, d)) < rng.uniform(0.1, 0.9, (ANY, 1))
    extra = np.concatenate([some, less])
    parts.append((extra, np.zeros_like(extra), np.zeros((len(extra), S), dtype=bool)))
    apart, difference, gone = (np.concatenate([part[k] for part in parts]) for k in range(3))
    if len(apart) > most:
        kept = np.sort(rng.choice(len(apart), most, replace=False))
        apart, difference, gone = apart[kept], difference[kept], gone[kept]
    return Tables(apart, difference), gone


def _every(d: int) -> Flags:
    """All sets of columns."""
    return np.asarray((np.arange(2**d)[:, None] >> np.arange(d)) & 1, dtype=bool)


def _inside(looked: Flags, grown: Flags) -> Flags:
    """New table × present table: whether the present one looks at no other column."""
    outside = (~grown).astype(np.float32) @ looked.T.astype(np.float32)
    return np.asarray(outside < 0.5)


def _priced(asked: Asked, now: Fitted, rng: np.random.Generator) -> tuple[Tables, Flags, Dense, Dense]:
    """The changes that pay: new tables, what each replaces, the gain and the weight."""
    N = len(asked.needed)
    new, gone = _candidates(asked, now.tables, rng, max(200, MOST_ENTRIES // N))
    size = sizes_of(asked, now.tables)
    squares = seen(asked.needed, now.tables) * (size * now.theta**2)
    eigenvalues = squares.sum(axis=1)
    left = eigenvalues[:, None] - squares @ gone.T
    left[left < 1e-12 * eigenvalues[:, None]] = 0.0
    freed = gone @ now.theta
    added = seen(asked.needed, new) * sizes_of(asked, new)
    best, weight = np.full(len(new), np.inf), np.zeros(len(new))
    with np.errstate(divide="ignore", over="ignore"):
        for share in GRID:
            theta = share * np.where(freed > 0, freed, ONE_MORE)
            values = (1 - freed + theta) ** 2 * (asked.amount @ (1 / (left + added * theta**2)))
            lower = values < best
            best[lower], weight[lower] = values[lower], theta[lower]
    gain = now.value - best
    pays = np.flatnonzero(gain > LEAST_GAIN * now.value)
    # Unfitted weights hide some of what a change is worth: those that nearly pay are tried where none does.
    if not len(pays):
        pays = np.argsort(-gain, kind="stable")[:3]
        pays = pays[np.isfinite(gain[pays])]
    return new.chosen(pays), gone[pays], gain[pays], weight[pays]


def _apart(gone: Flags, gain: Dense, most: int) -> list[int]:
    """The best changes that do not replace the same tables."""
    taken = np.zeros(gone.shape[1], dtype=bool)
    chosen: list[int] = []
    for k in np.argsort(-gain, kind="stable"):
        if not np.any(gone[k] & taken):
            chosen.append(int(k))
            taken |= gone[k]
        if len(chosen) == most:
            break
    return chosen


def _made(now: Fitted, new: Tables, gone: Flags, weight: Dense, chosen: list[int]) -> tuple[Tables, Dense]:
    kept = ~np.any(gone[chosen], axis=0)
    tables = now.tables.chosen(kept).with_(new.chosen(chosen))
    theta = np.concatenate([now.theta[kept], weight[chosen]])
    first = tables.distinct()
    return tables.chosen(first), theta[first]
