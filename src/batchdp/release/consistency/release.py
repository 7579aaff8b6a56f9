"""Consistent answers of a release: they agree, are nowhere below 0, and are whole if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense
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

    @classmethod
    def of(cls, moves: Iterable[Dense], unkept: tuple[tuple[str, float], ...] = ()) -> Rounding:
        """From how far the answers of every table moved."""
        found = [(float(own.max(initial=0.0)), int(np.count_nonzero(own >= 1))) for own in moves]
        return cls(max(most for most, _ in found), sum(far for _, far in found), unkept)

    @property
    def adds_up(self) -> bool:
        """Whether all tables still agree."""
        return not self.unkept

    def __str__(self) -> str:
        text = f"Whole numbers: no answer moved by more than {self.largest_move:.3g}"
        text += f", {self.moved_totals:,} by 1 or more; " if self.moved_totals else "; "
        if self.adds_up:
            return text + "everything still adds up."
        named = ", ".join(f"{name} (by up to {difference:g})" for name, difference in self.unkept[:UNKEPT_SHOWN])
        more = f" and {len(self.unkept) - UNKEPT_SHOWN:,} more" if len(self.unkept) > UNKEPT_SHOWN else ""
        return text + f"the total and every column's margin add up, these shared margins no longer do: {named}{more}."


def unused(heading: str, taken: Iterable[str]) -> str:
    """The heading, with a "_" more where a column has it already."""
    known = set(taken)
    while heading in known:
        heading += "_"
    return heading


@dataclass(frozen=True, eq=False)
class Consistent:
    """Answers that agree with one another and with records that could exist. Post-processing, free of charge.

    Args:
        release: what was released; its answers and intervals stay as they are.
        read: the consistent values of a table of linear answers, by its number; derived ones are computed from these.
        status: how the search ended.
        rounding: what whole numbers cost; None where they were not asked for.
        gap: how far the squared distance to the noisy answers may be above the least, as a share of it.
        lifted: records that were moved to make tables agree where the search ended early, as a share of all.
        apart: whether a batch may have been measured in blocks, which are fitted by themselves.
    """

    release: Release = field(repr=False)
    read: Callable[[int], Dense] = field(repr=False)
    status: Outcome
    rounding: Rounding | None = None
    gap: float = 0.0
    lifted: float = 0.0
    apart: bool = False

    @cached_property
    def values(self) -> Dense:
        """The consistent answers, in the order of `release.answers`."""
        return np.concatenate([np.zeros(0), *(own for _, own in self.release.evaluated(self.read))])

    @property
    def raw(self) -> Dense:
        """The noisy answers as they were released."""
        return self.release.values

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
        for _, own in self.release.evaluated(self.read):
            yield from own.tolist()

    def array(self, table: int) -> Dense:
        """The consistent values of a table, by its number, as an array of the table's shape."""
        one = self.tables[self.release.checked_table(table)]
        return self.of_table(one).reshape(one.shape)

    def of_table(self, table: Table) -> Dense:
        """The consistent values of a table, in one dimension."""
        if table.linear is not None:
            return self.read(table.linear).reshape(-1)
        return self.values[np.asarray(table.answers, dtype=np.int64)]

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these answers: sentences for files, pages and the terminal."""
        found = [INTERVALS, *([APART] if self.apart else [])]
        if self.status is Outcome.CANCELLED:
            found.append("The search was stopped: the best so far agrees and is not negative, yet is not the closest.")
        elif self.status in (Outcome.OUT_OF_ROUNDS, Outcome.OUT_OF_TIME, Outcome.STALLED):
            ended = f"The search ended early ({self.status})"
            found.append(f"{ended}: the answers agree and are not negative, yet may not be the closest.")
        if self.lifted >= WORTH_SAYING:
            found.append(
                f"To make tables agree, {self.lifted:.2g} of the records were spread as every column's margin is: the "
                "total and, nearly, margins of one column are those of a search that ended; larger tables may be worse."
            )
        return (*found, *([] if self.rounding is None else [str(self.rounding)]))

    def table(self, *columns: str | int, name: str | None = None) -> pd.DataFrame:
        """A table as a frame: its group columns, value and raw, which is the noisy answer."""
        frame = self.release.table(*columns, name=name)
        groups = frame.iloc[:, :-4].copy()  # without intervals, which are not those of consistent values
        raw = unused("raw", groups.columns)
        groups["value"] = self.array(self.release.find(*columns, name=name)).reshape(-1)
        groups[raw] = frame["value"].to_numpy()
        return groups

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Dense:
        """The values, for what takes arrays."""
        return np.array(self.values, dtype=dtype)

    def __repr__(self) -> str:
        whole = ", whole" if self.rounding is not None else ""
        return f"Consistent({len(self.release.answers):,} answers that agree{whole}; {self.status})"


@singledispatch
def fit(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """Linear answers that agree, by the kind of reader; each registers its own."""
    raise TypeError(f"nothing says how the answers of a {type(reader).__name__} are made to agree")


@fit.register(CellReader)
def _(reader: CellReader, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    return fit_cells(_distinct(reader.workload), reader.standard_errors, release, whole=whole, progress=progress)


def fit_cells(
    W: sparse.csr_array, errors: Dense, release: Release, *, whole: bool, progress: Progress | None
) -> Consistent:
    """The answers W x of the non-negative cells x that fit the released ones best, rounded if asked; as one table."""
    # In units of the noise; answers without noise ask for nothing.
    precision = np.divide(1.0, errors, out=np.ones(len(errors)), where=errors > 0)
    rows = sparse.csr_array(sparse.diags_array(precision) @ W)
    fitted = closest_cells(rows, precision * release.linear_answers, progress=progress)
    found = np.asarray(W @ fitted.x)
    if not whole:
        return Consistent(release, lambda _: found, fitted.status, apart=True)
    rounded = np.asarray(W @ round_controlled(fitted.x, _counting(W))[0].astype(np.float64))
    cost = Rounding.of([np.abs(rounded - found)])
    return Consistent(release, lambda _: rounded, fitted.status, cost, apart=True)


def _counting(workload: sparse.csr_array) -> sparse.csr_array:
    """The queries that count records, each cell once or not at all."""
    W = sparse.csr_array(workload)
    W.eliminate_zeros()
    lengths = np.diff(W.indptr)
    others = np.bincount(np.repeat(np.arange(len(lengths)), lengths), W.data != 1, len(lengths))
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
