"""The nuclear norm of tables of up to two columns at a product of measures, without their matrix.

At a product of measures the functions of a record part into those of no column, of one, and of two, at right angles.
The Gram matrix T of the queries has nothing between the functions of two columns and those of two others, so that its
part D on all of these is diagonal in the eigenvectors of every two columns by themselves, and what is left is small:

    T = [H, C; Cᵀ, D],   tr T^½ = tr H^½ + tr D^½ + 1/(2π) ∫ φ(eᵗ) e^(t/2) dt,
    φ(s) = log det(H + s − C (D + s)⁻¹ Cᵀ) − log det(H + s).

The integrand is analytic where |Im t| < π, so that the sum over whole t is right to e^(−2π²), 3e-9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from batchdp.linalg.matrix import Dense, Indices
from batchdp.strategies.account import FLOPS, UNLIMITED, Account

Columns = tuple[int, ...]
Asked = tuple[Columns, tuple[Dense, ...], float]
"""A table: its columns, its factors, one per column or one for both together, and its weight."""

MOST_TOGETHER = 1500
"""Functions of two columns whose eigenvectors are sought where they do not follow from those of the columns."""
RANGE = 26
"""Of t below the logarithms of the eigenvalues, and half of it above: e^(−13) of the integral is outside."""
SURE = 1 - 1e-5
"""What of the norm is reported: more than rounding and the sum leave open."""
ROUNDING = 1e-14
"""Eigenvalues that count as rounding, relative to the largest."""
DIAGONAL = 1e-9
"""What is off the diagonal of one that counts as such, relative to its largest entry."""
EIGENVECTORS = 15.0
"""Operations that they take, as a multiple of the rows' third power."""


@dataclass(frozen=True, eq=False)
class _Two:
    """Two columns that tables look at together, and all such: D, C (D + s)⁻¹ Cᵀ, and where it belongs in H."""

    eigenvalues: Dense
    coupled: Callable[[float], Dense]
    places: list[Indices] = field(default_factory=list)


def norm_of_pairs(tables: Sequence[Asked], measures: Mapping[int, Dense], account: Account = UNLIMITED) -> float | None:
    """‖W diag(μ)^½‖_* for the product μ of the measures, rounded down; None where that is too large for this."""
    together: dict[Columns, list[Asked]] = {}
    for one in tables:
        together.setdefault(one[0], []).append(one)
    if any(len(columns) > 2 for columns in together):
        return None
    asked: dict[int, Dense] = {}  # of every column the factor of its first table of two columns, or else of one
    for columns, factors, _ in sorted(tables, key=lambda one: -len(one[0])):
        for c, F in zip(columns, factors, strict=False) if len(columns) == len(factors) else ():
            asked.setdefault(c, F)
    every = sorted({c for columns in together for c in columns})
    bases = {c: _basis(asked.get(c), measures[c]) for c in every}
    starts = dict(zip(bases, np.cumsum([1, *(len(Q) - 1 for Q in bases.values())]).tolist(), strict=False))
    H = np.zeros((1 + sum(len(Q) - 1 for Q in bases.values()),) * 2)
    known: dict[tuple[bytes, ...], tuple[_Two, Dense]] = {}
    for columns, own in together.items():
        turned = [(_turned(columns, factors, bases), weight) for _, factors, weight in own]
        place = np.concatenate([[0], *(starts[c] + np.arange(len(bases[c]) - 1) for c in columns)]).astype(np.int64)
        if len(columns) < 2:
            H[np.ix_(place, place)] += sum(weight * (M.T @ M) for (M,), weight in turned)
            continue
        alike = tuple(part.tobytes() for grams, weight in turned for part in (*grams, np.array(weight)))
        if alike not in known:
            sizes = len(bases[columns[0]]), len(bases[columns[1]])
            made = _product(turned) or _joint(turned, sizes, account)
            if made is None:
                return None
            known[alike] = made
        two, few = known[alike]
        two.places.append(place)
        H[np.ix_(place, place)] += few
    return SURE * _added_up(H, [two for two, _ in known.values()], account)


def _basis(F: Dense | None, measure: Dense) -> Dense:
    """diag(μ)^½ Q: the average first, the others such that what a factor asks of them is diagonal."""
    u = np.sqrt(measure)
    Q = np.linalg.qr(np.column_stack([u, np.eye(len(u))[:, : len(u) - 1]]))[0]
    if F is not None:
        R = (F * u) @ Q[:, 1:]
        Q[:, 1:] = Q[:, 1:] @ np.linalg.eigh(R.T @ R)[1]
    return np.asarray(u[:, None] * np.column_stack([u, Q[:, 1:]]))


def _turned(columns: Columns, factors: tuple[Dense, ...], bases: Mapping[int, Dense]) -> tuple[Dense, ...]:
    """The factors on the bases of their columns; the total as a factor of its own."""
    if not columns:
        return (np.ones((1, 1)),)
    if len(factors) == len(columns):
        return tuple(F @ bases[c] for F, c in zip(factors, columns, strict=True))
    one, other = (bases[c] for c in columns)
    (F,) = factors
    wide = np.einsum("qab,ax->qxb", F.reshape(len(F), len(one), len(other)), one) @ other
    return (wide.reshape(len(F), -1),)


