"""Consistent answers of an ordinary release: those of the non-negative cells that fit its answers best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.consistency.cells import closest_cells
from batchdp.consistency.rounding import round_controlled
from batchdp.outcome import Outcome
from batchdp.progress import Progress
from batchdp.queries.statements import Statement
from batchdp.release.consistent.notes import Rounding, beside, notes
from batchdp.release.statements import statement_frame, statement_of, statements

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.records import Release


Dense = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Consistent:
    """Answers W x of one non-negative table of cells x: they agree with one another. Post-processing, free of charge.

    Args:
        release: what was released; its answers and intervals stay as they are.
        values: the consistent answers, in the order of `release.answers`.
        status: how the search for x ended.
        rounding: what whole numbers cost; None where they were not asked for.
    """

    release: Release = field(repr=False)
    values: Dense
    status: Outcome
    rounding: Rounding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the answers."""
        return self.release.shown_names

    @property
    def raw(self) -> Dense:
        """The noisy answers as they were released."""
        return self.release.shown.values

    @property
    def tables(self) -> Sequence[Statement]:
        """As those of the release."""
        return statements(self.release)

    def each(self) -> Iterator[float]:
        """The values one by one, in the order of the release's answers."""
        return iter(self.values.tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these answers."""
        return notes(self.status, self.rounding)

    def table(self, *columns: str, name: str | None = None) -> pd.DataFrame:
        """A statement's answers as a frame: its group columns, value and raw, which is the noisy answer."""
        one = statement_of(self.release, columns, name)
        return beside(statement_frame(self.release, columns, name), self.values[list(one.answers)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Dense:
        """The values, for what takes arrays."""
        return np.array(self.values, dtype=dtype)

    def __repr__(self) -> str:
        whole = ", whole" if self.rounding is not None else ""
        return f"Consistent({len(self.values):,} answers that agree{whole}; {self.status})"


def consistent_answers(release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """Fit cells, round them if asked, answer from them."""
    W = _distinct(release.workload)
    fitted = closest_cells(*in_units_of_noise(W, release.values, release.standard_errors), progress=progress)
    values = np.asarray(W @ fitted.x)
    if not whole:
        return Consistent(release, release.evaluated(values), fitted.status)
    rounded, _ = round_controlled(fitted.x, counted(W))
    answers = np.asarray(W @ rounded.astype(np.float64))
    moves = np.abs(answers - values)
    rounding = Rounding(float(moves.max(initial=0.0)), int(np.count_nonzero(moves >= 1)))
    return Consistent(release, release.evaluated(answers), fitted.status, rounding)


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
