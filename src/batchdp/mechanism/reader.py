"""How linear answers are read from noisy measurements, whatever measured them: values, variances, intervals, joint law.

Answers come in tables and are numbered table after table. Nothing here has the size of more than one table, but for the
rows of B that somebody asks for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense, Plain
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measurement import Integers
from batchdp.privacy import Noise

ROUNDING = 1e-9
"""Of sums in floats, relative: enough to tell an edited figure from a rounded one."""


class Reader(ABC):
    """Reads the answers of a batch from its noisy measurements; it knows no data."""

    most_read: ClassVar[int] = 5_000
    """Answers up to which all are read at once, to be kept beside the measurements."""
    names: tuple[str, ...] | None
    """Of every answer; None where tables have names, and their rows' are made from these."""

    @property
    @abstractmethod
    def noise(self) -> Noise:
        """The kind of noise."""

    @property
    @abstractmethod
    def measurements(self) -> int:
        """How many noisy numbers there are."""

    @property
    @abstractmethod
    def sizes(self) -> Integers:
        """How many answers every table has."""

    @property
    def shape_text(self) -> str:
        """The shape of the noise, as certificates have it; nothing where it is independent on every measurement."""
        return ""

    @abstractmethod
    def shape(self, table: int) -> tuple[int, ...]:
        """Of a table; refused where it does not fit into memory."""

    @abstractmethod
    def values(self, table: int, noisy: NDArray[Any]) -> Dense:
        """The private answers of a table, as an array of its shape."""

    @abstractmethod
    def variances(self, table: int) -> Dense:
        """Of the noise in a table's answers, to be broadcast to its shape."""

    @abstractmethod
    def half_widths(self, table: int, confidence: float) -> Dense:
        """Of the intervals of a table's answers, to be broadcast to its shape."""

    @abstractmethod
    def rows_of(self, table: int, places: Integers) -> sparse.csr_array:
        """Rows of B for some of a table's answers, by their places: weights on draws of noise of scale 1."""

    @abstractmethod
    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights; measurements may be left out that no row has."""

    @cached_property
    def starts(self) -> Integers:
        """The number of every table's first answer, and how many there are in all."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def answers(self) -> int:
        """How many there are in all tables."""
        return int(self.starts[-1])

    def split(self, numbers: Sequence[int] | Integers) -> Iterator[tuple[int, Integers, Integers]]:
        """Answers by table: the table, which of the numbers are its, and their places in it."""
        given = np.asarray(numbers, dtype=np.int64)
        tables = np.searchsorted(self.starts, given, side="right") - 1
        for t in np.unique(tables).tolist():
            own = np.flatnonzero(tables == t)
            yield t, own, given[own] - self.starts[t]

    def rows(self, numbers: Sequence[int] | Integers) -> sparse.csr_array:
        """The rows of B for some answers, by their numbers, in their order."""
        found, order = [sparse.csr_array((0, self.measurements))], [np.zeros(0, dtype=np.int64)]
        for t, own, places in self.split(numbers):
            found.append(self.rows_of(t, places))
            order.append(own)
        stacked = sparse.csr_array(sparse.vstack(found, format="csr"))
        return sparse.csr_array(stacked[np.argsort(np.concatenate(order), kind="stable")])

    def picked(self, numbers: Sequence[int] | Integers, noisy: NDArray[Any]) -> Dense:
        """The values of some answers, by their numbers, in their order."""
        found = np.zeros(len(numbers))
        for t, own, places in self.split(numbers):
            found[own] = self.values(t, noisy).reshape(-1)[places]
        return found

    def errors_of(self, table: int) -> Dense:
        """The standard errors of a table's answers, as an array of its shape."""
        return np.broadcast_to(np.sqrt(self.variances(table)), self.shape(table))

    def rounding(self, table: int, noisy: NDArray[Any]) -> Dense:
        """How far a table's answers may be apart on two processors, which round sums in their own ways."""
        return 1e-6 * self.errors_of(table).reshape(-1)

    def widths_of(self, table: int, confidence: float) -> Dense:
        """The half widths of a table's intervals, as an array of its shape."""
        return np.broadcast_to(self.half_widths(table, confidence), self.shape(table))

    def widths_at(self, table: int, places: Integers, confidence: float) -> Dense:
        """The half widths of some of a table's answers, by their places."""
        return self.widths_of(table, confidence).reshape(-1)[places]


