"""What a release claims, compared with itself and with the ledger that it was charged to.

A digest shows that a file is as somebody wrote it, not that it is true: whoever edits a release can compute the digest
anew. Its figures hang together, though, and the ledger has its own record of each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import LedgerError, PrivacyParameterError, ReleaseError, StrategyError
from batchdp.ledger import Entry, Ledger, StoredRelease
from batchdp.ledger.chain import charge
from batchdp.mechanism.knorm.body import MOST_BITS as MOST_BODY_BITS
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.lattice import FEWEST_BITS, MOST_BITS
from batchdp.mechanism.law import MOST_CONFIDENCE
from batchdp.mechanism.measurement import CALLER, LARGEST, Neighbours
from batchdp.mechanism.quantise import MOST_BIAS
from batchdp.privacy import UNITS, Budget, KNorm, Unit, round_up
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.components.tables import TableRelease
from batchdp.release.digests import answers_digest, plan_digest, tell
from batchdp.release.records import Release
from batchdp.release.store import Stored, decoded, is_encoded
from batchdp.strategies.shape import check_sample

NEIGHBOURS = re.compile(r"(replacing|adding or removing) one unit of at most ([1-9][0-9]{0,6}) rows?")
PROBES = 4
"""Mixtures of cells on which a release's queries are compared with what its answers are made of."""
CUT, SLACK = 4.0, 1e-6
"""Times what the lattice cuts off, and of a query's size: how far they may be apart."""
ROUNDING = 1e-9
"""Of sums in floats, relative: enough to tell an edited figure from a rounded one."""
FITTED = 1e-6
"""Of a standard error: how far answers may be apart where B was fitted on another processor."""


def check_release(release: Any) -> None:
    """Refuse a release whose figures contradict each other: sensitivities, scales, losses, budget, answers."""
    for wrong in _contradictions(release):
        raise ReleaseError(f"release: {wrong}; it was edited or damaged")


def check_charged(release: Any, ledger: Ledger, stored: StoredRelease | None = None) -> bool:
    """Whether the ledger has charged the release; refused if it says anything else about it than the release does.

    Args:
        release: what is claimed.
        ledger: what it should have been charged to.
        stored: what the ledger has stored for it, where that was read already.
    """
    claimed = release.certificate
    entry = next((one for one in ledger.history() if one.release_id == claimed.release_id), None)
    if entry is None:
        return False
    stored = stored or ledger.stored(claimed.release_id)
    if stored is None:
        raise ReleaseError(f"release {claimed.release_id!r}: {ledger.path.name} charged it and has no answers of it")
    kept = decoded(stored.output, claimed.release_id)
    for name, here, there in (*differences(claimed, entry, ledger.unit), *_unlike(claimed, kept.certificate)):
        raise ReleaseError(
            f"release {claimed.release_id!r} says {name}={here!r} where {ledger.path.name} has {there!r}; "
            "one of them was edited"
        )
    for what in _other_answers(release, entry, kept):
        raise ReleaseError(f"release {claimed.release_id!r}: {what} are not those in {ledger.path.name}")
    return True


def check_ledger(ledger: Ledger) -> None:
    """Refuse a ledger of which an entry and the certificate that is stored with it disagree."""

    def look(entry: Entry, output: bytes) -> None:
        if not is_encoded(output):
            return  # stored by somebody's own program
        certificate = decoded(output, entry.release_id).certificate
        for name, here, there in differences(certificate, entry, unit):
            raise LedgerError(
                f"path={str(ledger.path)!r} was tampered with: release {entry.release_id!r} was stored with "
                f"{name}={here!r} and charged with {there!r}; restore a copy"
            )

    unit = ledger.unit
    ledger.each_output(look)


