"""A release: answers that may be published, with what is needed to judge them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from batchdp import archive
from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.measuring.conversion import epsilon_of
from batchdp.measuring.law import NoiseLaw, checked_confidence
from batchdp.privacy import Budget
from batchdp.progress import Progress
from batchdp.queries.statements import Statement
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.statements import statement_frame, statements
from batchdp.terminal import harmless

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from batchdp.release.consistent.records import Consistent

FORMAT = "batchdp-release-2"


@dataclass(frozen=True)
class Answer:
    """One private answer; the interval holds the truth with the release's confidence."""

    name: str
    value: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Release:
    """Private answers with intervals, covariance and certificate; holds no exact count.

    Args:
        names: of the queries.
        values: the private answers.
        law: of the noise in them.
        measurements: the noisy measurements that the answers were computed from; as public as the answers.
        measure: L, what was measured; where cells were merged, one column each that the workload tells apart.
        workload: W, with the same columns.
        certificate: why this is private.
        confidence: of the intervals in `answers`.
    """

    names: tuple[str, ...]
    values: Dense
    law: NoiseLaw
    measurements: Dense
    measure: sparse.csr_array
    workload: sparse.csr_array
    certificate: PrivacyCertificate
    confidence: float = 0.95

    def __post_init__(self) -> None:
        m, (r, n) = len(self.names), self.measure.shape
        shapes = (self.values.shape, self.measurements.shape, self.law.reconstruct.shape, self.workload.shape)
        if shapes != ((m,), (r,), (m, r), (m, n)):
            raise ReleaseError(f"release: its parts do not fit together, shapes {shapes} for {m} answers")

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """Every query's answer with its standard error and interval, computed when first asked for."""
        return self._answers(self.half_widths)

    @cached_property
    def standard_errors(self) -> Dense:
        """Of every answer, computed when first asked for."""
        return self.law.standard_errors

    @cached_property
    def half_widths(self) -> Dense:
        """Of the interval of every answer, computed when first asked for."""
        return self.law.half_widths(self.confidence)

    def simultaneous(self, confidence: float | None = None) -> tuple[Answer, ...]:
        """The answers with intervals that hold all truths at once with this confidence."""
        return self._answers(self.law.simultaneous_half_widths(confidence or self.confidence))

    def with_confidence(self, confidence: float) -> Release:
        """The same release with other intervals."""
        checked_confidence(confidence)
        return Release(**{**self._fields(), "confidence": confidence})

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of this release: its own when pure, else converted from ρ."""
        return epsilon_of(Budget(self.certificate.noise, self.certificate.budget), delta)

    @property
    def covariance(self) -> Dense:
        """Of the noise in all answers, m × m, computed on demand."""
        return self.law.covariance

    def rounded(self) -> Dense:
        """Whole numbers nearest to the answers: adds an error of at most ½, unbiased for wide noise."""
        return np.rint(self.values)

    def non_negative(self) -> Dense:
        """Answers below 0 raised to 0: closer to a truth that cannot be negative, but biased upwards near 0."""
        return np.maximum(self.values, 0.0)

    def consistent(self, *, whole: bool = False, progress: Progress | None = None) -> Consistent:
        """Answers W x of the non-negative cell counts x that fit the noisy measurements best.

        They agree with one another and with a table that could exist. Biased upwards where cells are near empty; the
        intervals stay those of the noisy answers. Ctrl-C gives the best so far.

        Args:
            whole: round the cells, such that counts are whole numbers and still add up.
            progress: called with (share, what is being done).
        """
        from batchdp.release.consistent.records import consistent_answers

        return consistent_answers(self, whole=whole, progress=progress)

    @property
    def tables(self) -> Sequence[Statement]:
        """The answers as tables, one a statement, each with its name and columns."""
        return statements(self)

    def table(self, *columns: str, name: str | None = None) -> pd.DataFrame:
        """A statement's answers as a frame: its group columns, value, standard_error, low, high.

        Args:
            columns: the group columns, in any order; none for a single number.
            name: the statement's alias, where several have these columns; enough by itself.
        """
        return statement_frame(self, columns, name)

    def plot(self, *, axes: Axes | None = None) -> Figure:
        """Every answer with its interval, on matplotlib axes of one's own if given."""
        from batchdp.plots.release import plot_release

        half_widths = self.law.half_widths(self.confidence)
        return plot_release(self.names, self.values, half_widths, confidence=self.confidence, axes=axes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without pickle, under a digest; readable by `load_release`."""
        arrays = {
            "values": self.values,
            "measurements": self.measurements,
            **archive.parts("B", self.law.reconstruct),
            **archive.parts("L", self.measure),
            **archive.parts("W", self.workload),
        }
        archive.save(path, self._header(), arrays, ReleaseError)

    @property
    def said(self) -> dict[str, Any]:
        """What the file says of its answers, beside their queries; the ledger has a digest of it."""
        return said_of(self.names)

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            **self.said,
            "confidence": self.confidence,
            "scale": self.law.scale,
            "privacy": self.law.privacy,
            "certificate": asdict(self.certificate),
        }

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _answers(self, half_widths: Dense) -> tuple[Answer, ...]:
        errors = self.law.standard_errors
        rows = zip(self.names, self.values.tolist(), errors.tolist(), half_widths.tolist(), strict=True)
        return tuple(Answer(name, value, error, value - half, value + half) for name, value, error, half in rows)

    def __repr__(self) -> str:
        c = self.certificate
        whose = harmless(f"{c.neighbours}, unit: {c.privacy_unit}, id {c.release_id}")
        return f"Release({len(self.names)} answers, {c.strength}, {whose})"

    def _repr_html_(self) -> str:
        from batchdp.release.looking import in_notebook

        return in_notebook(self)


def said_of(names: Sequence[str]) -> dict[str, Any]:
    """What a release's file says of its answers, as it is serialised."""
    return {"names": list(names)}
