"""Workloads given as products of columns' factors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from batchdp import errors
from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.workloads.matrix import LARGEST, SMALLEST, Lazily, MatrixWorkload, Table, Workload, checked_weights

MOST_SMALL = 20_000_000
"""Queries times cells of a batch that is made as a matrix with names."""
MOST_ENTRIES = 100_000_000
"""Non-zero coefficients of one that can be multiplied out on request."""
MOST_QUERIES = 20_000
"""Of either: each has a name."""
MOST_TABLES = 5_000_000
MOST_VALUES = 1_000_000
"""Of a column."""


@dataclass(frozen=True, eq=False)
class Factor:
    """The queries that a table has on one column: rows of numbers, or each value by itself where there is no matrix."""

    size: int
    """How many values the column has."""
    given: Dense | None = None

    @property
    def rows(self) -> int:
        """How many queries."""
        return self.size if self.given is None else len(self.given)

    @property
    def matrix(self) -> Dense:
        """Query × value."""
        return np.eye(self.size) if self.given is None else self.given

    @property
    def entries(self) -> sparse.csr_array:
        """The same without what is 0."""
        return sparse.eye_array(self.size, format="csr") if self.given is None else sparse.csr_array(self.given)

    def row(self, place: int) -> Dense:
        """One of the queries."""
        return np.eye(1, self.size, place)[0] if self.given is None else np.asarray(self.given[place])

    def asks_as(self, other: Factor) -> bool:
        """Whether another factor has the same queries."""
        if self.given is None or other.given is None:
            return self.size == other.size and self.given is other.given
        return np.array_equal(self.given, other.given)


@dataclass(frozen=True, eq=False)
class KroneckerWorkload(Workload):
    """A batch as a list of tables, each a product of factors. `products` and `marginals` make them.

    Args:
        sizes: how many values every column has.
        factors: for every column the distinct factors that tables have on it.
        starts, columns, chosen: table t looks at columns[starts[t]:starts[t + 1]], in ascending order, each with the
            factor of this number.
        weights: how much the squared error of each of a table's queries counts when a strategy is chosen.
        names: one distinct name a table; made from the columns' names if left out.
        column_names: what the columns are called; a1, a2, … if left out.
    """

    sizes: tuple[int, ...]
    factors: tuple[tuple[Factor, ...], ...]
    starts: Indices
    columns: Indices
    chosen: Indices
    weights: Dense
    names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for array in (self.starts, self.columns, self.chosen, self.weights):
            array.flags.writeable = False

    @property
    def structure(self) -> KroneckerWorkload:
        """Itself: what a matrix that came as products has under this name."""
        return self

    @property
    def tables(self) -> Lazily[Table]:
        """The tables, made when they are looked at."""
        return Lazily(range(len(self.starts) - 1), self._table)

    def _table(self, number: int) -> Table:
        own = self.factors_of(number)
        called = (f"a{c + 1}" if self.column_names is None else self.column_names[c] for c in own)
        name = (" × ".join(called) or "total") if self.names is None else self.names[number]
        return Table(name, tuple(own), tuple(factor.rows for factor in own.values()))

    @cached_property
    def queries(self) -> int:
        """m, the number of queries in all tables."""
        total = float(self.table_sizes().sum())
        return round(total) if total < 2**52 else sum(table.queries for table in self.tables)

    def table_sizes(self) -> Dense:
        """How many queries every table has."""
        return self.products_of(lambda factor: factor.rows)

    def table_tops(self) -> Dense:
        """For every table the most that one record can change one of its queries."""
        return self.products_of(lambda factor: 1.0 if factor.given is None else float(np.abs(factor.given).max()))

    def products_of(self, value: Callable[[Factor], float]) -> Dense:
        """For every table the product of a value of its factors."""
        most = max(1, max(map(len, self.factors)))
        values = np.array([[*map(value, own), *[0.0] * (most - len(own))] for own in self.factors], dtype=float)
        return self._products(values[self.columns, self.chosen])

    @property
    def cells(self) -> int:
        """How many combinations of values there are, as a whole number of any size."""
        return prod(self.sizes)

    def _products(self, values: Dense) -> Dense:
        """For every table the product of one value a column that it looks at."""
        found = np.ones(len(self.starts) - 1)
        lengths = np.diff(self.starts)
        for place in range(int(lengths.max(initial=0))):
            there = lengths > place
            found[there] *= values[self.starts[:-1][there] + place]
        return found

    def factors_of(self, table: int) -> dict[int, Factor]:
        """The factor of every column that a table looks at."""
        span = slice(self.starts[table], self.starts[table + 1])
        return {int(c): self.factors[c][k] for c, k in zip(self.columns[span], self.chosen[span], strict=True)}

    def asks_as(self, other: KroneckerWorkload) -> bool:
        """Whether another batch has the same tables, by the same names, over the same columns; weights may differ."""
        if self is other:
            return True
        if self.sizes != other.sizes or list(self.tables) != list(other.tables):
            return False
        factors = (
            zip(*(one.factors_of(t).values() for one in (self, other)), strict=True) for t in range(len(self.tables))
        )
        return all(one.asks_as(another) for pairs in factors for one, another in pairs)

    def answers_of(self, table: int, record: Indices) -> Dense:
        """One table's answers on a single record, given by its codes, as an array of the table's shape."""
        found: Dense = np.ones(())
        for i, factor in self.factors_of(table).items():
            found = np.multiply.outer(found, factor.matrix[:, record[i]])
        return found

    def matrix_of(self, table: int) -> sparse.csr_array:
        """One table's queries over all cells."""
        own = self.factors_of(table)
        found = sparse.csr_array(np.ones((1, 1)))
        for i, n in enumerate(self.sizes):
            part = own[i].entries if i in own else sparse.csr_array(np.ones((1, n)))
            found = sparse.csr_array(sparse.kron(found, part, format="csr"))
        return found

    @property
    def matrix(self) -> sparse.csr_array:
        """W, multiplied out; refused where that is too much."""
        if self.cells > MOST_ENTRIES or self.queries > MOST_QUERIES or self._filled > MOST_ENTRIES:
            raise WorkloadError(
                f"the batch has {self.queries:,} queries over {_many(self.cells)} cells, too much for a matrix with a "
                "name for each query; optimize takes it in factors, and answer, audit and epsilon_for take what that "
                "finds; for all else ask for fewer tables, or of fewer columns"
            )
        return sparse.csr_array(sparse.vstack([self.matrix_of(t) for t in range(len(self.tables))], format="csr"))

    @property
    def fits(self) -> bool:
        """Whether the batch is small enough to be a matrix in the first place."""
        return self.queries <= MOST_QUERIES and self.cells * self.queries <= MOST_SMALL

    @cached_property
    def _filled(self) -> int:
        """Non-zero coefficients."""
        return sum(
            prod(int(own[i].entries.count_nonzero()) if i in own else n for i, n in enumerate(self.sizes))
            for own in map(self.factors_of, range(len(self.tables)))
        )

    def query_names(self) -> Iterator[str]:
        """A name for every query: the table's, and which of its cells."""
        for table in self.tables:
            if not table.columns:
                yield table.name
            else:
                for place in np.ndindex(*table.shape):
                    yield f"{table.name} {','.join(map(str, place))}"

    def workload(self) -> MatrixWorkload:
        """The same batch with its matrix and a name for each query; it remembers its structure."""
        weights = np.repeat(self.weights, [table.queries for table in self.tables])
        plain = bool(np.all(self.weights == 1))
        return MatrixWorkload(self.matrix, self.query_names(), None if plain else weights, structure=self)

    def __repr__(self) -> str:
        return (
            f"Workload({self.queries:,} queries in {len(self.tables):,} tables over {len(self.sizes)} columns, "
            f"{_many(self.cells)} cells)"
        )


