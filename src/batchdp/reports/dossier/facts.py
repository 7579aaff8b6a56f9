"""What follows from a release and its ledger: every figure that a dossier holds is taken from here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.ledger.books import Curve, list_curves
from batchdp.mechanism.conversion import describe_charges
from batchdp.mechanism.measurement import describe_neighbours
from batchdp.privacy import Budget, Noise
from batchdp.release import Release
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.exports import derived_in, tables_of
from batchdp.reports.dossier.about import Books

DELTAS = (1e-5, 1e-6, 1e-9)
"""At which ρ is also said as (ε, δ)."""
MOST_COVARIANCES = 300
"""Answers up to which their covariances are a file."""
PACKAGES = ("batchdp", "opendp", "numpy", "scipy", "matplotlib", "pyarrow")
NORMS = {1: "in the L1 norm", 2: "in the L2 norm, squared"}


@dataclass(frozen=True)
class TableFacts:
    """How wide the answers of one table are."""

    name: str
    columns: tuple[str, ...]
    rows: int
    least_error: float
    typical_error: float
    largest_error: float
    typical_margin: float
    """Half of an interval; both typical figures are medians, and not numbers where no answer has them."""
    derived: bool = False
    """Whether its answers are computed from others."""
    kinds: tuple[str, ...] = ()
    """Of the groups in every column: texts, or whole numbers."""

    @property
    def title(self) -> str:
        """The name, and what it is by where that is not said in it."""
        by = ", ".join(self.columns)
        return f"{self.name} by {by}" if by and by not in self.name else self.name


@dataclass(frozen=True, eq=False)
class Facts:
    """A release, the moment of the ledger that it is published with, and the versions that wrote it down."""

    release: Release
    books: Books | None
    versions: Mapping[str, str]

    @property
    def certificate(self) -> PrivacyCertificate:
        """The certificate of the release."""
        return self.release.certificate

    @property
    def noise(self) -> Noise:
        """The kind of noise."""
        return self.certificate.noise

    @cached_property
    def budget(self) -> float:
        """ε or ρ as it was written: the noise may be drawn for the float just below."""
        held = self.certificate.budget
        above = math.nextafter(held, math.inf)
        return above if len(repr(above)) < len(repr(held)) else held

    @property
    def strength(self) -> str:
        """The budget with its letter."""
        return f"{self.noise.letter} = {str(self.budget).removesuffix('.0')}"

    @cached_property
    def epsilons(self) -> tuple[tuple[float, float], ...]:
        """The same guarantee as (ε, δ); none for a pure one, which needs no δ."""
        if self.noise.is_pure:
            return ()
        return tuple((self.release.epsilon_at(delta), delta) for delta in DELTAS)

    @property
    def beside(self) -> str:
        """ε or (ε, δ), ρ and μ, as far as there are any."""
        return describe_charges(Budget(self.noise, self.certificate.budget), 1e-6, self.certificate.least_scale)

    @property
    def parts(self) -> list[str]:
        """The releases that it was combined from, with what each cost; none where it was measured as one."""
        return [f"{part.certificate.release_id} ({part.certificate.strength})" for part in self.release.parts]

    @property
    def whose(self) -> str:
        """Whose privacy, in words."""
        return describe_neighbours(self.certificate.privacy_unit)

    @property
    def confidence(self) -> str:
        """The confidence of the intervals, for people."""
        return f"{100 * self.release.confidence:g} %"

    @cached_property
    def tables(self) -> tuple[TableFacts, ...]:
        """Every table, read once."""
        return tuple(
            _table(name, columns, derived=len(derived_in(self.release, t)) == len(columns["value"]))
            for t, (name, columns) in enumerate(tables_of(self.release))
        )

    @property
    def answers(self) -> int:
        """How many there are."""
        return sum(table.rows for table in self.tables)

    @cached_property
    def intervals(self) -> int:
        """How many answers have one: those that are determined."""
        return self.answers - (int(np.isnan(self.release.values).sum()) if self.release.asked else 0)

    @cached_property
    def linear(self) -> tuple[str, ...]:
        """The names of the answers that are not computed from others, where they are few."""
        if not 0 < self.answers - self.derived <= MOST_COVARIANCES:
            return ()
        return tuple(one.name for one in self.release.answers if not one.derived)

    @property
    def derived(self) -> int:
        """How many answers are computed from others."""
        return self.certificate.derived

    @cached_property
    def covariance(self) -> NDArray[np.float64] | None:
        """Of all answers that are not computed from others, where they are few."""
        return self.release.covariance if self.linear else None

    @property
    def distribution(self) -> str:
        """What the noise is called."""
        shape = self.certificate.shape
        return "rounded K-norm, in the shape of the batch" if shape else f"discrete {self.noise.name}"

    @property
    def noise_drawn(self) -> str:
        """The mechanism, with its figures."""
        c = self.certificate
        if c.shape:
            return (
                f"Noise in the shape of the batch (K-norm mechanism), drawn exactly and rounded to the lattice, on "
                f"{c.measurements:,} measurements: {c.shape}; its standard errors and intervals are simulated"
            )
        drawn = f"Discrete {self.noise.name} noise drawn by OpenDP {c.opendp} on {c.measurements:,} measurements"
        if len(c.groups) > 1:
            return f"{drawn} in {len(c.groups):,} groups, each with a scale of its own"
        (one,) = c.groups
        return f"{drawn}; scale {one.scale:.17g} in steps of the lattice, of which 2^{one.bits} are 1"

    @property
    def sensitivity(self) -> str:
        """How far one privacy unit moves the measurements, at most."""
        c = self.certificate
        exactly = "rounded up in exact arithmetic: no change of one unit exceeds it"
        if c.shape:
            return f"{c.groups[0].moved} columns of the measurements, each inside its bodies, in whole numbers"
        if len(c.groups) > 1:
            return (
                f"a whole number for each of {len(c.groups):,} groups of measurements, {exactly}; SHA-256 of "
                f"their list {c.groups_digest}"
            )
        (one,) = c.groups
        return f"{one.moved} in steps of the lattice ({NORMS[self.noise.norm]}), a whole number, {exactly}"

    @property
    def loss(self) -> str:
        """What the privacy map of the mechanism gives."""
        c = self.certificate
        whose = "The mechanism's" if c.shape else "OpenDP's"
        return f"{whose} privacy map gives a loss of {c.loss!r}, which is not above the budget, {c.budget!r}"

    @property
    def lattice(self) -> str:
        """Why floats do no harm."""
        c = self.certificate
        share = f"at most {c.bias_share:.3g} of its standard error"
        what = "a count or sum" if self.derived else "an answer"
        return f"measurements and noise are whole numbers, which moves {what} by {share}"

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """What the ledger's spends amount to as (ε, δ), each and all together; none without a ledger."""
        return () if self.books is None else list_curves(self.books.entries)

    @property
    def spent(self) -> str:
        """What the ledger has granted, in words."""
        assert self.books is not None
        books, letter = self.books, self.books.letter
        kept = "" if books.promise.startswith(f"{letter} ") else f", by which all keeps {books.promise}"
        return (
            f"{len(books.entries):,} spend{'s' * (len(books.entries) != 1)} charged, {books.released:,} with answers: "
            f"{letter} = {books.spent:g} of {books.total:g} in all, {books.remaining:g} left{kept}"
        )


def installed() -> dict[str, str]:
    """The versions that a dossier is written with."""
    return {**{name: version(name) for name in PACKAGES}, "python": python_version()}


def _table(name: str, columns: Mapping[str, NDArray[Any]], *, derived: bool) -> TableFacts:
    half_widths = (columns["high"] - columns["low"]) / 2
    errors, half = (some[~np.isnan(some)] for some in (columns["standard_error"], half_widths))
    figures = ((np.min, errors), (np.median, errors), (np.max, errors), (np.median, half))
    # Quantiles have no standard errors.
    least, typical, largest, margin = (_six(of(own)) if len(own) else math.nan for of, own in figures)
    groups = dict(list(columns.items())[:-4])
    kinds = tuple(map(_kind, groups.values()))
    return TableFacts(name, tuple(groups), len(half_widths), least, typical, largest, margin, derived, kinds)


def _kind(groups: NDArray[Any]) -> str:
    """What a table schema calls the groups of a column."""
    return "string" if groups.dtype == object else "integer"


def _six(value: float) -> float:
    """Six digits: the same whatever order sums were taken in."""
    return float(f"{value:.6g}")
