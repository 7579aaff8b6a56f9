"""A batch of linear queries as one value: the matrix W, the queries' names and how much each matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import (
    BLOCK_ENTRIES,
    Dense,
    Matrix,
    Plain,
    check_size,
    columns_of,
    frozen,
    plain,
    row_maxima,
    row_squares,
    rows_span,
    scale_rows,
)
from batchdp.linalg.product import CellMap, Product
from batchdp.text import Outcome, Shown
from batchdp.workloads.records import cells_of_records, checked_blocks, checked_ends, checked_meetings, checked_records


@dataclass(frozen=True, eq=False)
class Pair:
    """L and B with B L = R, the columns of L of norm at most 1: what every search here returns."""

    measure: Plain
    """L, one measurement per row and one class of cells per column."""
    reconstruct: Dense
    """B, one row of R per row and one measurement per column."""
    outcome: Outcome = Outcome.CLOSED_FORM
    rounds: int = 0

    @cached_property
    def error(self) -> float:
        """‖B‖²_F: half the expected squared error at ε = 1, and all of it at ρ = ½."""
        return float(np.vdot(self.reconstruct, self.reconstruct))


MOST_CHOICES = 20_000
"""Of a cell or none in each block, that are looked at one by one."""
LARGEST = 1e100
SMALLEST = 1e-100
"""Outside these magnitudes the squares that measure error would overflow or vanish."""


@dataclass(frozen=True)
class Table:
    """A part of the answers: the combinations of some columns' queries, as an array of this shape; () for one query."""

    name: str
    columns: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def queries(self) -> int:
        """How many answers it has."""
        return prod(self.shape)


Made = TypeVar("Made")


class Lazily(Sequence[Made]):
    """What is made when it is asked for, by its number."""

    def __init__(self, numbers: range, make: Callable[[int], Made]) -> None:
        self._numbers, self._make = numbers, make

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        found = self._numbers[index]
        return [self._make(i) for i in found] if isinstance(found, range) else self._make(found)