def column_sizes(name: str, sizes: Iterable[int]) -> tuple[int, ...]:
    """The columns' sizes, checked."""
    try:
        shape = tuple(errors.check_whole(f"{name}[{i}]", n, 1, WorkloadError) for i, n in enumerate(sizes))
    except TypeError as error:
        raise WorkloadError(f"{name}={sizes!r} is not a list of sizes, one a column") from error
    if not shape:
        raise WorkloadError(f"{name} is empty; give at least one column's number of values")
    if max(shape) > MOST_VALUES:
        raise WorkloadError(f"{name} has a column of {max(shape):,} values, more than {MOST_VALUES:,}; group them")
    return shape


def _many(number: int) -> str:
    """A number that may have hundreds of digits."""
    return f"{number:,}" if number < 10**12 else f"{str(number)[0]}e{len(str(number)) - 1}"


def products(
    sizes: Iterable[int],
    terms: Iterable[Sequence[ArrayLike | None]],
    *,
    names: Iterable[str] | None = None,
    weights: ArrayLike | None = None,
) -> Workload:
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
    found, tables = _Factors(shape), []
    try:
        listed = [list(term) for term in terms]
    except TypeError as error:
        raise WorkloadError("terms must be a list of tables, each a list with a factor or None a column") from error
    if not listed:
        raise WorkloadError("terms is empty; give at least one table, a factor or None a column")
    for t, term in enumerate(listed):
        if len(term) != len(shape):
            raise WorkloadError(f"terms[{t}] has {len(term)} factors for {len(shape)} columns; give None where none is")
        own = ((i, found.number(t, i, factor)) for i, factor in enumerate(term))
        tables.append([(i, k) for i, k in own if k >= 0])
    columns, chosen = np.array([one for own in tables for one in own], dtype=np.int64).reshape(-1, 2).T.copy()
    return KroneckerWorkload(
        shape,
        tuple(map(tuple, found.distinct)),
        np.concatenate([[0], np.cumsum(list(map(len, tables)))]).astype(np.int64),
        columns,
        chosen,
        np.ones(len(listed)) if weights is None else checked_weights(weights, len(listed), "table"),
        _table_names(names, tables),
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


def _table_names(names: Iterable[str] | None, tables: list[list[tuple[int, int]]]) -> tuple[str, ...]:
    if names is not None:
        given = tuple(map(str, names))
        if len(given) != len(tables):
            raise WorkloadError(f"names has {len(given)} entries for {len(tables)} tables; give one a table")
        if len(set(given)) < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise WorkloadError(f"names has {twice!r} more than once; give every table a name of its own")
        return given
    return distinct(" × ".join(f"a{i + 1}" for i, _ in own) or "total" for own in tables)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Names with a number behind those that come again."""
    times: dict[str, int] = {}
    made: dict[str, None] = {}
    for name in names:
        own = name
        while own in made:
            times[name] = times.get(name, 1) + 1
            own = f"{name} ({times[name]})"
        made[own] = None
    return tuple(made)