class ListReader(Reader):
    """Reads a list of answers, one table without columns, that have one law."""

    names: tuple[str, ...]
    noise_law: NoiseLaw

    @property
    def noise(self) -> Noise:
        """The kind of noise."""
        return self.noise_law.noise

    @property
    def shape_text(self) -> str:
        """The shape of the noise, as certificates have it."""
        return self.noise_law.shape_text

    @property
    def measurements(self) -> int:
        """How many noisy numbers there are."""
        return int(self.noise_law.reconstruct.shape[1])

    @property
    def sizes(self) -> Integers:
        """One table: all answers."""
        return np.array([len(self.names)], dtype=np.int64)

    def shape(self, table: int) -> tuple[int, ...]:
        """One axis, with all answers."""
        return (len(self.names),)

    @cached_property
    def standard_errors(self) -> Dense:
        """The standard error of every answer."""
        return self.noise_law.standard_errors

    def variances(self, table: int) -> Dense:
        """The variance of every answer."""
        return np.square(self.standard_errors)

    def half_widths(self, table: int, confidence: float) -> Dense:
        """Of the interval of every answer."""
        return self.noise_law.half_widths(confidence)

    def rows_of(self, table: int, places: Integers) -> sparse.csr_array:
        """Rows of B, times the scale."""
        return self.noise_law.rows(places)

    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights."""
        return self.noise_law.law(rows, times)


@dataclass(frozen=True, eq=False)
class CellReader(ListReader):
    """Reads a list of answers from measured cells: B y.

    Args:
        names: of the answers.
        measure: L, what was measured; where cells were merged, one column each that the workload tells apart.
        queries: W, with the same columns.
        noise_law: B, and how the noise is distributed.
        bits: measuring 1 is 2^bits.
    """

    most_read: ClassVar[int] = 1_000_000

    names: tuple[str, ...]
    measure: sparse.csr_array = field(repr=False)
    queries: Plain = field(repr=False)
    noise_law: NoiseLaw = field(repr=False)
    bits: int

    def __post_init__(self) -> None:
        m, (r, n) = len(self.names), self.measure.shape
        shapes = self.noise_law.reconstruct.shape, self.queries.shape
        if shapes != ((m, r), (m, n)):
            raise ReleaseError(f"release: its parts do not fit together, shapes {shapes} for {m} answers")

    @property
    def reconstruct(self) -> Plain:
        """B, which turns noisy measurements into answers."""
        return self.noise_law.reconstruct

    @cached_property
    def workload(self) -> sparse.csr_array:
        """The workload W, as a sparse matrix."""
        return sparse.csr_array(self.queries)

    def in_records(self, noisy: NDArray[Any]) -> Dense:
        """Measurements in records, not in steps of the lattice."""
        return np.asarray(noisy.astype(np.float64) / 2.0**self.bits)

    def values(self, table: int, noisy: NDArray[Any]) -> Dense:
        """B y, summed pairwise: rounding grows with the logarithm of the number of measurements."""
        B, y = self.reconstruct, self.in_records(noisy)
        if not isinstance(B, np.ndarray):
            return np.asarray(B @ y)
        rows = max(1, 4_000_000 // max(1, B.shape[1]))
        return np.concatenate([(B[start : start + rows] * y).sum(axis=1) for start in range(0, len(B), rows)])

    def rounding(self, table: int, noisy: NDArray[Any]) -> Dense:
        """A part of the sum of all sizes."""
        return ROUNDING * np.asarray(abs(self.reconstruct) @ np.abs(self.in_records(noisy))).ravel()

    def errors_of(self, table: int) -> Dense:
        """The standard errors of all answers."""
        return self.standard_errors

    def widths_at(self, table: int, places: Integers, confidence: float) -> Dense:
        """Of some answers: no others' are computed."""
        return replace(self.noise_law, reconstruct=self.reconstruct[places]).half_widths(confidence)


@dataclass(frozen=True, eq=False)
class LawReader(ListReader):
    """Answers that were read from measurements elsewhere, with their joint law: one table, by their names."""

    names: tuple[str, ...]
    found: Dense = field(repr=False)
    """The answers."""
    noise_law: NoiseLaw = field(repr=False)
    """B, each weight on a draw of scale 1, and how the noise is distributed."""

    def values(self, table: int, noisy: NDArray[Any]) -> Dense:
        """As they were read."""
        return self.found
