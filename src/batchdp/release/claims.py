"""What a release claims, compared with itself and with the ledger that it was charged to.

A digest shows that a file is as somebody wrote it, not that it is true: whoever edits a release can compute the digest
anew. Its figures hang together, though, and the ledger has its own record of each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.errors import LedgerError, ReleaseError, StrategyError
from batchdp.ledger import Entry, Ledger, StoredRelease
from batchdp.ledger.accounting import as_float, charge
from batchdp.measuring.lattice import FEWEST_BITS, LARGEST, MOST_BITS
from batchdp.measuring.law import MOST_CONFIDENCE
from batchdp.measuring.preparing import exact_charge
from batchdp.measuring.shaping.law import ShapedLaw
from batchdp.privacy import UNITS, Budget, Unit
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.components.storing import decoded as decoded_tables
from batchdp.release.components.storing import is_encoded
from batchdp.release.meaning import answers_digest
from batchdp.release.records import Release
from batchdp.release.storing import Stored, decoded, is_earlier
from batchdp.strategies.shaped.checking import check_sample

NEIGHBOURS = re.compile(r"(replacing|adding or removing) one unit of at most (\d{1,7}) rows?")
PROBES = 4
"""Mixtures of cells on which a release's queries are compared with what its answers are made of."""
CUT, SLACK = 4.0, 1e-6
"""Times what the lattice cuts off, and of a query's size: how far they may be apart."""
ROUNDING = 1e-9
"""Of sums in floats, relative: enough to tell an edited figure from a rounded one."""
FITTED = 1e-6
"""Of a standard error: how far answers may be apart where B was fitted on another processor."""


def check_release(release: Release) -> None:
    """Refuse a release whose figures contradict each other: scale, bits, sensitivity, loss, budget, answers."""
    for wrong in _contradictions(release):
        raise ReleaseError(f"release: {wrong}; it was edited or damaged")


def check_charged(release: Release, ledger: Ledger, stored: StoredRelease | None = None) -> bool:
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


def answers_digest_of(release: Release) -> str:
    """SHA-256 of what the answers of a release are."""
    return answers_digest(release.said, release.measure, release.workload)


def check_ledger(ledger: Ledger) -> None:
    """Refuse a ledger of which an entry and the certificate that is stored with it disagree."""

    def look(entry: Entry, output: bytes) -> None:
        if not output.startswith(b"{") or is_earlier(output):
            return  # stored by somebody's own program, or by a version before 0.3
        certificate: Any = (
            decoded_tables(output, entry.release_id)[0]
            if is_encoded(output)
            else decoded(output, entry.release_id).certificate
        )
        for name, here, there in differences(certificate, entry, unit):
            raise LedgerError(
                f"path={str(ledger.path)!r} was tampered with: release {entry.release_id!r} was stored with "
                f"{name}={here!r} and charged with {there!r}; restore a copy"
            )

    unit = ledger.unit
    ledger.each_output(look)


def differences(certificate: PrivacyCertificate, entry: Entry, ledger_unit: Unit) -> Iterator[tuple[str, Any, Any]]:
    """Each field in which a certificate and the ledger's entry disagree, with both values."""
    asked, budget = exact_charge(entry.requested)
    due = charge(Budget(UNITS[entry.unit], asked), UNITS[ledger_unit])
    pairs = {
        "release_id": (certificate.release_id, entry.release_id),
        "privacy": (certificate.noise.unit, entry.unit),
        "budget": (certificate.budget, budget),
        "plan_digest": (certificate.plan_digest, entry.plan_digest),
        "table": (certificate.table, entry.table),
        "privacy_unit": (certificate.privacy_unit, entry.privacy_unit),
        "ledger_head": (certificate.ledger_head, entry.head),
        "charged": (as_float(due), entry.charged),
    }
    for name, (here, there) in pairs.items():
        if here != there:
            yield name, here, there


def _unlike(claimed: PrivacyCertificate, kept: PrivacyCertificate) -> Iterator[tuple[str, Any, Any]]:
    for one in fields(PrivacyCertificate):
        here, there = getattr(claimed, one.name), getattr(kept, one.name)
        if here != there:
            yield one.name, here, there


def _other_answers(release: Release, entry: Entry, kept: Stored) -> Iterator[str]:
    """What of a release's content is not what the ledger has of it."""
    if entry.answers_digest != answers_digest_of(release):
        yield "its queries, or what they are called,"
    if not np.array_equal(kept.measurements, release.measurements):
        yield "its measurements"
    errors, sums = release.standard_errors, abs(release.law.reconstruct) @ np.abs(release.measurements)
    if kept.values.shape != release.values.shape or kept.standard_errors.shape != errors.shape:
        yield "its answers"
    elif not np.all(np.abs(kept.standard_errors - errors) <= FITTED * kept.standard_errors):
        yield "its standard errors"
    elif not np.all(np.abs(kept.values - release.values) <= FITTED * errors + ROUNDING * np.asarray(sums).ravel()):
        yield "its answers"


