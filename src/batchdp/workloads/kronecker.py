"""Workloads given as products of columns' factors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Of a column, and of columns that one factor looks at together."""

Term = Sequence[ArrayLike | None] | Mapping[int | tuple[int, ...], ArrayLike]
"""A table: one factor or None per column; or factors by the column, or by the columns, that each looks at."""


@dataclass(frozen=True, eq=False)
class Factor:
    """The queries that a table has on one axis: rows of numbers, or each value by itself where there is no matrix.

    An axis is a column, or several columns together, whose values are then their combinations, the last column fastest.
    """

    size: int
    """How many values the axis has."""
    given: Dense | None = None

    @property
    def rows(self) -> int:
        """How many queries it has."""
        return self.size if self.given is None else len(self.given)

    @property
    def matrix(self) -> Dense:
        """Its matrix, query × value."""
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
        factors: for every axis the distinct factors that tables have on it: the columns, then the joint ones.
        starts: table t has the axes columns[starts[t]:starts[t + 1]]; no two of them look at the same column.
        columns: the axes of all tables, one table after the other, each table's in the order of their first columns.
        chosen: for each entry of `columns`, the number of its factor.
        weights: how much the squared error of each of a table's queries counts when a strategy is chosen.
        names: one distinct name per table; made from the columns' names if left out.
        column_names: what the columns are called; a1, a2, … if left out.
        joint: sets of columns, each in ascending order, that factors look at together; joint[j] is axis len(sizes) + j.
    """

    sizes: tuple[int, ...]
    factors: tuple[tuple[Factor, ...], ...]
    starts: Indices
    columns: Indices
    chosen: Indices
    weights: Dense
    names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    joint: tuple[tuple[int, ...], ...] = ()

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
        looked = tuple(sorted(c for axis in own for c in self.looked_at(axis)))
        called = (f"a{c + 1}" if self.column_names is None else self.column_names[c] for c in looked)
        name = (" × ".join(called) or "total") if self.names is None else self.names[number]
        return Table(name, looked, tuple(factor.rows for factor in own.values()))

    def looked_at(self, axis: int) -> tuple[int, ...]:
        """The columns of an axis."""
        return (axis,) if axis < len(self.sizes) else self.joint[axis - len(self.sizes)]

    def values_of(self, axis: int, records: Indices) -> Indices:
        """The value on an axis of every record, which are given by their codes, record × column."""
        own = self.looked_at(axis)
        if len(own) == 1:
            return np.asarray(records[:, axis])
        shape = [self.sizes[c] for c in own]
        return np.asarray(np.ravel_multi_index([records[:, c] for c in own], shape), dtype=np.int64)

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
        """For every table the product of one value per column that it looks at."""
        found = np.ones(len(self.starts) - 1)
        lengths = np.diff(self.starts)
        for place in range(int(lengths.max(initial=0))):
            there = lengths > place
            found[there] *= values[self.starts[:-1][there] + place]
        return found

    def factors_of(self, table: int) -> dict[int, Factor]:
        """The factor of every axis of a table."""
        span = slice(self.starts[table], self.starts[table + 1])
        return {int(c): self.factors[c][k] for c, k in zip(self.columns[span], self.chosen[span], strict=True)}

    def asks_as(self, other: KroneckerWorkload) -> bool:
        """Whether another batch has the same tables, by the same names, over the same columns; weights may differ."""
        if self is other:
            return True
        if self.sizes != other.sizes or self.joint != other.joint or list(self.tables) != list(other.tables):
            return False
        factors = (
            zip(*(one.factors_of(t).values() for one in (self, other)), strict=True) for t in range(len(self.tables))
        )
        return all(one.asks_as(another) for pairs in factors for one, another in pairs)

    def answers_of(self, table: int, record: Indices) -> Dense:
        """One table's answers on a single record, given by its codes, as an array of the table's shape."""
        found: Dense = np.ones(())
        for i, factor in self.factors_of(table).items():
            found = np.multiply.outer(found, factor.matrix[:, int(self.values_of(i, record[None])[0])])
        return found

    def ask(self, table: int, cells: Dense) -> Dense:
        """A table's answers from the whole table of its columns."""
        found, left = cells, list(self.tables[table].columns)
        for axis, factor in self.factors_of(table).items():
            looked = self.looked_at(axis)
            found = np.moveaxis(found, [left.index(c) for c in looked], range(-len(looked), 0))
            found = found.reshape(*found.shape[: -len(looked)], -1)
            found = found if factor.given is None else found @ factor.given.T
            left = [c for c in left if c not in looked]
        return np.asarray(found)

    def matrix_of(self, table: int) -> sparse.csr_array:
        """One table's queries over all cells."""
        return self.matrix_on(table, [np.arange(n) for n in self.sizes])

    def matrix_on(self, table: int, kept: Sequence[Indices]) -> sparse.csr_array:
        """One table's queries over the cells of some values of every column."""
        own = self.factors_of(table)
        asked = {c for axis in own for c in self.looked_at(axis)}
        # Axes in the order of their first columns: cells are where they should be, unless joint axes interleave.
        beside = (c for c in range(len(self.sizes)) if c not in asked)
        axes = sorted([*own, *beside], key=lambda axis: self.looked_at(axis)[0])
        found = sparse.csr_array(np.ones((1, 1)))
        for axis in axes:
            values = self._among(axis, kept)
            part = own[axis].entries[:, values] if axis in own else sparse.csr_array(np.ones((1, len(values))))
            found = sparse.csr_array(sparse.kron(found, part, format="csr"))
        order = [c for axis in axes for c in self.looked_at(axis)]
        if order == sorted(order):
            return found
        places = np.arange(found.shape[1]).reshape([len(kept[c]) for c in order])
        return sparse.csr_array(found[:, places.transpose(np.argsort(order)).reshape(-1)])

    def asking(
        self, tables: Sequence[Mapping[int, Dense]], names: tuple[str, ...] | None, weights: Dense
    ) -> KroneckerWorkload:
        """Other tables over the same axes, each with a matrix for every axis that it has, in their order."""
        factors: list[list[Factor]] = [[] for _ in self.factors]
        known: dict[tuple[int, int, bytes], int] = {}
        axes: list[tuple[int, int]] = []
        for axis, matrix in (one for table in tables for one in table.items()):
            n = matrix.shape[1]
            each = axis < len(self.sizes) and matrix.shape == (n, n) and np.array_equal(matrix, np.eye(n))
            key = axis, len(matrix), b"each" if each else np.ascontiguousarray(matrix).tobytes()
            if key not in known:
                known[key] = len(factors[axis])
                factors[axis].append(Factor(n, None if each else matrix))
            axes.append((axis, known[key]))
        columns, chosen = np.array(axes, dtype=np.int64).reshape(-1, 2).T.copy()
        starts = np.concatenate([[0], np.cumsum(list(map(len, tables)))]).astype(np.int64)
        given = tuple(map(tuple, factors))
        return KroneckerWorkload(
            self.sizes, given, starts, columns, chosen, weights, names, self.column_names, self.joint
        )

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
        """How many coefficients are not zero."""
        every = [np.arange(n) for n in self.sizes]
        return sum(self.entries_on(t, every) for t in range(len(self.tables)))

    def entries_on(self, table: int, kept: Sequence[Indices]) -> int:
        """How many coefficients of one table's queries are not 0, over the cells of some values of every column."""
        own = self.factors_of(table)
        asked = {c for axis in own for c in self.looked_at(axis)}
        beside = prod(len(values) for c, values in enumerate(kept) if c not in asked)
        return beside * prod(
            len(kept[axis]) if factor.given is None else int(np.count_nonzero(factor.given[:, self._among(axis, kept)]))
            for axis, factor in own.items()
        )

    def _among(self, axis: int, kept: Sequence[Indices]) -> Indices:
        """The values of an axis for some values of each of its columns."""
        looked = self.looked_at(axis)
        shape = [self.sizes[c] for c in looked]
        return np.asarray(np.ravel_multi_index(np.ix_(*(kept[c] for c in looked)), shape)).reshape(-1)

    def query_names(self) -> Iterator[str]:
        """A name for every query: the table's, and which of its cells."""
        for table in self.tables:
            if not table.shape:
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
        raise WorkloadError(f"{name}={sizes!r} is not a list of sizes, one per column") from error
    if not shape:
        raise WorkloadError(f"{name} is empty; give at least one column's number of values")
    if max(shape) > MOST_VALUES:
        raise WorkloadError(f"{name} has a column of {max(shape):,} values, more than {MOST_VALUES:,}; group them")
    return shape


