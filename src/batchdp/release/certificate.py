"""The certificate: why a release is private, in numbers. One for every kind of measurement and of noise.

A header says what was promised to whom, and a list says of every group of measurements what one person can change and
what noise was drawn. The losses of all groups add up to at most the budget.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from fractions import Fraction
from functools import cache, cached_property
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictInt, TypeAdapter, ValidationError

from batchdp import archive
from batchdp.errors import ReleaseError
from batchdp.mechanism.prepare import MOST_MEASUREMENTS, Mechanism
from batchdp.privacy import NAMED, Noise, Privacy
from batchdp.text import sanitise

SHOWN = 5
"""Groups in a printed certificate."""
Text = Annotated[str, Field(max_length=1000)]
Whole = Annotated[int, Field(strict=True, ge=0, le=2**64)]
Amount = Annotated[int, Field(strict=True, ge=0)]
Real = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
GroupRow = tuple[tuple[StrictInt, ...], Amount, Amount, Real, Real]


@dataclass(frozen=True)
class CertifiedGroup:
    """Measurements that were drawn with one noise."""

    columns: tuple[int, ...]
    """That they look at; none where cells are measured."""
    bits: int
    moved: int
    """How much one privacy unit can change them, exactly: the L1 norm, or the squared L2 norm; with K-norm noise how
    many columns it can have, each inside the body of the group, which is the hull of ± all of them."""
    scale: float
    """λ or σ of the discrete noise in lattice steps; of K-norm noise in bodies."""
    loss: float
    """Its ε or ρ: OpenDP's privacy map, rounded up."""


@dataclass(frozen=True)
class PrivacyCertificate:
    """Why the release is private, in numbers that `audit` derives again."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    release_id: Text
    privacy: Privacy
    distribution: Text
    """Of the noise: Laplace, Gaussian or K-norm."""
    budget: Real
    """ε of pure differential privacy, or ρ of zCDP."""
    neighbours: Text
    privacy_unit: Text
    """Whose privacy: the column with one value per person, or "every row is a person"."""
    loss: Real
    """The sum of what all groups lose, rounded up; at most the budget."""
    largest_total: Whole
    bias_share: Real
    """The most that the lattice moves any answer, as a share of its standard error; below 1 %."""
    measurements: Whole
    plan_digest: Text
    table: Text
    ledger_head: Text
    opendp: Text
    derived: Whole
    """How many of the answers are computed from others, at no cost of privacy."""
    shape: Text
    """Of K-norm noise: how many measurements, in their order, share a body, and its share of ε; nothing otherwise."""
    groups: tuple[CertifiedGroup, ...] = field(repr=False)
    snapshot: Text = ""
    """Which state of the table was counted, such as a month; nothing where nobody said."""

    @property
    def noise(self) -> Noise:
        """The kind of noise."""
        return NAMED[self.distribution]

    @property
    def least_scale(self) -> float | None:
        """The least λ or σ, where what a ledger charges depends on it."""
        return (
            self.noise.least_scale(one.scale for one in self.groups) if self.measurements <= MOST_MEASUREMENTS else None
        )

    @property
    def strength(self) -> str:
        """The budget with its letter, for people."""
        return f"{self.noise.letter} = {self.budget:g}"

    @property
    def exact_loss(self) -> Fraction:
        """The sum of all groups' ε or ρ."""
        return sum((Fraction(one.loss) for one in self.groups), Fraction(0))

    @cached_property
    def groups_digest(self) -> str:
        """SHA-256 of the list of groups."""
        return hashlib.sha256(packed(self.groups)).hexdigest()

    def header(self) -> dict[str, Any]:
        """Everything but the list of groups, and but a snapshot of which nobody said anything."""
        unsaid = ("groups",) if self.snapshot else ("groups", "snapshot")
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in unsaid}

    def as_dict(self) -> dict[str, Any]:
        """For files that people read; of many groups the digest alone."""
        few = (
            {"groups": [{**asdict(one), "columns": list(one.columns)} for one in self.groups]}
            if len(self.groups) <= SHOWN
            else {}
        )
        return {**self.header(), **few, "groups_sha256": self.groups_digest}

    def __str__(self) -> str:
        letter = self.noise.letter
        moved, scale = ("Δ", "λ") if self.noise.norm == 1 else ("Δ²", "σ")
        unit = sanitise(self.privacy_unit + (f", snapshot: {self.snapshot}" if self.snapshot else ""))
        lines = [
            f"{self.noise.name} noise, {letter} = {self.budget:g}: {self.neighbours}, unit: {unit}",
            f"{len(self.groups):,} group{'s' * (len(self.groups) != 1)}, {self.measurements:,} measurements; "
            f"their {letter} add up to {self.loss:.12g}, SHA-256 {self.groups_digest}",
        ]
        for one in self.groups[:SHOWN]:
            named = " × ".join(f"a{i + 1}" for i in one.columns) or "all"
            sizes = f"{moved} = {one.moved}, {scale} = {one.scale:.6g}, {letter} = {one.loss:.6g}"
            lines.append(f"  {named}: {sizes}, {one.bits} bits")
        more = len(self.groups) - SHOWN
        return "\n".join(lines + [f"  and {more:,} more"] * (more > 0))

    @classmethod
    def read(cls, content: Any, groups: bytes) -> PrivacyCertificate:
        """From a file, where anything can stand."""
        if not isinstance(content, Mapping) or "groups" in content:
            raise ReleaseError("certificate: its fields are not those of a certificate")
        try:
            found = _adapters()[0].validate_python({**content, "groups": unpacked(groups)})
        except ValidationError as error:
            named = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))[:100]
            raise ReleaseError(f"certificate: {named} does not hold what it should") from None
        if found.distribution not in NAMED or found.noise.privacy != found.privacy:
            raise ReleaseError(f"certificate: distribution must be one of {', '.join(NAMED)}, and fit its privacy")
        return found


