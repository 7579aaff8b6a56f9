"""A piece of a measurement in integers, and how much one record can change all pieces of a list, exactly.

Q = K ⊗ (n I − J) for every spread, with K near J_piece · s / Π n: as n I − J is n times I − J/n, Q is s times what the
strategy measures, but for the rounding. Its sensitivity is that of the rounded integers, so rounding costs accuracy,
never privacy. Where K spans what the queries need, nothing is missing, however few bits it has: K is made of rows of
small whole numbers H that span the same as J_piece, if there are such, K = round(C s) H with C H = J_piece; else a
column that is centred by a measure m / D stays centred as D K − (K m) 1ᵀ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod

import numpy as np

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import Integers
from batchdp.mechanism.sensitivity import LIMB
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.terms import ResidualFactor

LARGEST_REFIT = 4000
"""Measurements up to which what is recovered is fitted anew."""
MOST_DENOMINATOR = 2**12
"""Of a measure that columns are centred by in integers."""
LARGEST_BASIS = 1000
"""Measurements up to which a basis of whole numbers is looked for."""
LARGEST_WHOLE = 2**10
"""Of the entries of such a basis: what they take of the lattice's bits, rounding has no longer."""
MOST_SCALAR = 2**14
NEAR_ENOUGH = 5e-4
"""Of proportions between whole numbers."""
CENTRED = 1e-9
"""What is left of an average, relative, where a piece is centred."""


@dataclass(frozen=True, eq=False)
class IntegerPiece(ResidualFactor):
    """Measure K of the matrix columns' orbits, times n I − J of every spread column; recover from that."""

    measure: Integers
    """K: measurement × combination of orbits, the last column fastest."""
    missing: Dense | None = None
    """What is not recovered of each combination, per record: combination × combination; None where nothing is."""


def count_spread(spread: Iterable[tuple[int, int]], columns: Sequence[Column]) -> int:
    """Combinations of the values that spreads look at."""
    return prod(int(columns[i].counts[o]) for i, o in spread)


def masses_of(column: Column, average: Dense) -> tuple[Integers, int] | None:
    """The measure that a column is averaged by as whole numbers over their sum, by orbit; None where it is none."""
    measure = np.bincount(column.orbit, average, minlength=column.orbits)
    for D in (len(column.orbit), *(2**power for power in range(10, 13))):
        m = np.rint(measure * D)
        if D <= MOST_DENOMINATOR and np.all(np.abs(m / D - measure) <= 1e-15) and int(m.sum()) == D:
            return m.astype(np.int64), D
    return None


def centre_columns(
    piece: ResidualFactor, columns: Sequence[Column], masses: Mapping[int, tuple[Integers, int]]
) -> tuple[int, ...]:
    """The matrix columns along which a piece has no average, by measures that are whole numbers."""
    shape = [columns[i].orbits for i in piece.matrix]
    found = []
    for axis, i in enumerate(piece.matrix):
        if i in masses and shape[axis] > 1:
            m, D = masses[i]
            left = np.tensordot(piece.measure.reshape(-1, *shape), m / D, axes=(axis + 1, 0))
            if np.abs(left).max(initial=0.0) <= CENTRED * np.abs(piece.measure).max(initial=0.0):
                found.append(i)
    return tuple(found)


