"""A release: answers that may be published, with what is needed to judge them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp import archive
from batchdp.derived.expressions import Asked, parts_of, read, written
from batchdp.domain.counted import Counted, describe_counted
from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.conversion import epsilon_of
from batchdp.mechanism.derived import estimates, evaluated
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.law import MOST_CONFIDENCE, NoiseLaw, checked_confidence
from batchdp.privacy import Budget
from batchdp.progress import Progress
from batchdp.queries.statements import Statement
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import DECODERS, Arrays, Encoded, Header, encode, save_release
from batchdp.release.statements import statement_frame, statements
from batchdp.strategies.shape import Shape
from batchdp.terminal import sanitise

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from batchdp.release.consistent.records import Consistent


KIND = "cells"
"""What a file calls releases of measured cells."""


@dataclass(frozen=True)
class Answer:
    """One private answer; the interval holds what it would be without noise, with the release's confidence.

    A derived one is computed from others; its figures are not numbers where it is not determined, and a quantile has
    no standard error.
    """

    name: str
    value: float
    standard_error: float
    low: float
    high: float
    derived: bool = False

    @property
    def determined(self) -> bool:
        """Whether there is an answer: a ratio has none where the interval of its denominator holds 0."""
        return not math.isnan(self.value)


@dataclass(frozen=True, eq=False)
class Shown:
    """The answers that were asked for, as arrays; not numbers where not determined."""

    names: tuple[str, ...]
    values: Dense
    standard_errors: Dense
    low: Dense
    high: Dense
    derived: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Release:
    """Private answers with intervals, covariance and certificate; holds no exact count.

    Args:
        names: of the queries, parts of derived answers among them.
        values: the private answers to these.
        law: of the noise in them.
        measurements: the noisy measurements that the answers were computed from; as public as the answers.
        measure: L, what was measured; where cells were merged, one column each that the workload tells apart.
        workload: W, with the same columns.
        certificate: why this is private.
        confidence: of the intervals in `answers`.
        asked: what was asked for, in the order of `answers`, where that is not every query as it is.
        counted: what is counted, before any noise; None where an older version did not keep it.
    """

    names: tuple[str, ...]
    values: Dense
    law: NoiseLaw
    measurements: Dense
    measure: sparse.csr_array
    workload: sparse.csr_array
    certificate: PrivacyCertificate
    confidence: float = 0.95
    asked: tuple[Asked[int], ...] = ()
    counted: Counted | None = None

    def __post_init__(self) -> None:
        m, (r, n) = len(self.names), self.measure.shape
        shapes = (self.values.shape, self.measurements.shape, self.law.reconstruct.shape, self.workload.shape)
        if shapes != ((m,), (r,), (m, r), (m, n)):
            raise ReleaseError(f"release: its parts do not fit together, shapes {shapes} for {m} answers")
        if any(not 0 <= part < m for one in self.asked for part in parts_of(one.of)):
            raise ReleaseError(f"release: what was asked for is about other queries than its {m}")

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """Every answer that was asked for with its standard error and interval, computed when first asked for."""
        return self._answers(self.shown)

    @cached_property
    def shown(self) -> Shown:
        """The same as arrays."""
        if not self.asked:
            half = self.half_widths
            none = np.zeros(len(self.names), dtype=bool)
            return Shown(self.names, self.values, self.standard_errors, self.values - half, self.values + half, none)
        found = estimates(self.asked, self.values, self.law, self.confidence)
        figures = (found.values, found.standard_errors, found.low, found.high)
        return Shown(self.shown_names, *figures, np.array([one.derived for one in self.asked]))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """Of the answers that were asked for."""
        return tuple(one.name for one in self.asked) if self.asked else self.names

    @cached_property
    def linear(self) -> Release:
        """The release of the answers that are no derived ones: itself where there are none."""
        if not self.asked:
            return self
        own = [one.of for one in self.asked if isinstance(one.of, int)]
        parts = {
            "names": tuple(one.name for one in self.asked if not one.derived),
            "values": self.values[own],
            "law": replace(self.law, reconstruct=self.law.reconstruct[own]),
            "workload": sparse.csr_array(self.workload[own]),
            "asked": (),
        }
        return Release(**{**self._fields(), **parts})

    def evaluated(self, values: Dense) -> Dense:
        """What was asked for, from other answers to the queries than the private ones; what these do not determine is
        not determined by others either."""
        return np.where(np.isnan(self.shown.values), np.nan, evaluated(self.asked, values)) if self.asked else values

    @cached_property
    def standard_errors(self) -> Dense:
        """Of every answer, computed when first asked for."""
        return self.law.standard_errors

    @cached_property
    def half_widths(self) -> Dense:
        """Of the interval of every answer, computed when first asked for."""
        return self.law.half_widths(self.confidence)

    def simultaneous(self, confidence: float | None = None) -> tuple[Answer, ...]:
        """The answers with intervals that hold what all would be without noise, at once, with this confidence."""
        confidence = confidence or self.confidence
        derived = sum(one.derived for one in self.asked)
        if not derived:
            plain = self.linear
            half = plain.law.simultaneous_half_widths(confidence)
            figures = (plain.values, plain.standard_errors, plain.values - half, plain.values + half)
            return self._answers(Shown(plain.names, *figures, np.zeros(len(half), dtype=bool)))
        # Half of what may miss for the queries at once, and the other half shared by the derived answers.
        missed = (1 - confidence) / 2
        each = estimates(self.asked, self.values, self.law, min(1 - missed / derived, MOST_CONFIDENCE))
        if missed / derived < 1 - MOST_CONFIDENCE:
            raise ReleaseError(
                f"simultaneous intervals of {derived:,} derived answers at {confidence:g} need a confidence beyond "
                f"{MOST_CONFIDENCE} for each; ask for a lower one"
            )
        half = self.law.simultaneous_half_widths(1 - missed)
        low, high = each.low.copy(), each.high.copy()
        for i, one in enumerate(self.asked):
            if isinstance(one.of, int):
                low[i], high[i] = each.values[i] - half[one.of], each.values[i] + half[one.of]
        own = self.shown
        return self._answers(Shown(own.names, own.values, own.standard_errors, low, high, own.derived))

    def with_confidence(self, confidence: float) -> Release:
        """The same release with other intervals."""
        checked_confidence(confidence)
        return Release(**{**self._fields(), "confidence": confidence})

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of this release: its own when pure, else converted from ρ."""
        return epsilon_of(Budget(self.certificate.noise, self.certificate.budget), delta)

    @property
    def covariance(self) -> Dense:
        """Of the noise in all queries' answers, m × m, computed on demand; derived answers are not among them."""
        return self.law.covariance

    def rounded(self) -> Dense:
        """Whole numbers nearest to the answers: adds an error of at most ½, unbiased for wide noise.

        Derived answers stay as they are.
        """
        return np.where(self.shown.derived, self.shown.values, np.rint(self.shown.values))

    def non_negative(self) -> Dense:
        """Answers below 0 raised to 0: closer to a truth that cannot be negative, but biased upwards near 0.

        Derived answers stay as they are.
        """
        return np.where(self.shown.derived, self.shown.values, np.maximum(self.shown.values, 0.0))

    def consistent(self, *, whole: bool = False, progress: Progress | None = None) -> Consistent:
        """Answers W x of the non-negative cell counts x that fit the noisy answers best, with the total as estimated.

        They agree with one another and with a table that could exist. Biased upwards where cells are near empty, and
        downwards elsewhere; the intervals stay those of the noisy answers. Ctrl-C gives the best so far.

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

        one = self.shown
        known = np.flatnonzero(~np.isnan(one.values))
        names = [f"{one.names[i]}{' (derived)' * bool(one.derived[i])}" for i in known]
        ends = np.stack([one.values - one.low, one.high - one.values])[:, known]
        return plot_release(names, one.values[known], ends, confidence=self.confidence, axes=axes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without pickle, under a digest; readable by `load_release`."""
        save_release(self, path)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is counted, in sentences: what neither the noise nor the intervals are about."""
        return describe_counted(self.counted, self.certificate.largest_total)

    @property
    def said(self) -> dict[str, Any]:
        """What the file says of its answers, beside their queries; the ledger has a digest of it."""
        return said_of(self.names, self.asked, self.counted)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _answers(self, shown: Shown) -> tuple[Answer, ...]:
        figures = (shown.values, shown.standard_errors, shown.low, shown.high, shown.derived)
        return tuple(Answer(*row) for row in zip(shown.names, *(one.tolist() for one in figures), strict=True))

    def __repr__(self) -> str:
        c = self.certificate
        whose = sanitise(f"{c.neighbours}, unit: {c.privacy_unit}, id {c.release_id}")
        return f"Release({len(self.shown_names)} answers, {c.strength}, {whose})"

    def _repr_html_(self) -> str:
        from batchdp.release.looking import in_notebook

        return in_notebook(self)


def said_of(names: Sequence[str], asked: Sequence[Asked[int]], counted: Counted | None) -> dict[str, Any]:
    """What a release's file says of its answers, as it is serialised."""
    return {"names": list(names), "asked": written(asked), "counted": counted and counted.header()}