def differences(certificate: PrivacyCertificate, entry: Entry, ledger_unit: Unit) -> Iterator[tuple[str, Any, Any]]:
    """Each field in which a certificate and the ledger's entry disagree, with both values."""
    asked = Budget(UNITS[entry.unit], entry.requested)
    due = charge(asked, UNITS[ledger_unit])
    pairs = {
        "release_id": (certificate.release_id, entry.release_id),
        "privacy": (certificate.noise.unit, entry.unit),
        "budget": (certificate.budget, entry.requested),
        "plan_digest": (certificate.plan_digest, entry.plan_digest),
        "table": (certificate.table, entry.table),
        "privacy_unit": (certificate.privacy_unit, entry.privacy_unit),
        "ledger_head": (certificate.ledger_head, entry.head),
        "charged": (round_up(due), entry.charged),
    }
    for name, (here, there) in pairs.items():
        if here != there:
            yield name, here, there


def _unlike(claimed: PrivacyCertificate, kept: PrivacyCertificate) -> Iterator[tuple[str, Any, Any]]:
    for one in fields(PrivacyCertificate):
        here, there = getattr(claimed, one.name), getattr(kept, one.name)
        if here != there:
            yield one.name, here, there


def _other_answers(release: Any, entry: Entry, kept: Stored) -> Iterator[str]:
    """What of a release's content is not what the ledger has of it, as far as the ledger has anything of it."""
    if entry.answers_digest != answers_digest_of(release):
        yield "its queries, or what they are called,"
    if not has_measured(release, kept.noisy):
        yield "its measurements"
    if kept.values is not None and kept.standard_errors is not None:
        yield from other_values(release, kept.values, kept.standard_errors)


@singledispatch
def answers_digest_of(release: Any) -> str:
    """SHA-256 of what the answers of a release are: their names and queries."""
    raise TypeError(f"nothing says what the answers of a {type(release).__name__} are")


@singledispatch
def has_measured(release: Any, noisy: NDArray[Any]) -> bool:
    """Whether these are the noisy measurements of a release."""
    raise TypeError(f"nothing says what a {type(release).__name__} measured")


@singledispatch
def other_values(release: Any, values: Any, standard_errors: Any) -> Iterator[str]:
    """What of a release's answers and standard errors differs from those that were given first."""
    raise TypeError(f"nothing says what the answers of a {type(release).__name__} are")


@singledispatch
def contradictions(release: Any, factor: int) -> Iterator[str]:
    """What in a release contradicts its certificate, by its kind.

    Args:
        release: what is claimed.
        factor: how many records neighbours differ by, as the certificate says.
    """
    raise TypeError(f"nothing says what a {type(release).__name__} claims")


def _contradictions(release: Any) -> Iterator[str]:
    """What any certificate must have, then what a kind of release must."""
    c: PrivacyCertificate = release.certificate
    whose = _neighbours(c)
    if whose is None:
        yield f"neighbours={c.neighbours!r} is not a relation that batchdp knows, or not about unit {c.privacy_unit!r}"
        return
    if c.bias_share > MOST_BIAS:
        yield f"bias_share={c.bias_share!r} is more than {MOST_BIAS}"
    if not 0 < release.confidence <= MOST_CONFIDENCE:
        yield f"confidence={release.confidence!r} is not above 0 and at most {MOST_CONFIDENCE}"
    for one in c.groups:
        if one.moved and one.scale <= 0:
            yield f"a group has noise of scale {one.scale!r}"
            return
        loss = c.noise.loss(one.moved, one.scale) if one.moved else Fraction(0)
        if not loss <= Fraction(one.loss) <= loss * (1 + Fraction(ROUNDING)):
            yield f"its noise loses {_shown(loss)}, its certificate says loss={one.loss!r}"
    if c.exact_loss > Fraction(c.loss) or Fraction(c.loss) > Budget(c.noise, c.budget).amount:
        yield f"its groups lose {_shown(c.exact_loss)} in all, its certificate says loss={c.loss!r} of {c.budget!r}"
    yield from contradictions(release, whose.factor)


def _neighbours(c: PrivacyCertificate) -> Neighbours | None:
    """What the certificate says that neighbours differ by, and whose privacy that is; None where it is neither."""
    found = NEIGHBOURS.fullmatch(c.neighbours)
    if found is None:
        return None
    column = None if c.privacy_unit.startswith(CALLER) else c.privacy_unit
    try:
        whose = Neighbours("replace" if found[1] == "replacing" else "add-remove", int(found[2]), column)
    except PrivacyParameterError:
        return None
    return whose if (str(whose), whose.privacy_unit) == (c.neighbours, c.privacy_unit) else None