class Workload:
    """A batch of linear queries, table after table: as a matrix (`MatrixWorkload`) or in factors (`KroneckerWorkload`).

    `Workload(matrix, names, weights)` makes a `MatrixWorkload`, and takes what that takes.
    """

    weights: Dense | None
    """How much a query's, or each of a table's queries', squared error counts; None where all count alike."""

    if TYPE_CHECKING:

        @property
        def matrix(self) -> Any:
            """W, as a matrix of some kind."""

        @property
        def names(self) -> Any:
            """Of the queries, or of the tables."""

        @property
        def structure(self) -> Any:
            """The same batch in factors, where it came so."""

    def __new__(cls, *given: Any, **named: Any) -> MatrixWorkload:
        """A matrix, unless a subclass asks."""
        return super().__new__(MatrixWorkload if cls is Workload else cls)

    @property
    def queries(self) -> int:
        """m, the number of queries."""
        raise NotImplementedError

    @property
    def cells(self) -> int:
        """n, the number of cells."""
        raise NotImplementedError

    @property
    def tables(self) -> Sequence[Table]:
        """The tables, in the order of the answers; a query that is in no other is one by itself."""
        raise NotImplementedError

    def table_sizes(self) -> Dense:
        """How many queries every table has."""
        raise NotImplementedError

    def table_tops(self) -> Dense:
        """For every table the most that one record can change one of its queries, in one block."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class MatrixWorkload(Workload, Shown):
    """A batch of m linear queries over n cells; the true answers are W x for cell counts x.

    A pandas frame keeps its labels, of its index as names and of its columns as cell names.

    Args:
        matrix: W, one query per row and one cell per column: any array-like or scipy.sparse matrix of finite
            real numbers, or a `Product` whose right factor says which column each cell has. It is copied and cannot be
            written to afterwards.
        names: one distinct name per query; "q1", "q2", … if left out.
        weights: how much each query's squared error counts when a strategy is chosen; 1 each if left out.
        blocks: how many cells each block has, left to right. A record falls into at most one cell of every block;
            there is one block with all cells if left out.
        meetings: sets of blocks, by number, that one record can have a cell in at once; all blocks if left out. Blocks
            that meet nowhere exclude each other, and the same budget serves both.
        structure: the same batch as products of columns' factors, where it came as one.
        ends: pairs of cells of one block between which a record can lie, as a mixture of both: the lower and the upper
            cell, −1 for none, and in how many steps one gets from one to the other.
        cell_names: what the cells are called, if anything.
        records: for every kind of record that exists its cell in each block, −1 for none; then a record changes what
            its cells change together, not what the worst cells of all blocks do. None if they are not listed.
    """

    matrix: Matrix
    names: tuple[str, ...]
    weights: Dense | None
    blocks: tuple[int, ...]
    meetings: tuple[tuple[int, ...], ...]
    structure: Any
    ends: tuple[tuple[int, int, int], ...]
    cell_names: tuple[str, ...] | None
    records: NDArray[np.int32] | None

    def __init__(
        self,
        matrix: ArrayLike | Any,
        names: Iterable[str] | None = None,
        weights: ArrayLike | None = None,
        blocks: Iterable[int] | None = None,
        structure: Any = None,
        meetings: Iterable[Iterable[int]] | None = None,
        ends: Iterable[tuple[int, int, int]] = (),
        cell_names: Iterable[str] | None = None,
        records: ArrayLike | None = None,
    ) -> None:
        if names is None:
            names = _labels(matrix, "index")
        if cell_names is None:
            cell_names = _labels(matrix, "columns")
        W = _checked_matrix(matrix)
        queries = W.shape[0]
        object.__setattr__(self, "matrix", W)
        object.__setattr__(self, "names", _checked_names(names, queries))
        object.__setattr__(self, "weights", None if weights is None else checked_weights(weights, queries, "query"))
        object.__setattr__(self, "blocks", (W.shape[1],) if blocks is None else checked_blocks(blocks, W.shape[1]))
        object.__setattr__(self, "meetings", checked_meetings(meetings, len(self.blocks)))
        object.__setattr__(self, "structure", structure)
        object.__setattr__(self, "ends", checked_ends(ends, self.blocks))
        called = None if cell_names is None else _checked_names(cell_names, W.shape[1], "cell")
        object.__setattr__(self, "cell_names", called)
        object.__setattr__(self, "records", None if records is None else checked_records(records, self.blocks))
        if self.ends and self.records is not None:
            raise WorkloadError(
                "workload has records and ends; records between two cells are of no kind that is listed"
            )
        if isinstance(W, Product) and len(self.blocks) > 1:
            raise WorkloadError("workload is a product, which has one block; give blocks with a plain matrix")

    @property
    def queries(self) -> int:
        """m, the number of queries."""
        return int(self.matrix.shape[0])

    @property
    def cells(self) -> int:
        """n, the number of cells."""
        return int(self.matrix.shape[1])

    @property
    def tables(self) -> Sequence[Table]:
        """Those of the products that it came as; else every query by itself."""
        alone = Lazily(range(self.queries), lambda query: Table(self.names[query], (), ()))
        return alone if self.structure is None else self.structure.tables

    def table_sizes(self) -> Dense:
        """How many queries every table has."""
        return np.ones(self.queries) if self.structure is None else np.asarray(self.structure.table_sizes())

    def table_tops(self) -> Dense:
        """For every table the most that one record can change one of its queries."""
        return row_maxima(self.matrix) if self.structure is None else np.asarray(self.structure.table_tops())

    @property
    def is_sparse(self) -> bool:
        """Whether the matrix is stored sparse."""
        return sparse.issparse(self.matrix)

    @property
    def _kind(self) -> str:
        if isinstance(self.matrix, Product):
            return f"{self.matrix.left.shape[1]} distinct cells"
        return "sparse" if self.is_sparse else "dense"

    @cached_property
    def norm(self) -> float:
        """‖W‖_F, to which residuals are relative."""
        return float(np.sqrt(np.sum(row_squares(self.matrix))))

    @property
    def weighted(self) -> Matrix:
        """W with every row times the square root of its weight: its plain total error is the weighted one."""
        return self.matrix if self.weights is None else scale_rows(self.matrix, np.sqrt(self.weights))

    @cached_property
    def kinds(self) -> sparse.csc_array | None:
        """Cell × kind of record: 1 where the kind has the cell; None where the kinds are unknown or too many.

        Where `records` are not listed, every choice of a cell or none in each block is one. What several records of a
        unit add is a mixture of what as many kinds add, so that no norm of it is above the largest of theirs.
        """
        if self.records is not None:
            return cells_of_records(self.records, self.blocks)
        sizes = [size + 1 for size in self.blocks]
        if len(sizes) == 1 or len(self.meetings) > 1 or self.ends or prod(sizes) > MOST_CHOICES:
            return None
        chosen = np.stack(np.unravel_index(np.arange(prod(sizes)), sizes), axis=1)
        return cells_of_records(chosen.astype(np.int32) - 1, self.blocks)

    def of_kinds(self) -> MatrixWorkload:
        """The same queries with the kinds of records as cells: one block, whose strategies count every kind."""
        assert self.kinds is not None
        return MatrixWorkload(
            sparse.csr_array(sparse.csr_array(plain(self.matrix)) @ self.kinds), self.names, self.weights
        )

    def largest_by_block(self, values: NDArray[Any]) -> NDArray[Any]:
        """The largest of one value per cell in every block: a record has at most one of them."""
        starts = np.cumsum((0, *self.blocks[:-1]))
        return np.asarray(np.maximum.reduceat(values, starts))

    def most_together(self, by_block: Sequence[int]) -> int:
        """The largest sum of one whole number per block over the blocks that a record can have a cell in, exactly."""
        return max(sum(int(by_block[block]) for block in met) for met in self.meetings)

    def met_parts(self) -> list[list[int]]:
        """The meetings, by numbers of `parts`: blocks that no query looks at have none."""
        starts = np.cumsum((0, *self.blocks[:-1])).tolist()
        place = {starts.index(cells.start): k for k, (_, cells, _) in enumerate(self.parts())}
        return [[place[block] for block in met if block in place] for met in self.meetings]

    def summed_together(self) -> list[list[int]] | None:
        """Sets of `parts` whose bounds add up to one for all; None where all of them do: no query spans several."""
        if len(self.meetings) == 1 or not rows_span(self.matrix, self.blocks):
            return None
        return self.met_parts()

    def parts(self) -> Iterator[tuple[NDArray[np.intp], slice, MatrixWorkload]]:
        """Every block as a workload of its own: which queries it has, its cells, and it."""
        if isinstance(self.matrix, Product):
            yield np.arange(self.queries), slice(0, self.cells), self
            return
        columns = self.matrix if isinstance(self.matrix, np.ndarray) else sparse.csc_array(self.matrix)
        start = 0
        for size in self.blocks:
            cells = slice(start, start + size)
            part = columns[:, cells]
            own = part if isinstance(part, np.ndarray) else sparse.csr_array(part)
            rows = np.flatnonzero(row_squares(own))
            if rows.size:
                weights = None if self.weights is None else self.weights[rows]
                yield rows, cells, MatrixWorkload(own[rows], [self.names[q] for q in rows], weights)
            start += size

    def __repr__(self) -> str:
        kind = self._kind
        weighted = "" if self.weights is None else ", weighted"
        blocks = "" if len(self.blocks) == 1 else f" in {len(self.blocks)} blocks"
        return f"Workload({self.queries} queries × {self.cells} cells{blocks}, {kind}{weighted})"


def as_workload(workload: MatrixWorkload | ArrayLike | Any) -> MatrixWorkload:
    """The workload itself, or one made from a matrix with default names and weights."""
    if isinstance(workload, MatrixWorkload):
        return workload
    from batchdp.workloads.kronecker import KroneckerWorkload

    if isinstance(workload, KroneckerWorkload):
        return workload.workload()  # refused there if it is too large
    if isinstance(getattr(workload, "workload", None), Workload):
        raise WorkloadError(f"workload is a {type(workload).__name__}, which answers one; give its .workload")
    return MatrixWorkload(workload)


def _checked_matrix(matrix: Any) -> Matrix:
    if isinstance(matrix, Product):
        return _checked_product(matrix)
    W = _sparse(matrix) if sparse.issparse(matrix) else _array(matrix)
    if W.shape[0] == 0 or W.shape[1] == 0:
        raise WorkloadError(f"workload has shape {W.shape}; it needs at least one query and one cell")
    entries = W if isinstance(W, np.ndarray) else W.data
    # min and max see every NaN and infinity without a mask of the matrix's size.
    low, high = (float(entries.min()), float(entries.max())) if entries.size else (0.0, 0.0)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise WorkloadError("workload holds NaN or infinite entries; every coefficient must be finite")
    if max(-low, high) > LARGEST:
        raise WorkloadError(
            f"workload holds an entry of magnitude {max(-low, high):.3g}; rescale the queries so that "
            f"every coefficient is below {LARGEST:g}"
        )
    if _has_tiny(entries.reshape(-1)):
        raise WorkloadError(
            f"workload holds an entry below {SMALLEST:g} that is not 0; set it to 0 or rescale its query"
        )
    return frozen(W, own=True)


def _has_tiny(entries: Dense) -> bool:
    """Whether an entry is so small that its square vanishes; in blocks, so that no mask has the matrix's size."""
    for start in range(0, entries.size, BLOCK_ENTRIES):
        block = np.abs(entries[start : start + BLOCK_ENTRIES])
        if np.any((block < SMALLEST) & (block > 0)):
            return True
    return False