@encode.register
def _(release: Release) -> Encoded:
    shape, points = release.law.shape.written() if isinstance(release.law, ShapedLaw) else (None, {})
    arrays = {
        "values": release.values,
        "measurements": release.measurements,
        **archive.split_matrix("B", release.law.reconstruct),
        **archive.split_matrix("L", release.measure),
        **archive.split_matrix("W", release.workload),
        **points,
    }
    return {"kind": KIND, **release.said, "scale": release.law.scale, "shape": shape}, arrays


def _decode(
    header: Header, arrays: Arrays, certificate: PrivacyCertificate, confidence: float, most_bytes: int | None
) -> Release:
    names = header["names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ReleaseError("names must be texts")
    law = NoiseLaw(archive.join_matrix("B", arrays, most_bytes), float(header["scale"]), certificate.noise)
    if header["shape"] is not None:
        shape = Shape.read(header["shape"], lambda name: archive.read_numbers(name, arrays))
        law = ShapedLaw(law.reconstruct, law.scale, law.noise, shape)
    return Release(
        names=tuple(names),
        values=archive.read_numbers("values", arrays),
        law=law,
        measurements=archive.read_numbers("measurements", arrays),
        measure=sparse.csr_array(archive.join_matrix("L", arrays, most_bytes)),
        workload=sparse.csr_array(archive.join_matrix("W", arrays, most_bytes)),
        certificate=certificate,
        confidence=confidence,
        asked=read(header["asked"], len(names)),
        counted=None if header["counted"] is None else Counted.read(header["counted"]),
    )


DECODERS[KIND] = _decode
