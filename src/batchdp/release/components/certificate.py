"""The certificate of a release of tables: why each of its components is private, and that they add up to the budget.

With Gaussian noise every component has a noise of its own. With Laplace noise all measurements have one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any

from batchdp.errors import ReleaseError
from batchdp.measuring.components.lattice import IntegerGroup
from batchdp.measuring.components.preparing import Prepared
from batchdp.measuring.weighted.lattice import OneNoise
from batchdp.privacy import GAUSSIAN, LAPLACE, NOISES, Noise, Privacy, noise_of
from batchdp.release.certificate import _is_real, _is_text, _is_whole

SHOWN = 5
"""Components in a printed certificate."""


@dataclass(frozen=True)
class ComponentNoise:
    """One component: measurements that are drawn with one noise."""

    columns: tuple[int, ...]
    bits: int
    moved: int
    """How much one privacy unit can change its integer measurements, exactly: the L1 norm, or the squared L2 norm."""
    scale: float
    """λ or σ of the discrete noise, in lattice steps."""
    loss: float
    """Its ε or ρ: OpenDP's privacy map, rounded up."""


@dataclass(frozen=True)
class ComponentCertificate:
    """Why the release is private, in numbers that `audit` re-derives."""

    release_id: str
    budget: float
    """ε, or ρ of zCDP."""
    neighbours: str
    privacy_unit: str
    loss: float
    """The sum of all components' ε or ρ, rounded up; at most the budget."""
    largest_total: int
    bias_share: float
    """The most that the lattice moves any answer, as a share of its standard error."""
    measurements: int
    plan_digest: str
    table: str
    ledger_head: str
    opendp: str
    components: tuple[ComponentNoise, ...] = field(repr=False)
    privacy: Privacy = GAUSSIAN.privacy

    @property
    def noise(self) -> Noise:
        """The kind of noise that `privacy` stands for."""
        return noise_of(self.privacy)

    @property
    def strength(self) -> str:
        """The budget with its letter, for people."""
        return f"{self.noise.letter} = {self.budget:g}"

    @property
    def exact_loss(self) -> Fraction:
        """The sum of all components' ε or ρ."""
        return sum((Fraction(one.loss) for one in self.components), Fraction(0))

    @property
    def components_digest(self) -> str:
        """SHA-256 of the list of components."""
        return hashlib.sha256(packed(self.components)).hexdigest()

    def header(self) -> dict[str, Any]:
        """Everything but the list of components."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "components"}

    def __str__(self) -> str:
        letter = self.noise.letter
        moved, scale = ("Δ", "λ") if self.noise == LAPLACE else ("Δ²", "σ")
        lines = [
            f"{self.noise.name} noise, {letter} = {self.budget:g}: {self.neighbours}, unit: {self.privacy_unit}",
            f"{len(self.components):,} components, {self.measurements:,} measurements; "
            f"their {letter} add up to {self.loss:.12g}, SHA-256 {self.components_digest}",
        ]
        for one in self.components[:SHOWN]:
            named = " × ".join(f"a{i + 1}" for i in one.columns) or "total"
            sizes = f"{moved} = {one.moved}, {scale} = {one.scale:.6g}, {letter} = {one.loss:.6g}"
            lines.append(f"  {named}: {sizes}, {one.bits} bits")
        more = len(self.components) - SHOWN
        return "\n".join(lines + [f"  and {more:,} more"] * (more > 0))

    @classmethod
    def read(cls, content: Any, components: bytes) -> ComponentCertificate:
        """From a file, where anything can stand."""
        known = {one.name: str(one.type) for one in fields(cls) if one.name != "components"}
        if not isinstance(content, Mapping) or set(content) != set(known) or content["privacy"] not in NOISES:
            raise ReleaseError("certificate: its fields are not those of a certificate of components")
        for name, value in content.items():
            kind = known[name]
            if not (_is_whole(value) if kind == "int" else _is_real(value) if kind == "float" else _is_text(value)):
                raise ReleaseError(f"certificate: {name} does not hold what it should")
        return cls(**content, components=unpacked(components))


def packed(components: Sequence[ComponentNoise]) -> bytes:
    """The list of components as text; sensitivities may have hundreds of digits."""
    return json.dumps([list(asdict(one).values()) for one in components]).encode()


def unpacked(text: bytes) -> tuple[ComponentNoise, ...]:
    """The same from a file."""
    found = []
    for columns, bits, moved, scale, loss in json.loads(text):
        whole = all(isinstance(i, int) and not isinstance(i, bool) for i in (*columns, bits, moved))
        if not (whole and bits >= 0 and moved >= 0 and _is_real(scale) and _is_real(loss)):
            raise ReleaseError("certificate: a component does not hold what it should")
        found.append(ComponentNoise(tuple(columns), bits, moved, float(scale), float(loss)))
    return tuple(found)


def listed(prepared: Prepared) -> tuple[ComponentNoise, ...]:
    """The components of what is about to be drawn."""
    groups: Iterable[IntegerGroup | OneNoise] = prepared.lattice.groups
    pairs = zip(groups, prepared.noises, strict=True)
    return tuple(
        ComponentNoise(group.columns(), group.bits, noise.moved, noise.scale, noise.loss) for group, noise in pairs
    )
