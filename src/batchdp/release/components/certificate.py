"""The certificate of a release of components: why each of them is private, and that they add up to the budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any, Literal

from batchdp.errors import ReleaseError
from batchdp.measuring.components.preparing import Prepared
from batchdp.privacy import GAUSSIAN, Noise
from batchdp.release.certificate import _is_real, _is_text, _is_whole

SHOWN = 5
"""Components in a printed certificate."""


@dataclass(frozen=True)
class ComponentNoise:
    """One component: measurements that are drawn with one noise."""

    columns: tuple[int, ...]
    bits: int
    squares: int
    """The squared L2 sensitivity of its integer measurements to one privacy unit, exactly."""
    scale: float
    """σ of the discrete Gaussian noise, in lattice steps."""
    loss: float
    """Its ρ: OpenDP's privacy map, rounded up."""


@dataclass(frozen=True)
class ComponentCertificate:
    """Why the release is private, in numbers that `audit` re-derives."""

    release_id: str
    budget: float
    """ρ of zCDP."""
    neighbours: str
    privacy_unit: str
    loss: float
    """The sum of all components' ρ, rounded up; at most the budget."""
    largest_total: int
    bias_share: float
    """The most that any answer is off apart from noise, as a share of its standard error."""
    measurements: int
    plan_digest: str
    table: str
    ledger_head: str
    opendp: str
    components: tuple[ComponentNoise, ...] = field(repr=False)
    privacy: Literal["zcdp"] = "zcdp"

    @property
    def noise(self) -> Noise:
        """The kind of noise: Gaussian, always."""
        return GAUSSIAN

    @property
    def strength(self) -> str:
        """The budget with its letter, for people."""
        return f"{self.noise.letter} = {self.budget:g}"

    @property
    def exact_loss(self) -> Fraction:
        """The sum of all components' ρ."""
        return sum((Fraction(one.loss) for one in self.components), Fraction(0))

    @property
    def components_digest(self) -> str:
        """SHA-256 of the list of components."""
        return hashlib.sha256(packed(self.components)).hexdigest()

    def header(self) -> dict[str, Any]:
        """Everything but the list of components."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "components"}

    def __str__(self) -> str:
        lines = [
            f"Gaussian noise, ρ = {self.budget:g}: {self.neighbours}, unit: {self.privacy_unit}",
            f"{len(self.components):,} components, {self.measurements:,} measurements; "
            f"their ρ add up to {self.loss:.12g}, SHA-256 {self.components_digest}",
        ]
        for one in self.components[:SHOWN]:
            named = " × ".join(f"a{i + 1}" for i in one.columns) or "total"
            lines.append(f"  {named}: Δ² = {one.squares}, σ = {one.scale:.6g}, ρ = {one.loss:.6g}, {one.bits} bits")
        more = len(self.components) - SHOWN
        return "\n".join(lines + [f"  and {more:,} more"] * (more > 0))

    @classmethod
    def read(cls, content: Any, components: bytes) -> ComponentCertificate:
        """From a file, where anything can stand."""
        known = {one.name: str(one.type) for one in fields(cls) if one.name != "components"}
        if not isinstance(content, Mapping) or set(content) != set(known) or content["privacy"] != GAUSSIAN.privacy:
            raise ReleaseError("certificate: its fields are not those of a certificate of components")
        for name, value in content.items():
            kind = known[name]
            if not (_is_whole(value) if kind == "int" else _is_real(value) if kind == "float" else _is_text(value)):
                raise ReleaseError(f"certificate: {name} does not hold what it should")
        return cls(**content, components=unpacked(components))


def packed(components: Sequence[ComponentNoise]) -> bytes:
    """The list of components as text; squares may have hundreds of digits."""
    return json.dumps([list(asdict(one).values()) for one in components]).encode()


def unpacked(text: bytes) -> tuple[ComponentNoise, ...]:
    """The same from a file."""
    found = []
    for columns, bits, squares, scale, loss in json.loads(text):
        whole = all(isinstance(i, int) and not isinstance(i, bool) for i in (*columns, bits, squares))
        if not (whole and bits >= 0 and squares >= 0 and _is_real(scale) and _is_real(loss)):
            raise ReleaseError("certificate: a component does not hold what it should")
        found.append(ComponentNoise(tuple(columns), bits, squares, float(scale), float(loss)))
    return tuple(found)


def listed(prepared: Prepared) -> tuple[ComponentNoise, ...]:
    """The components of what is about to be drawn."""
    pairs = zip(prepared.lattice.groups, prepared.noises, strict=True)
    return tuple(
        ComponentNoise(group.columns(), group.bits, noise.squares, noise.scale, noise.loss) for group, noise in pairs
    )