def _contradictions(release: Release) -> Iterator[str]:
    c, law = release.certificate, release.law
    if law.privacy != c.privacy:
        yield f"its noise is {law.privacy!r}, its certificate says {c.privacy!r}"
    if c.shape != law.shape_text:
        yield "its noise has not the shape that its certificate says; a repeat takes the plan that was answered"
        return
    if not FEWEST_BITS <= c.bits <= MOST_BITS:
        yield f"bits={c.bits} is not from {FEWEST_BITS} to {MOST_BITS}"
        return
    if law.scale != c.scale / 2.0**c.bits or c.scale <= 0:
        yield f"its noise has scale {law.scale!r}, its certificate says {c.scale / 2.0**c.bits!r}"
        return
    if not 0 < release.confidence <= MOST_CONFIDENCE:
        yield f"confidence={release.confidence!r} is not above 0 and at most {MOST_CONFIDENCE}"
    if c.derived != sum(one.derived for one in release.asked):
        yield f"derived={c.derived} is not how many of its answers are computed from others"
    for one in release.asked:
        if isinstance(one.of, int) and release.names[one.of] != one.name:
            yield f"its answer {one.name!r} is that to {release.names[one.of]!r}"
    yield from _false_loss(c)
    yield from _false_sensitivity(release)
    yield from _false_answers(release)
    yield from _other_queries(release)


def _false_loss(c: PrivacyCertificate) -> Iterator[str]:
    """The closed forms Δ / b and Δ² / 2 σ² that OpenDP's privacy maps round up."""
    loss = c.noise.loss(Fraction(c.sensitivity) / Fraction(c.scale))
    if not loss <= Fraction(c.loss) <= loss * (1 + Fraction(ROUNDING)):
        yield f"its noise loses {float(loss):.12g}, its certificate says loss={c.loss!r}"
    if c.loss > c.budget:
        yield f"loss={c.loss!r} is more than budget={c.budget!r}"


def _false_sensitivity(release: Release) -> Iterator[str]:
    c = release.certificate
    found = NEIGHBOURS.fullmatch(c.neighbours)
    if found is None:
        yield f"neighbours={c.neighbours!r} is not a relation that batchdp knows"
        return
    factor = int(found[2]) * (2 if found[1] == "replacing" else 1)
    Q = sparse.csc_array(release.measure) * 2.0**c.bits
    if not np.array_equal(Q.data, np.rint(Q.data)) or np.any(np.abs(Q.data) > LARGEST):
        yield f"what it measured does not lie on a lattice of {c.bits} bits"
        return
    if isinstance(release.law, ShapedLaw):
        yield from _false_shape(release.law, Q, c.sensitivity, factor)
        return
    # Several blocks of cells add up to more, which a release does not tell apart: one column is the least.
    norm = c.noise.norm
    norms = np.asarray((abs(Q) ** norm).sum(axis=0)).ravel() ** (1 / norm)
    least = factor * float(norms.max(initial=0.0))
    if c.sensitivity < least * (1 - ROUNDING):
        yield f"sensitivity={c.sensitivity} is below the {least:.12g} of what it measured"


def _false_shape(law: ShapedLaw, Q: sparse.csc_array, sensitivity: int, factor: int) -> Iterator[str]:
    """A body holds every column of its measurements because it is their hull; shares of ε are at most 1 by birth."""
    if sum(law.shape.ranks) != Q.shape[0]:
        yield f"its noise has the shape of {sum(law.shape.ranks)} measurements, and there are {Q.shape[0]}"
        return
    if sensitivity < factor:
        yield f"sensitivity={sensitivity} is below the {factor} columns that one unit can have"
    try:
        check_sample(law.shape, (np.unique(Q[own].toarray(), axis=1) for own, _ in law.shape.parts))
    except (StrategyError, np.linalg.LinAlgError):
        yield "what it says of its noise is not about what it measured"


def _other_queries(release: Release) -> Iterator[str]:
    """B L must be W but for what the lattice cuts off: on random mixtures of the cells, which nobody can foresee."""
    c, B = release.certificate, release.law.reconstruct
    W, cells = release.workload, release.workload.shape[1]
    x = np.random.default_rng().choice((-1.0, 1.0), (cells, PROBES))
    misses = np.abs(W @ x - B @ (release.measure @ x)).max(axis=1)
    cut = cells * np.asarray(abs(sparse.csr_array(B)).sum(axis=1)).ravel() / 2.0**c.bits
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