def _shown(loss: Fraction) -> str:
    """For people, however large."""
    return f"{float(loss):.12g}" if loss < 10**300 else "more than 1e300"


@answers_digest_of.register
def _(release: TableRelease) -> str:
    told = tell(release.legend, release.counted)
    return plan_digest(release.reader.lattice, release.certificate.neighbours, release.column_names, told)


@has_measured.register
def _(release: TableRelease, noisy: NDArray[Any]) -> bool:
    return np.array_equal(noisy, release.noisy)


@other_values.register
def _(release: TableRelease, values: Any, standard_errors: Any) -> Iterator[str]:
    start = 0
    for t, table in enumerate(release.tables):
        own = slice(start, start := start + table.queries)
        errors = release.standard_errors(t).reshape(-1)
        if len(values[own]) != len(errors) or np.any(np.abs(standard_errors[own] - errors) > FITTED * errors):
            yield "its standard errors"
            return
        if np.any(np.abs(values[own] - release.values(t).reshape(-1)) > FITTED * errors):
            yield "its answers"
            return
    if start != len(values):
        yield "its answers"


@contradictions.register
def _(release: TableRelease, factor: int) -> Iterator[str]:
    c, lattice = release.certificate, release.reader.lattice
    if c.noise != lattice.noise:
        yield f"its certificate is about {c.noise.name} noise, its measurements are for {lattice.noise.name}"
        return
    if c.measurements != lattice.measurements or len(c.groups) != len(lattice.groups):
        yield "its groups are not those of its tables"
        return
    if c.plan_digest != answers_digest_of(release):
        yield "its tables, or how they are read, are not those of its certificate"
    if (c.largest_total, c.derived, c.shape) != (lattice.largest_total, 0, ""):
        yield "its certificate says of its tables what no table has"
    groups: Any = lattice.groups
    for group, one, scale in zip(groups, c.groups, release.reader.scales.tolist(), strict=True):
        moved = group.moved * factor**c.noise.norm
        if (one.moved, one.columns, one.bits) != (moved, group.columns, group.bits):
            yield f"a group is changed by {one.moved} where what it measured is changed by {moved}"
        if one.moved and scale != one.scale:
            yield f"its noise has scale {scale!r}, its certificate says {one.scale!r}"
            return


@answers_digest_of.register
def _(release: Release) -> str:
    return answers_digest(release.said, (release.measure, release.workload))


@has_measured.register
def _(release: Release, noisy: NDArray[Any]) -> bool:
    return np.array_equal(noisy.astype(np.float64) / 2.0 ** release.certificate.groups[0].bits, release.measurements)


@other_values.register
def _(release: Release, values: Any, standard_errors: Any) -> Iterator[str]:
    errors, sums = release.standard_errors, abs(release.law.reconstruct) @ np.abs(release.measurements)
    if values.shape != release.values.shape or standard_errors.shape != errors.shape:
        yield "its answers"
    elif not np.all(np.abs(standard_errors - errors) <= FITTED * standard_errors):
        yield "its standard errors"
    elif not np.all(np.abs(values - release.values) <= FITTED * errors + ROUNDING * np.asarray(sums).ravel()):
        yield "its answers"


@contradictions.register
def _(release: Release, factor: int) -> Iterator[str]:
    c, law = release.certificate, release.law
    if law.noise != c.noise or isinstance(law, ShapedLaw) != isinstance(c.noise, KNorm):
        yield f"its noise is not what its certificate says, {c.noise.name} noise"
        return
    if c.shape != law.shape_text:
        yield "its noise has not the shape that its certificate says; a repeat takes the plan that was answered"
        return
    bits = {one.bits for one in c.groups}
    most = MOST_BODY_BITS if isinstance(c.noise, KNorm) else MOST_BITS
    if len(bits) != 1 or not FEWEST_BITS <= min(bits) <= most:
        yield f"bits={sorted(bits)} are not one number from {FEWEST_BITS} to {most}"
        return
    if any(one.columns for one in c.groups):
        yield "its groups look at columns, and it measured cells"
    if c.measurements != len(release.measurements):
        yield f"it has {len(release.measurements)} measurements, its certificate says {c.measurements}"
    if c.derived != sum(one.derived for one in release.asked):
        yield f"derived={c.derived} is not how many of its answers are computed from others"
    for one in release.asked:
        if isinstance(one.of, int) and release.names[one.of] != one.name:
            yield f"its answer {one.name!r} is that to {release.names[one.of]!r}"
    yield from _false_noise(release, factor)
    yield from _false_answers(release)
    yield from _other_queries(release)