def _many(number: int) -> str:
    """A number that may have hundreds of digits."""
    return f"{number:,}" if number < 10**12 else f"{str(number)[0]}e{len(str(number)) - 1}"


def products(
    sizes: Iterable[int], terms: Iterable[Term], *, names: Iterable[str] | None = None, weights: ArrayLike | None = None
) -> Workload:
    """A batch of tables, each a product of factors; never multiplied out beyond what fits.

    Args:
        sizes: how many values every column has.
        terms: the tables. A table has one factor a column: a 2-D array whose rows are queries on that column, or None
            where the column does not matter. Or it is a dictionary of factors by column, `{0: F, 2: G}`, where a factor
            may look at several columns together, `{(0, 1): F, 2: G}`: its rows are then queries on the combinations of
            their values, the last column fastest, a million at most. A table's queries are all combinations of its
            factors' rows, those of the first column slowest. A table that is asked twice is answered twice, and its
            error counts twice.
        names: one distinct name per table, by which its answers are found.
        weights: how much the squared error of each of a table's queries counts; 1 if left out.

    Returns: a `MatrixWorkload` with names and the factors beside it where that fits; else a `KroneckerWorkload`.
    """
    batch = in_factors(sizes, terms, names=names, weights=weights)
    return batch.workload() if batch.fits else batch


