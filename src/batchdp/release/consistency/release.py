"""Consistent answers of a release: they agree, are nowhere below 0, and are whole if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.mechanism.reader import CellReader
from batchdp.progress import Outcome, Progress
from batchdp.release.consistency.cells import closest_cells
from batchdp.release.consistency.rounding import round_controlled
from batchdp.release.tables import Table

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.release import Release


INTERVALS = (
    "Standard errors and intervals belong to the noisy answers, not to the consistent ones. These are often closer to "
    "what is counted, not always, and are not unbiased: near-empty cells go up, and what is large goes down for them."
)
APART = "Where a batch is measured in blocks, answers of different blocks are fitted apart and need not agree."
WORTH_SAYING = 1e-6
"""Of the records that were moved to make tables agree: less is what averages of nearly equal margins leave."""
UNKEPT_SHOWN = 5


@dataclass(frozen=True)
class Rounding:
    """What whole numbers cost.

    Args:
        largest_move: the most that an answer moved.
        unkept: margins on which tables no longer agree, each with the largest difference; the worst first.
        moved_totals: how many answers moved by 1 or more.
    """

    largest_move: float
    moved_totals: int
    unkept: tuple[tuple[str, float], ...] = ()

    @property
    def adds_up(self) -> bool:
        """Whether all tables still agree."""
        return not self.unkept

    def with_moves(self, moves: Iterable[Any]) -> Rounding:
        """The same where these answers moved too."""
        found = self
        for own in moves:
            more = int((own >= 1).sum())
            found = replace(
                found,
                largest_move=max(found.largest_move, float(own.max(initial=0.0))),
                moved_totals=found.moved_totals + more,
            )
        return found

    def __str__(self) -> str:
        text = f"Whole numbers: no answer moved by more than {self.largest_move:.3g}"
        text += f", {self.moved_totals:,} by 1 or more; " if self.moved_totals else "; "
        if self.adds_up:
            return text + "everything still adds up."
        named = ", ".join(f"{name} (by up to {difference:g})" for name, difference in self.unkept[:UNKEPT_SHOWN])
        more = f" and {len(self.unkept) - UNKEPT_SHOWN:,} more" if len(self.unkept) > UNKEPT_SHOWN else ""
        return text + f"the total and every column's margin add up, these shared margins no longer do: {named}{more}."


def notes(status: Outcome, rounding: Rounding | None, lifted: float = 0.0, *, apart: bool = False) -> tuple[str, ...]:
    """Sentences for files, pages and the terminal; `apart` where there may be blocks."""
    found = [INTERVALS, *([APART] if apart else [])]
    if status is Outcome.CANCELLED:
        found.append("The search was stopped: the best so far agrees and is not negative, yet is not the closest.")
    elif status in (Outcome.OUT_OF_ROUNDS, Outcome.OUT_OF_TIME, Outcome.STALLED):
        found.append(
            f"The search ended early ({status}): the answers agree and are not negative, yet may not be the closest."
        )
    if lifted >= WORTH_SAYING:
        found.append(
            f"To make tables agree, {lifted:.2g} of the records were spread as every column's margin is: the total "
            "and, nearly, margins of one column are those of a search that ended; larger tables may be worse."
        )
    if rounding is not None:
        found.append(str(rounding))
    return tuple(found)


def beside(frame: pd.DataFrame, values: Any) -> pd.DataFrame:
    """A table with consistent values, and the noisy ones as "raw"; without intervals, which are not theirs."""
    groups = frame.iloc[:, :-4].copy()
    raw = unused("raw", groups.columns)
    groups["value"] = values
    groups[raw] = frame["value"].to_numpy()
    return groups


def unused(heading: str, taken: Iterable[str]) -> str:
    """The heading, with a "_" more where a column has it already."""
    known = set(taken)
    while heading in known:
        heading += "_"
    return heading


Dense = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fitted:
    """Linear answers that agree.

    Args:
        read: the consistent values of a table of linear answers, by its number.
        status: how the search ended.
        gap: how far the squared distance to the noisy answers may be above the least, as a share of it.
        lifted: records that were moved to make tables agree where the search ended early, as a share of all.
        rounding: what whole numbers cost; None where they were not asked for.
        apart: whether a batch may have been measured in blocks, which are fitted by themselves.
    """

    read: Callable[[int], Dense] = field(repr=False)
    status: Outcome
    rounding: Rounding | None = None
    gap: float = 0.0
    lifted: float = 0.0
    apart: bool = False


@dataclass(frozen=True, eq=False)
class Consistent:
    """Answers that agree with one another and with records that could exist. Post-processing, free of charge.

    Args:
        release: what was released; its answers and intervals stay as they are.
        fitted: the linear answers, from which derived ones are computed.
    """

    release: Release = field(repr=False)
    fitted: Fitted

    @cached_property
    def values(self) -> Dense:
        """The consistent answers, in the order of `release.answers`."""
        return np.concatenate([np.zeros(0), *(own for _, own in self.release.evaluated(self.fitted.read))])

    @property
    def raw(self) -> Dense:
        """The noisy answers as they were released."""
        return self.release.values

    @property
    def status(self) -> Outcome:
        """How the search ended."""
        return self.fitted.status

    @property
    def gap(self) -> float:
        """How far the squared distance to the noisy answers may be above the least, as a share of it."""
        return self.fitted.gap

    @property
    def lifted(self) -> float:
        """Records that were moved to make tables agree where the search ended early, as a share of all."""
        return self.fitted.lifted

    @property
    def rounding(self) -> Rounding | None:
        """What whole numbers cost; None where they were not asked for."""
        return self.fitted.rounding

    @property
    def tables(self) -> Sequence[Table]:
        """As those of the release."""
        return self.release.tables

    @property
    def names(self) -> tuple[str, ...]:
        """Of the answers."""
        return self.release.names

    def each(self) -> Iterator[float]:
        """The values one by one, in the order of the release's answers."""
        for _, own in self.release.evaluated(self.fitted.read):
            yield from own.tolist()

    def array(self, table: int) -> Dense:
        """The consistent values of a table, by its number, as an array of the table's shape."""
        one = self.tables[self.release.checked_table(table)]
        return self.of_table(one).reshape(one.shape)

    def of_table(self, table: Table) -> Dense:
        """The consistent values of a table, in one dimension."""
        if table.linear is not None:
            return self.fitted.read(table.linear).reshape(-1)
        return self.values[np.asarray(table.answers, dtype=np.int64)]

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these answers."""
        return notes(self.status, self.rounding, self.lifted, apart=self.fitted.apart)

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value and raw, which is the noisy answer."""
        number = self.release.find(*columns, name=name)
        return beside(self.release.table(*columns, name=name), self.array(number).reshape(-1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Dense:
        """The values, for what takes arrays."""
        return np.array(self.values, dtype=dtype)

    def __repr__(self) -> str:
        whole = ", whole" if self.rounding is not None else ""
        return f"Consistent({len(self.release.answers):,} answers that agree{whole}; {self.status})"


def consistent_answers(release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """The closest linear answers that agree, and what follows from them."""
    from batchdp.release.consistency import released_tables  # noqa: F401  # which says how tables are fitted

    return Consistent(release, fit(release.reader, release, whole=whole, progress=progress))


@singledispatch
def fit(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Fitted:
    """Linear answers that agree, by the kind of reader; each registers its own."""
    raise TypeError(f"nothing says how the answers of a {type(reader).__name__} are made to agree")


@fit.register(CellReader)
def _(reader: CellReader, release: Release, *, whole: bool, progress: Progress | None) -> Fitted:
    W = _distinct(reader.workload)
    return fit_cells(W, release.linear_answers, reader.standard_errors, whole=whole, progress=progress)


def fit_cells(W: sparse.csr_array, values: Dense, errors: Dense, *, whole: bool, progress: Progress | None) -> Fitted:
    """The answers W x of the non-negative cells x that fit these best, rounded if asked; as one table."""
    fitted = closest_cells(*in_units_of_noise(W, values, errors), progress=progress)
    found = np.asarray(W @ fitted.x)
    if not whole:
        return Fitted(lambda _: found, fitted.status, apart=True)
    x = round_controlled(fitted.x, counted(W))[0].astype(np.float64)
    rounded = np.asarray(W @ x)
    moves = np.abs(rounded - found)
    cost = Rounding(float(moves.max(initial=0.0)), int(np.count_nonzero(moves >= 1)))
    return Fitted(lambda _: rounded, fitted.status, cost, apart=True)


def in_units_of_noise(workload: sparse.csr_array, values: Dense, errors: Dense) -> tuple[sparse.csr_array, Dense]:
    """Queries and answers, each over the standard error of the answer; those without noise ask for nothing."""
    precision = np.divide(1.0, errors, out=np.ones(len(errors)), where=errors > 0)
    return sparse.csr_array(sparse.diags_array(precision) @ workload), precision * values


def counted(workload: sparse.csr_array) -> sparse.csr_array:
    """The queries that count records, each cell once or not at all."""
    W = sparse.csr_array(workload)
    W.eliminate_zeros()
    lengths = np.diff(W.indptr)
    others = np.zeros(W.shape[0])
    np.add.at(others, np.repeat(np.arange(W.shape[0]), lengths), W.data != 1)
    return sparse.csr_array(W[np.flatnonzero((others == 0) & (lengths > 0))])


def _distinct(workload: sparse.csr_array) -> sparse.csr_array:
    """W on the cells that it tells apart: the others can be fitted as one."""
    W = sparse.csc_array(workload)
    W.sort_indices()
    keys: dict[bytes, int] = {}
    for j in range(W.shape[1]):
        part = slice(W.indptr[j], W.indptr[j + 1])
        keys.setdefault(W.indices[part].tobytes() + W.data[part].tobytes(), j)
    return sparse.csr_array(W[:, sorted(keys.values())])