def _false_noise(release: Release, factor: int) -> Iterator[str]:
    c, law, bits = release.certificate, release.law, release.certificate.groups[0].bits
    Q = sparse.csc_array(release.measure) * 2.0**bits
    clamped = LARGEST if not isinstance(law, ShapedLaw) else np.inf
    if not np.array_equal(Q.data, np.rint(Q.data)) or np.any(np.abs(Q.data) > clamped):
        yield f"what it measured does not lie on a lattice of {bits} bits"
        return
    if isinstance(law, ShapedLaw):
        yield from _false_shape(c, law, Q, factor)
        return
    if len(c.groups) != 1 or law.scale != c.groups[0].scale / 2.0**bits:
        yield f"its noise has scale {law.scale!r}, its certificate says {c.groups[0].scale / 2.0**bits!r}"
        return
    # Several blocks of cells add up to more, which a release does not tell apart: one column is the least.
    norm = c.noise.norm
    least = factor**norm * float(np.asarray((abs(Q) ** norm).sum(axis=0)).max(initial=0.0))
    if c.groups[0].moved < least * (1 - ROUNDING):
        yield f"a sensitivity of {c.groups[0].moved} is below the {least:.12g} of what it measured"


def _false_shape(c: PrivacyCertificate, law: ShapedLaw, Q: sparse.csc_array, factor: int) -> Iterator[str]:
    """A body holds every column of its measurements because it is their hull; shares of ε are at most 1 by birth."""
    shape = law.shape
    if sum(shape.ranks) != Q.shape[0] or len(shape.groups) != len(c.groups):
        yield f"its noise has the shape of {sum(shape.ranks)} measurements, and there are {Q.shape[0]}"
        return
    for group, one in zip(shape.groups, c.groups, strict=True):
        if one.moved < factor:
            yield f"a sensitivity of {one.moved} is below the {factor} columns that one unit can have"
        scale = one.scale * float(group.share) / 2.0**one.bits
        if abs(law.scale - scale) > ROUNDING * scale:
            yield f"its noise has scale {law.scale!r}, its certificate says {scale!r}"
    try:
        check_sample(shape, shape.columns(Q.toarray()))
    except (StrategyError, np.linalg.LinAlgError):
        yield "what it says of its noise is not about what it measured"


def _other_queries(release: Release) -> Iterator[str]:
    """B L must be W but for what the lattice cuts off: on random mixtures of the cells, which nobody can foresee."""
    bits, B = release.certificate.groups[0].bits, release.law.reconstruct
    W, cells = release.workload, release.workload.shape[1]
    x = np.random.default_rng().choice((-1.0, 1.0), (cells, PROBES))
    misses = np.abs(W @ x - B @ (release.measure @ x)).max(axis=1)
    cut = cells * np.asarray(abs(sparse.csr_array(B)).sum(axis=1)).ravel() / 2.0**bits
    sums = np.asarray(abs(W).sum(axis=1)).ravel()
    wrong = np.flatnonzero(misses > CUT * cut + SLACK * sums)
    if wrong.size:
        yield f"its answer {release.names[int(wrong[0])]!r} is not the query that it says"


def _false_answers(release: Release) -> Iterator[str]:
    B, y = release.law.reconstruct, release.measurements
    expected = np.asarray(B @ y).ravel()
    most = np.asarray(abs(B) @ np.abs(y)).ravel()
    if not np.all(np.abs(expected - release.values) <= ROUNDING * most):
        yield "its answers do not follow from its measurements"