def _checked_product(matrix: Product) -> Product:
    """Columns that are checked, and for every cell which one it has."""
    if isinstance(matrix.left, Product) or isinstance(matrix.right, Product):
        raise WorkloadError("workload is a product of more than two matrices; multiply the first ones out")
    if matrix.cell_map is None or not np.all(matrix.cell_map.factors == 1):
        raise WorkloadError("workload is a product whose right factor does not choose one column per cell")
    left, right = _checked_matrix(matrix.left), matrix.right
    if right.shape[0] != left.shape[1] or right.shape[1] == 0:
        raise WorkloadError(f"workload is a product of {left.shape} and {right.shape}, which do not fit")
    used, classes = np.unique(matrix.cell_map.classes, return_inverse=True)
    if len(used) < left.shape[1]:  # a column that no cell has would count as one that some cell may have
        left = frozen(columns_of(left, used), own=True)
    if len(used) < right.shape[0] or not isinstance(right, sparse.csc_array) or right.dtype != np.float64:
        right = CellMap(classes, np.ones(len(classes)), len(used)).matrix()
    return Product(plain(left), frozen(right))


def _sparse(matrix: Any) -> Plain:
    if matrix.ndim != 2:
        raise WorkloadError(f"workload has {matrix.ndim} dimension(s); it must be a matrix, one query per row")
    entries: Any = matrix if matrix.format == "csr" else sparse.coo_array(matrix)
    _check_kind(entries.dtype, entries.data)
    # Floats first: small integers would overflow where duplicates are summed.
    W = sparse.csr_array(entries.astype(np.float64))
    if not W.has_canonical_format:
        W.sum_duplicates()
    if not np.all(W.data):
        W.eliminate_zeros()
    return W


