"""The certificate: why a release is private, in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from typing import Any

from batchdp.errors import ReleaseError
from batchdp.measuring.amounts import AmountLattice
from batchdp.measuring.lattice import Lattice
from batchdp.measuring.law import NoiseLaw
from batchdp.measuring.mechanism import Mechanism
from batchdp.measuring.neighbours import Neighbours
from batchdp.privacy import NOISES, Noise, Privacy, noise_of

LONGEST_TEXT = 1000


@dataclass(frozen=True)
class PrivacyCertificate:
    """Why the release is private, in numbers that `audit` re-derives."""

    release_id: str
    privacy: Privacy
    budget: float
    """ε of pure differential privacy, or ρ of zCDP."""
    neighbours: str
    privacy_unit: str
    """Whose privacy: the column with one value a person, or "every row is a person"."""
    shape: str = field(default="", kw_only=True)
    """Where noise has a shape: how many measurements, in their order, share a body, and its share of ε. A body is the
    hull of ± the integer columns of its measurements, so that every column is inside."""
    sensitivity: int
    """Of the integer measurements to one privacy unit, exactly; with a shape, the columns that one unit can have."""
    scale: float
    """Of the discrete noise, in lattice units; with a shape, in bodies: the density falls with exp(−norm / scale)."""
    loss: float
    """OpenDP's privacy map of the sensitivity, or sensitivity / scale with a shape; at most the budget."""
    bits: int
    largest_total: int
    bias_bound: float
    """The most that any answer is off apart from noise; below 1 % of its standard error."""
    plan_digest: str
    table: str
    ledger_head: str
    opendp: str
    derived: int = field(default=0, kw_only=True)
    """How many of the answers are computed from others, at no cost of privacy."""

    @property
    def noise(self) -> Noise:
        """The kind of noise that `privacy` stands for."""
        return noise_of(self.privacy)

    @property
    def strength(self) -> str:
        """The budget with its letter, for people."""
        return f"{self.noise.letter} = {self.budget:g}"

    def as_dict(self) -> dict[str, Any]:
        """For files."""
        return asdict(self)

    @classmethod
    def read(cls, content: Any) -> PrivacyCertificate:
        """From a file, where anything can stand."""
        if not isinstance(content, Mapping):
            raise ReleaseError(f"certificate is a {type(content).__name__}, not a certificate")
        known = {one.name: one for one in fields(cls)}
        if set(content) != set(known):
            raise ReleaseError("certificate: its fields are not those of a certificate")
        for name, value in content.items():
            kind = known[name].type
            if not (_is_whole(value) if kind == "int" else _is_real(value) if kind == "float" else _is_text(value)):
                raise ReleaseError(f"certificate: {name} does not hold what it should")
        if content["privacy"] not in NOISES:
            raise ReleaseError(f"certificate: privacy must be one of {', '.join(NOISES)}")
        return cls(**content)


def certified(
    release_id: str,
    lattice: Lattice | AmountLattice,
    noise: Mechanism,
    neighbours: Neighbours,
    budget: float,
    law: NoiseLaw,
    *,
    digest: str,
    table: str,
    head: str,
    derived: int,
) -> PrivacyCertificate:
    """Of a release whose measurements lie on this lattice and got this noise."""
    return PrivacyCertificate(
        release_id=release_id,
        privacy=lattice.privacy,
        budget=budget,
        neighbours=str(neighbours),
        privacy_unit=neighbours.privacy_unit,
        sensitivity=noise.sensitivity,
        scale=noise.scale,
        loss=noise.loss,
        bits=lattice.bits,
        largest_total=lattice.largest_total,
        bias_bound=float(lattice.bias_bound.max(initial=0.0)),
        plan_digest=digest,
        table=table,
        ledger_head=head,
        opendp="not used" if law.shape_text else version("opendp"),
        derived=derived,
        shape=law.shape_text,
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**64


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT
