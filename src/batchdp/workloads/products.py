"""Workloads given as products of columns' factors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.workloads.structure import Factor, KroneckerWorkload, column_sizes
from batchdp.workloads.workload import LARGEST, SMALLEST, MatrixWorkload

Dense = NDArray[np.float64]


def products(
    sizes: Iterable[int],
    terms: Iterable[Sequence[ArrayLike | None]],
    *,
    names: Iterable[str] | None = None,
    weights: ArrayLike | None = None,
) -> MatrixWorkload | KroneckerWorkload:
    """A batch of tables, each a product of factors; never multiplied out beyond what fits.

    Args:
        sizes: how many values every column has.
        terms: the tables. A table has one factor a column: a 2-D array whose rows are queries on that column, or None
            where the column does not matter. Its queries are all combinations of its factors' rows, the first column
            slowest. A table that is asked twice is answered twice, and its error counts twice.
        names: one distinct name a table, by which its answers are found.
        weights: how much the squared error of each of a table's queries counts; 1 if left out.

    Returns: a `MatrixWorkload` with names and the factors beside it where that fits; else a `KroneckerWorkload`.
    """
    batch = in_factors(sizes, terms, names=names, weights=weights)
    return batch.workload() if batch.fits else batch


def in_factors(
    sizes: Iterable[int],
    terms: Iterable[Sequence[ArrayLike | None]],
    *,
    names: Iterable[str] | None = None,
    weights: ArrayLike | None = None,
) -> KroneckerWorkload:
    """The same, kept in factors whatever its size."""
    shape = column_sizes("sizes", sizes)
    found = _Factors(shape)
    lengths: list[int] = []
    columns: list[int] = []
    chosen: list[int] = []
    try:
        listed = [list(term) for term in terms]
    except TypeError as error:
        raise WorkloadError("terms must be a list of tables, each a list with a factor or None a column") from error
    if not listed:
        raise WorkloadError("terms is empty; give at least one table, a factor or None a column")
    for t, term in enumerate(listed):
        if len(term) != len(shape):
            raise WorkloadError(f"terms[{t}] has {len(term)} factors for {len(shape)} columns; give None where none is")
        own = [(i, found.number(t, i, factor)) for i, factor in enumerate(term)]
        own = [(i, k) for i, k in own if k >= 0]
        lengths.append(len(own))
        columns += [i for i, _ in own]
        chosen += [k for _, k in own]
    return KroneckerWorkload(
        shape,
        tuple(map(tuple, found.distinct)),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array(columns, dtype=np.int64),
        np.array(chosen, dtype=np.int64),
        _checked_weights(weights, len(listed)),
        _table_names(names, lengths, columns),
    )


class _Factors:
    """The distinct factors of every column, found by what they hold."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self.distinct: list[list[Factor]] = [[] for _ in sizes]
        self._known: list[dict[bytes, int]] = [{} for _ in sizes]
        self._seen: dict[tuple[int, int], tuple[Any, int]] = {}  # holds on to what it has seen, so that ids stay taken

    def number(self, table: int, column: int, factor: ArrayLike | None) -> int:
        """Which of the column's factors it is; −1 where the column does not matter."""
        if factor is None:
            return -1
        if (column, id(factor)) not in self._seen:
            self._seen[column, id(factor)] = factor, self._checked(f"terms[{table}][{column}]", column, factor)
        return self._seen[column, id(factor)][1]

    def _checked(self, name: str, column: int, factor: ArrayLike) -> int:
        n = self._sizes[column]
        try:
            F = np.array(factor.toarray() if sparse.issparse(factor) else factor, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise WorkloadError(f"{name} is not a matrix of numbers ({error}); give rows of {n} numbers") from error
        if F.ndim != 2 or F.shape[1] != n:
            raise WorkloadError(f"{name} has shape {F.shape}; column {column} has {n} values, so give rows of {n}")
        if len(F) == 0:
            raise WorkloadError(f"{name} has no rows, so the table is empty; leave it out, or give None")
        if not np.all(np.isfinite(F)):
            raise WorkloadError(f"{name} holds NaN or infinite entries; give finite numbers")
        sizes = np.abs(F[F != 0])
        if sizes.size and (sizes.max() > LARGEST or sizes.min() < SMALLEST):
            raise WorkloadError(f"{name} has entries beyond {SMALLEST:g} to {LARGEST:g} in magnitude; rescale it")
        if len(F) == 1 and np.all(F == 1):
            return -1
        each = F.shape == (n, n) and bool(np.all(F.diagonal() == 1)) and np.count_nonzero(F) == n
        F.flags.writeable = False
        key = b"each" if each else np.int64(len(F)).tobytes() + F.tobytes()
        if key not in self._known[column]:
            self._known[column][key] = len(self.distinct[column])
            self.distinct[column].append(Factor(n, None if each else F))
        return self._known[column][key]


def _table_names(names: Iterable[str] | None, lengths: list[int], columns: list[int]) -> tuple[str, ...]:
    if names is not None:
        given = tuple(map(str, names))
        if len(given) != len(lengths):
            raise WorkloadError(f"names has {len(given)} entries for {len(lengths)} tables; give one a table")
        if len(set(given)) < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise WorkloadError(f"names has {twice!r} more than once; give every table a name of its own")
        return given
    made: list[str] = []
    times: dict[str, int] = {}
    ends = np.cumsum(lengths)
    for length, end in zip(lengths, ends, strict=True):
        name = " × ".join(f"a{i + 1}" for i in columns[end - length : end]) or "total"
        times[name] = times.get(name, 0) + 1
        made.append(name if times[name] == 1 else f"{name} ({times[name]})")
    return tuple(made)


def _checked_weights(weights: ArrayLike | None, tables: int) -> Dense:
    if weights is None:
        return np.ones(tables)
    try:
        w = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"weights are not numbers ({error}); give one above 0 for each table") from error
    if w.shape != (tables,):
        raise WorkloadError(f"weights has shape {w.shape} for {tables} tables; give one above 0 for each table")
    if not np.all((w >= SMALLEST) & (w <= LARGEST)):
        raise WorkloadError(
            f"weights must be finite and above 0, {SMALLEST:g} to {LARGEST:g}; leave a table out instead"
        )
    return w