def _array(matrix: Any) -> Dense:
    try:
        given = np.asarray(matrix)
    except (ValueError, TypeError) as error:
        raise WorkloadError(
            f"workload is not a matrix ({error}); give rows of numbers, all of the same length"
        ) from error
    if isinstance(given, np.ma.MaskedArray) or isinstance(matrix, np.ma.MaskedArray):
        raise WorkloadError("workload is a masked array; fill its gaps, for instance with 0")
    if given.size == 0:
        raise WorkloadError(f"workload has shape {given.shape}; it needs at least one query and one cell")
    if given.ndim == 2:
        check_size(*given.shape)
    _check_kind(given.dtype, given)
    if given.ndim != 2:
        raise WorkloadError(
            f"workload has {given.ndim} dimension(s); it must be a matrix, one query per row: "
            "wrap a single query in another pair of brackets"
        )
    with np.errstate(over="ignore"):  # wider floats become infinite, which is refused
        return np.array(given, dtype=np.float64, order="C")


def _check_kind(dtype: np.dtype[Any], entries: Any) -> None:
    if dtype.kind not in "biuf":
        raise WorkloadError(f"workload has entries of type {dtype}; every coefficient must be a real number")
    if dtype.kind in "iu" and isinstance(entries, np.ndarray) and entries.size:
        largest = max(abs(int(entries.min())), abs(int(entries.max())))
        if largest > 2**53:
            raise WorkloadError(f"workload holds the integer {largest}, which float64 cannot hold; rescale it")


def _labels(matrix: Any, axis: str) -> list[str] | None:
    """The labels of a pandas frame along an axis as texts; None for other matrices, and where it has only numbered."""
    labels = getattr(matrix, axis, None) if hasattr(type(matrix), "iloc") else None
    return None if labels is None or type(labels).__name__ == "RangeIndex" else [label_text(one) for one in labels]


def label_text(label: object) -> str:
    """A label of a frame as a text: what it says, of several levels one after the other."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _checked_names(names: Iterable[str] | None, count: int, what: str = "query") -> tuple[str, ...]:
    if names is None:
        return tuple(f"q{i}" for i in range(1, count + 1))
    if isinstance(names, str):
        raise WorkloadError(f"names={names!r} is one text; give a list with one name per {what}")
    try:
        checked = tuple(names)
    except TypeError as error:
        raise WorkloadError(f"names={names!r} is not a list; give one name per {what}") from error
    if len(checked) != count:
        many = "queries" if what == "query" else f"{what}s"
        raise WorkloadError(f"names has {len(checked)} entries for {count} {many}; give one name per {what}")
    seen: set[str] = set()
    for name in checked:
        if not isinstance(name, str) or not name.strip():
            raise WorkloadError(f"names holds {name!r}; every name must be a text that is not blank")
        if name in seen:
            raise WorkloadError(f"names holds {name!r} twice; every {what} needs its own name")
        seen.add(name)
    return checked


def checked_weights(weights: ArrayLike, count: int, what: str) -> Dense:
    """One weight for each query or table, refused unless every one can be meant."""
    try:
        if np.iscomplexobj(weights):
            raise TypeError("complex numbers")
        checked = np.array(weights, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise WorkloadError(f"weights are not numbers: {weights!r} ({error}); give one number per {what}") from error
    if checked.shape != (count,):
        raise WorkloadError(f"weights has shape {checked.shape}, not ({count},); give one number per {what}")
    if not np.all((checked >= SMALLEST) & (checked <= LARGEST)):
        raise WorkloadError(f"weights must be finite and above 0; leave out a {what} that does not matter")
    checked.flags.writeable = False
    return checked
