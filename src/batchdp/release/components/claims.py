"""What a release of tables claims, compared with itself and with the ledger that it was charged to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from batchdp.errors import ReleaseError
from batchdp.ledger import Ledger
from batchdp.measuring.components.drawing import noise_loss
from batchdp.measuring.components.lattice import IntegerGroup
from batchdp.measuring.law import MOST_CONFIDENCE
from batchdp.measuring.weighted.lattice import OneNoise
from batchdp.release.claims import NEIGHBOURS, differences
from batchdp.release.components.file import digest_of
from batchdp.release.components.storing import decoded
from batchdp.release.components.tables import TableRelease

ROUNDING = Fraction(1, 10**9)


def check_tables(release: TableRelease) -> None:
    """Refuse a release whose figures contradict each other: sensitivities, scales, losses, budget."""
    for wrong in _contradictions(release):
        raise ReleaseError(f"release: {wrong}; it was edited or damaged")


def check_charged_tables(release: TableRelease, ledger: Ledger) -> bool:
    """Whether the ledger has charged the release; refused if it says anything else about it than the release does."""
    claimed = release.certificate
    entry = next((one for one in ledger.history() if one.release_id == claimed.release_id), None)
    if entry is None:
        return False
    stored = ledger.stored(claimed.release_id)
    if stored is None:
        raise ReleaseError(f"release {claimed.release_id!r}: {ledger.path.name} charged it and has no answers of it")
    kept, noisy = decoded(stored.output, claimed.release_id)
    certificate: Any = claimed
    for name, here, there in differences(certificate, entry, ledger.unit):
        raise ReleaseError(
            f"release {claimed.release_id!r} says {name}={here!r} where {ledger.path.name} has {there!r}; "
            "one of them was edited"
        )
    if kept != claimed or not np.array_equal(noisy, release.noisy):
        raise ReleaseError(f"release {claimed.release_id!r}: it is not what is stored in {ledger.path.name}")
    return True


def _contradictions(release: TableRelease) -> Iterator[str]:
    c, lattice = release.certificate, release.reader.lattice
    found = NEIGHBOURS.fullmatch(c.neighbours)
    if found is None:
        yield f"neighbours={c.neighbours!r} is not a relation that batchdp knows"
        return
    if c.noise != lattice.noise:
        yield f"its certificate is about {c.noise.name} noise, its measurements are for {lattice.noise.name}"
        return
    if not 0 < release.confidence <= MOST_CONFIDENCE:
        yield f"confidence={release.confidence!r} is not above 0 and at most {MOST_CONFIDENCE}"
    if c.measurements != lattice.measurements or len(c.components) != len(lattice.groups):
        yield "its components are not those of its tables"
        return
    if c.plan_digest != digest_of(lattice, c.neighbours, release.column_names, release.legend, release.counted):
        yield "its tables, or how they are read, are not those of its certificate"
    factor = int(found[2]) * (2 if found[1] == "replacing" else 1)
    groups: Iterable[IntegerGroup | OneNoise] = lattice.groups
    for group, one, scale in zip(groups, c.components, release.reader.scales.tolist(), strict=True):
        moved = group.moved * factor**c.noise.norm
        if one.moved != moved or one.columns != group.columns():
            yield f"a component is changed by {one.moved} where what it measured is changed by {moved}"
        if one.moved and (scale != one.scale or scale <= 0):
            yield f"its noise has scale {scale!r}, its certificate says {one.scale!r}"
            return
        loss = noise_loss(c.noise, one.moved, one.scale) if one.moved else Fraction(0)
        if not loss <= Fraction(one.loss) <= loss * (1 + ROUNDING):
            yield f"a component loses {float(loss):.12g}, its certificate says {one.loss!r}"
    if c.exact_loss > Fraction(c.loss) or c.loss > c.budget:
        yield f"its components lose {float(c.exact_loss):.12g} in all, its certificate says {c.loss!r} of {c.budget!r}"