def in_factors(
    sizes: Iterable[int], terms: Iterable[Term], *, names: Iterable[str] | None = None, weights: ArrayLike | None = None
) -> KroneckerWorkload:
    """The same, kept in factors whatever its size."""
    shape = column_sizes("sizes", sizes)
    found = _Factors(shape)
    try:
        listed = [term if isinstance(term, Mapping) else list(term) for term in terms]
    except TypeError as error:
        raise WorkloadError("terms must be a list of tables, each a list with a factor or None per column") from error
    if not listed:
        raise WorkloadError("terms is empty; give at least one table, a factor or None per column")
    tables = [found.table(t, term) for t, term in enumerate(listed)]
    first = [own[0] for own in found.axes]
    # Joint axes are numbered as they are met: columns first.
    ordered = [sorted(own, key=lambda axis: first[axis[0]]) for own in tables]
    columns, chosen = np.array([one for own in ordered for one in own], dtype=np.int64).reshape(-1, 2).T.copy()
    return KroneckerWorkload(
        shape,
        tuple(map(tuple, found.distinct)),
        np.concatenate([[0], np.cumsum(list(map(len, tables)))]).astype(np.int64),
        columns,
        chosen,
        np.ones(len(listed)) if weights is None else checked_weights(weights, len(listed), "table"),
        _table_names(names, [[c for axis, _ in own for c in found.axes[axis]] for own in ordered]),
        joint=tuple(found.axes[len(shape) :]),
    )