def quantise_piece(
    piece: ResidualFactor, columns: Sequence[Column], bits: int, masses: Mapping[int, tuple[Integers, int]], common: int
) -> IntegerPiece:
    """The piece on a lattice on which measuring 1 is 2^bits · common; `common` has all the denominators as factors."""
    times = count_spread(piece.spread, columns)
    basis = integer_basis(piece.measure)
    centred = centre_columns(piece, columns, masses) if basis is None else ()
    fine = 2.0**bits * (common // prod(masses[i][1] for i in centred)) / times
    if basis is None:
        K = np.rint(piece.measure * fine).astype(np.int64)
    else:
        C = np.linalg.lstsq(basis.T.astype(np.float64), piece.measure.T, rcond=None)[0].T
        K = np.rint(C * fine).astype(np.int64) @ basis
    shape = [columns[i].orbits for i in piece.matrix]
    for axis, i in enumerate(piece.matrix):
        if i in centred:
            m, D = masses[i]
            wide = K.reshape(-1, *shape)
            average = np.expand_dims(np.tensordot(wide, m, axes=(axis + 1, 0)), axis + 1)
            K = (D * wide - average).reshape(K.shape)
    if np.abs(K).max(initial=0) >= 2 ** (2 * LIMB):
        raise LatticeError("a measurement has entries that do not become integers of the lattice's size")
    return _solve_recovery(piece, K, times, 2.0**bits * common)


def scalar_piece(piece: ResidualFactor, K: int, times: float) -> IntegerPiece:
    """A piece without matrix columns as K ⊗ (n I − J): its size is free."""
    recover = piece.recover * piece.measure / (float(K) * times)
    return IntegerPiece((), piece.spread, np.array([[K]], dtype=np.int64), recover)


def scalar_pieces(pieces: Sequence[ResidualFactor], columns: Sequence[Column]) -> tuple[IntegerPiece, ...]:
    """Pieces without matrix columns as whole numbers in nearly their proportion, the smallest that are near enough."""
    if len(pieces) == 1:
        return (scalar_piece(pieces[0], 1, count_spread(pieces[0].spread, columns)),)
    times = np.array([count_spread(piece.spread, columns) for piece in pieces], dtype=float)
    sizes = np.array([abs(float(piece.measure[0, 0])) for piece in pieces]) / times
    top = float(sizes.max())
    best, least = np.ones(len(pieces)), np.inf
    for m in range(1, MOST_SCALAR + 1):
        k = np.rint(sizes * (m / top))
        off = float(np.abs(k / (sizes * (m / top)) - 1).max()) if k.min() >= 1 else np.inf
        if off < least:
            best, least = k, off
        if least <= NEAR_ENOUGH:
            break
    if not np.isfinite(least):
        raise LatticeError("measurements of a list are of so different sizes that they do not fit one lattice")
    return tuple(scalar_piece(piece, int(k), n) for piece, k, n in zip(pieces, best, times, strict=True))


def integer_basis(J: Dense) -> Integers | None:
    """Rows of small whole numbers with the same span: its reduced echelon form, each row times a denominator; or None.

    Where J has as many rows as columns, every K of that rank will do.
    """
    if not 0 < len(J) < J.shape[1] or len(J) > LARGEST_BASIS:
        return None
    R = J / np.abs(J).max()
    row = 0
    for column in range(R.shape[1]):
        pivot = row + int(np.argmax(np.abs(R[row:, column])))
        if abs(R[pivot, column]) <= 1e-9:
            continue
        R[[row, pivot]] = R[[pivot, row]]
        R[row] /= R[row, column]
        others = np.arange(len(R)) != row
        R[others] -= np.outer(R[others, column], R[row])
        row += 1
        if row == len(R):
            break
    if row < len(R):
        return None
    H = np.zeros(R.shape, dtype=np.int64)
    for i, values in enumerate(R):
        fractions = [Fraction(float(value)).limit_denominator(LARGEST_WHOLE) for value in values]
        D = lcm(*(fraction.denominator for fraction in fractions))
        whole = [int(D * fraction) for fraction in fractions]
        if max(map(abs, whole)) > LARGEST_WHOLE or np.abs(values * D - whole).max() > 1e-7:
            return None
        H[i] = whole
    return H


def _solve_recovery(piece: ResidualFactor, K: Integers, times: int, size: float) -> IntegerPiece:
    """With what recovers the queries from K itself."""
    if K.shape == (1, 1) and not piece.matrix:
        if K[0, 0] == 0:
            raise LatticeError("a measurement vanishes on the lattice; lower max_rows")
        return scalar_piece(piece, int(K[0, 0]), times)
    T = piece.recover @ piece.measure
    recover = piece.recover / size
    exact = K * float(times)
    missing = T - recover @ exact
    if len(K) <= LARGEST_REFIT and np.any(missing):
        for _ in range(2):  # once more for what rounding left
            recover = recover + np.linalg.lstsq(exact.T / size, missing.T, rcond=1e-13)[0].T / size
            missing = T - recover @ exact
    return IntegerPiece(piece.matrix, piece.spread, K, recover, missing)