Turned = list[tuple[tuple[Dense, ...], float]]


def _product(turned: Turned) -> tuple[_Two, Dense] | None:
    """Of tables with one product on two columns, from the columns' own eigenvectors; None if they have others."""
    (first, _), *others = turned
    if len(first) < 2 or any(len(M) < 2 or any(map(np.any, _differences(M, first))) for M, _ in others):
        return None
    weight = sum(own for _, own in turned)
    G, K = (M.T @ M for M in first)
    inside = np.maximum(G.diagonal()[1:], 0.0), np.maximum(K.diagonal()[1:], 0.0)
    if any(
        np.abs(X[1:, 1:] - np.diag(d)).max(initial=0.0) > 1e-9 * d.max(initial=0.0)
        for X, d in ((G, inside[0]), (K, inside[1]))
    ):
        return None
    h, k, (g, l) = G[1:, 0], K[1:, 0], inside
    D = weight * np.outer(g, l)

    def coupled(s: float) -> Dense:
        part = weight**2 / (D + s)
        by_one, by_other = part @ np.square(k), np.square(h) @ part
        corner = np.array([[np.square(h) @ by_one]])
        block = (g * h)[:, None] * part * (l * k)
        edges = (g * h * by_one)[:, None], (l * k * by_other)[:, None]
        return np.block(
            [
                [corner, edges[0].T, edges[1].T],
                [edges[0], np.diag(np.square(g) * by_one), block],
                [edges[1], block.T, np.diag(np.square(l) * by_other)],
            ]
        )

    across = np.outer(h, k)
    few = np.block(
        [
            [G[:1, :1] * K[0, 0], h[None] * K[0, 0], k[None] * G[0, 0]],
            [h[:, None] * K[0, 0], G[1:, 1:] * K[0, 0], across],
            [k[:, None] * G[0, 0], across.T, K[1:, 1:] * G[0, 0]],
        ]
    )
    return _Two(D.reshape(-1), coupled), weight * few


def _differences(one: tuple[Dense, ...], other: tuple[Dense, ...]) -> list[Dense]:
    return [M - N if M.shape == N.shape else np.ones(1) for M, N in zip(one, other, strict=True)]


def _joint(turned: Turned, sizes: tuple[int, int], account: Account) -> tuple[_Two, Dense] | None:
    """Of any tables on two columns, from the eigenvectors of what they ask together; None where these are too many."""
    one, other = sizes
    if (one - 1) * (other - 1) > MOST_TOGETHER:
        return None
    account.charge(EIGENVECTORS * float(one * other) ** 3 / FLOPS)
    T = np.zeros((one * other,) * 2)
    for parts, weight in turned:
        M = parts[0] if len(parts) == 1 else np.kron(*parts)
        T += weight * (M.T @ M)
    places = np.arange(one * other).reshape(one, other)
    few, many = np.concatenate([places[:, 0], places[0, 1:]]), places[1:, 1:].reshape(-1)
    D, V = np.linalg.eigh(T[np.ix_(many, many)])
    D = np.maximum(D, 0.0)
    C = T[np.ix_(few, many)] @ V

    def coupled(s: float) -> Dense:
        return np.asarray((C / (D + s)) @ C.T)

    return _Two(D, coupled), T[np.ix_(few, few)]


def _added_up(H: Dense, pairs: Sequence[_Two], account: Account) -> float:
    """tr T^½."""
    own = np.maximum(np.linalg.eigvalsh(H), 0.0)
    top = max(float(own[-1]), *(float(two.eigenvalues.max(initial=0.0)) for two in pairs), 0.0)
    if top == 0:
        return 0.0
    total = float(np.sqrt(own[own > ROUNDING * top]).sum())
    total += sum(len(two.places) * float(np.sqrt(two.eigenvalues).sum()) for two in pairs)
    every = np.concatenate([own, *(two.eigenvalues for two in pairs)])
    low, high = np.log(every[every > ROUNDING * top].min()), np.log(top)
    for t in np.arange(np.floor(low) - RANGE, high + RANGE / 2) if pairs else ():
        account.charge((len(H) ** 3 + 20.0 * sum(two.eigenvalues.size for two in pairs)) / FLOPS)
        s = float(np.exp(t))
        plain = float(np.log(own + s).sum())
        lost = len(H) * t - plain  # which is less than any loss, and taken where rounding hides it
        if s > ROUNDING * top:
            left = H + s * np.eye(len(H))
            for two in pairs:
                places = np.stack(two.places)
                np.subtract.at(left, (places[:, :, None], places[:, None, :]), two.coupled(s))
            sign, log = np.linalg.slogdet(left)
            lost = min(max(lost, float(log) - plain), 0.0) if sign > 0 else lost
        total += lost * s**0.5 / (2 * np.pi)
    return total