def certify(made: Mechanism, groups: tuple[CertifiedGroup, ...], **said: Any) -> PrivacyCertificate:
    """Of a release whose measurements got this noise; what is not about the noise is said by name."""
    loss, shape = float(made.loss), made.reader.shape_text
    return PrivacyCertificate(
        privacy=made.noise.privacy,
        distribution=made.noise.name,
        budget=float(made.budget),
        neighbours=str(made.neighbours),
        privacy_unit=made.neighbours.privacy_unit,
        loss=loss if loss >= made.loss else math.nextafter(loss, math.inf),
        largest_total=made.measurement.largest_total,
        bias_share=made.bias_share,
        measurements=int(made.measurement.sizes.sum()),
        opendp="not used" if shape else version("opendp"),
        shape=shape,
        groups=groups,
        **said,
    )


def certify_groups(made: Mechanism) -> tuple[CertifiedGroup, ...]:
    """The groups of what is about to be drawn."""
    pairs = zip(made.measurement.groups, made.noises, strict=True)
    return tuple(CertifiedGroup(group.columns, group.bits, own.moved, own.scale, own.loss) for group, own in pairs)


def packed(groups: Sequence[CertifiedGroup]) -> bytes:
    """The list of groups as text; sensitivities may have hundreds of digits."""
    return json.dumps([list(astuple(one)) for one in groups]).encode()


def unpacked(text: bytes) -> tuple[CertifiedGroup, ...]:
    """The same from a file."""
    try:
        return tuple(CertifiedGroup(*one) for one in _adapters()[1].validate_python(archive.parse_json(text)))
    except ValidationError:
        raise ReleaseError("certificate: a group does not hold what it should") from None


@cache
def _adapters() -> tuple[TypeAdapter[PrivacyCertificate], TypeAdapter[list[GroupRow]]]:
    """What checks a certificate, and the list of its groups."""
    return TypeAdapter(PrivacyCertificate), TypeAdapter(list[GroupRow])