class _Factors:
    """The axes, and the distinct factors of every one, found by what they hold."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self.axes: list[tuple[int, ...]] = [(i,) for i in range(len(sizes))]
        self.distinct: list[list[Factor]] = [[] for _ in sizes]
        self._numbers: dict[tuple[int, ...], int] = {own: axis for axis, own in enumerate(self.axes)}
        self._known: dict[tuple[int, bytes], int] = {}
        self._seen: dict[tuple[tuple[int, ...], int], tuple[Any, tuple[int, int] | None]] = {}  # holds on to the ids

    def table(self, number: int, term: Sequence[Any] | Mapping[Any, Any]) -> list[tuple[int, int]]:
        """The axes of a table that matter, each with the number of its factor."""
        if not isinstance(term, Mapping):
            if len(term) != len(self._sizes):
                raise WorkloadError(
                    f"terms[{number}] has {len(term)} factors for {len(self._sizes)} columns; give None where none is"
                )
            term = dict(enumerate(term))
        looked: set[int] = set()
        own = []
        for key, factor in term.items():
            columns, name = tuple(key) if isinstance(key, tuple) else (key,), f"terms[{number}][{key}]"
            for c in columns:
                if isinstance(c, bool) or not isinstance(c, int | np.integer) or not 0 <= c < len(self._sizes):
                    raise WorkloadError(
                        f"{name}: {c!r} is not a column; columns are numbered from 0 to {len(self._sizes) - 1}"
                    )
                if c in looked:
                    raise WorkloadError(
                        f"{name} looks at column {c} once more; give one factor for all columns together"
                    )
                looked.add(int(c))
            if not columns:
                raise WorkloadError(f"{name} names no column; name the columns that the factor looks at, like (0, 1)")
            own.append(self._number(name, columns, factor))
        return [one for one in own if one is not None]

    def _number(self, name: str, columns: tuple[int, ...], factor: ArrayLike | None) -> tuple[int, int] | None:
        """The axis, and which of its factors it is; None where it does not matter."""
        if factor is None:
            return None
        if (columns, id(factor)) not in self._seen:
            self._seen[columns, id(factor)] = factor, self._checked(name, columns, factor)
        return self._seen[columns, id(factor)][1]

    def _checked(self, name: str, columns: tuple[int, ...], factor: ArrayLike) -> tuple[int, int] | None:
        n = prod(self._sizes[c] for c in columns)
        called = f"column {columns[0]} has" if len(columns) == 1 else f"columns {', '.join(map(str, columns))} have"
        if n > MOST_VALUES:
            raise WorkloadError(f"{name}: {called} {n:,} combinations of values, more than {MOST_VALUES:,}; group them")
        try:
            F = np.array(factor.toarray() if sparse.issparse(factor) else factor, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise WorkloadError(f"{name} is not a matrix of numbers ({error}); give rows of {n} numbers") from error
        if F.ndim != 2 or F.shape[1] != n:
            raise WorkloadError(f"{name} has shape {F.shape}; {called} {n} values, so give rows of {n}")
        if len(F) == 0:
            raise WorkloadError(f"{name} has no rows, so the table is empty; leave it out, or give None")
        if not np.all(np.isfinite(F)):
            raise WorkloadError(f"{name} holds NaN or infinite entries; give finite numbers")
        sizes = np.abs(F[F != 0])
        if sizes.size and (sizes.max() > LARGEST or sizes.min() < SMALLEST):
            raise WorkloadError(f"{name} has entries beyond {SMALLEST:g} to {LARGEST:g} in magnitude; rescale it")
        columns, F = _as_few_columns(columns, F, self._sizes)
        if len(F) == 1 and np.all(F == 1):
            return None
        return self.number(columns, F)

    def number(self, columns: tuple[int, ...], F: Dense) -> tuple[int, int]:
        """The axis of these columns, and which of its factors this is."""
        n = F.shape[1]
        each = len(columns) == 1 and F.shape == (n, n) and bool(np.all(F.diagonal() == 1)) and np.count_nonzero(F) == n
        F.flags.writeable = False
        axis = self._numbers.setdefault(columns, len(self.axes))
        if axis == len(self.axes):
            self.axes.append(columns)
            self.distinct.append([])
        key = axis, b"each" if each else np.int64(len(F)).tobytes() + F.tobytes()
        if key not in self._known:
            self._known[key] = len(self.distinct[axis])
            self.distinct[axis].append(Factor(n, None if each else F))
        return axis, self._known[key]


def _as_few_columns(columns: tuple[int, ...], F: Dense, sizes: Sequence[int]) -> tuple[tuple[int, ...], Dense]:
    """The columns that a factor tells values of apart, in ascending order, and the factor on these; one at least."""
    order = np.argsort(columns)
    wide = F.reshape(-1, *(sizes[c] for c in columns)).transpose(0, *(1 + order))
    left = [columns[place] for place in order]
    for c in left[::-1]:
        axis = 1 + left.index(c)
        if len(left) > 1 and np.all(wide == np.take(wide, [0], axis=axis)):
            wide = np.take(wide, 0, axis=axis)
            left.remove(c)
    return tuple(int(c) for c in left), np.ascontiguousarray(wide.reshape(len(F), -1))


def _table_names(names: Iterable[str] | None, tables: list[list[int]]) -> tuple[str, ...]:
    if names is not None:
        given = tuple(map(str, names))
        if len(given) != len(tables):
            raise WorkloadError(f"names has {len(given)} entries for {len(tables)} tables; give one per table")
        if len(set(given)) < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise WorkloadError(f"names has {twice!r} more than once; give every table a name of its own")
        return given
    return distinct(" × ".join(f"a{i + 1}" for i in sorted(own)) or "total" for own in tables)


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
