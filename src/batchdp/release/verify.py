"""What a release claims, compared with itself and with the ledger that it was charged to.

A digest shows that a file is as somebody wrote it, not that it is true: whoever edits a release can compute the digest
anew. Its figures hang together, though, and the ledger has its own record of each of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import LedgerError, PrivacyParameterError, ReleaseError, StrategyError
from batchdp.ledger import Entry, Ledger, StoredRelease
from batchdp.linalg.matrix import plain
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.knorm.body import MOST_BITS as MOST_BODY_BITS
from batchdp.mechanism.knorm.lattice import InBodies
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.lattice import FEWEST_BITS, MOST_BITS, Lattice, OneGroup
from batchdp.mechanism.law import MOST_CONFIDENCE
from batchdp.mechanism.marginal.tables import WeightedReader
from batchdp.mechanism.measurement import CALLER, LARGEST, IntegerMeasurement, Neighbours
from batchdp.mechanism.prepare import MOST_BIAS
from batchdp.mechanism.reader import ROUNDING, CellReader
from batchdp.mechanism.residual.tables import TableReader
from batchdp.privacy import UNITS, Budget, Currency, KNorm, round_up
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import Stored, decoded, is_encoded
from batchdp.release.release import Release
from batchdp.strategies.shape import check_sample

Described = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""A header, and arrays by their names."""


@singledispatch
def describe(measurement: IntegerMeasurement) -> Described:
    """What is measured and how it is read, apart from data and budget; each kind registers its own."""
    raise TypeError(f"nothing says how a {type(measurement).__name__} is described")


@describe.register
def _(measurement: Lattice) -> Described:
    merging = {} if measurement.merging is None else _parts("merging", sparse.csr_array(measurement.merging))
    return _cells(measurement, {}), _matrices(measurement) | merging


@describe.register
def _(measurement: AmountLattice) -> Described:
    columns = [sorted(column.items()) for column in (*measurement.levels, *measurement.slopes)]
    exact = {"fine": measurement.fine, "ends": measurement.workload.ends, "columns": columns}
    return _cells(measurement, exact), _matrices(measurement)


def _cells(measurement: OneGroup, exact: Mapping[str, Any]) -> dict[str, Any]:
    workload = measurement.workload
    return {
        "noise": measurement.noise.name,
        "bits": measurement.bits,
        "largest_total": measurement.largest_total,
        "blocks": workload.blocks,
        "meetings": workload.meetings,
        **exact,
        **({"shape": measurement.shape.groups_text} if isinstance(measurement, InBodies) else {}),
    }


def _matrices(measurement: Any) -> dict[str, NDArray[Any]]:
    workload = measurement.workload
    listed = {} if workload.records is None else {"records": workload.records}
    W = sparse.csr_array(plain(workload.matrix))
    return _parts("integers", measurement.integers) | _parts("workload", W) | listed


def _parts(name: str, matrix: sparse.csr_array) -> dict[str, NDArray[Any]]:
    shape = np.array(matrix.shape, dtype=np.int64)
    parts = {"data": matrix.data, "indices": matrix.indices.astype(np.int64), "indptr": matrix.indptr.astype(np.int64)}
    return {f"{name}.{part}": own for part, own in parts.items()} | {f"{name}.shape": shape}


def plan_digest(measurement: IntegerMeasurement, neighbours: str, names: Sequence[str], asked: str = "") -> str:
    """SHA-256 of everything that decides what is released and how it is read, apart from the data and the budget.

    Args:
        measurement: what is measured.
        neighbours: whose privacy.
        names: of the answers, or of the columns.
        asked: what cells and columns stand for.
    """
    header, arrays = describe(measurement)
    arrays.pop("bits", None)  # of whole tables, which follow from the budget
    digest = hashlib.sha256(json.dumps([header, neighbours, list(names), asked]).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@singledispatch
def answers_digest(reader: Any, told: Mapping[str, Any], neighbours: str) -> str:
    """SHA-256 of what answers are called, over which queries, from which measurements; each kind registers its own.

    Args:
        reader: of the answers.
        told: what is said of them beside their queries, as it is serialised.
        neighbours: whose privacy.
    """
    raise TypeError(f"nothing says what the answers of a {type(reader).__name__} are")


@answers_digest.register
def _(reader: CellReader, told: Mapping[str, Any], neighbours: str) -> str:
    return digest_of({"names": list(reader.names), **told}, (reader.measure, reader.workload))


@answers_digest.register(TableReader)
@answers_digest.register(WeightedReader)
def _(reader: Any, told: Mapping[str, Any], neighbours: str) -> str:
    return plan_digest(reader.lattice, neighbours, told["column_names"], json.dumps(told))


def digest_of(said: Mapping[str, Any], matrices: Iterable[Any] = ()) -> str:
    """SHA-256 of something that is serialised, and of matrices by the numbers that they hold, however they are stored.

    Args:
        said: what a release says of its answers, such as their names.
        matrices: L and W, as a release of cells has them.
    """
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
    for matrix in matrices:
        rows = sparse.csr_array(matrix, copy=True).astype(np.float64)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        digest.update(json.dumps([*(int(size) for size in rows.shape), int(rows.nnz)]).encode())
        for part, kind in ((rows.data, "<f8"), (rows.indices, "<i8"), (rows.indptr, "<i8")):
            digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()


NEIGHBOURS = re.compile(r"(replacing|adding or removing) one unit of at most ([1-9][0-9]{0,6}) rows?(?: \((.+)\))?")
PROBES = 4
"""Mixtures of cells on which a release's queries are compared with what its answers are made of."""
CUT, SLACK = 4.0, 1e-6
"""Times what the lattice cuts off, and of a query's size: how far they may be apart."""
FITTED = 1e-6
"""Of a standard error: how far answers may be apart where B was fitted on another processor."""


def check_release(release: Release) -> None:
    """Refuse a release whose figures contradict each other: sensitivities, scales, losses, budget, answers."""
    for wrong in _contradictions(release):
        raise ReleaseError(f"release: {wrong}; it was edited or damaged")


def check_charged(release: Release, ledger: Ledger, stored: StoredRelease | None = None) -> bool:
    """Whether the ledger has charged the release; refused if it says anything else about it than the release does.

    Args:
        release: what is claimed.
        ledger: what it should have been charged to.
        stored: what the ledger has stored for it, where that was read already.
    """
    if release.parts:
        return all(check_charged(part, ledger) for part in release.parts)
    claimed = release.certificate
    entry = next((one for one in ledger.history() if one.release_id == claimed.release_id), None)
    if entry is None:
        return False
    stored = stored or ledger.stored(claimed.release_id)
    if stored is None:
        raise ReleaseError(f"release {claimed.release_id!r}: {ledger.path.name} charged it and has no answers for it")
    kept = decoded(stored.output, claimed.release_id)
    own = ((one.name, getattr(claimed, one.name), getattr(kept.certificate, one.name)) for one in fields(claimed))
    unlike = (one for one in own if one[1] != one[2])
    for name, here, there in (*differences(claimed, entry, ledger.standing().unit), *unlike):
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

    unit = ledger.standing().unit
    ledger.each_output(look)


def differences(certificate: PrivacyCertificate, entry: Entry, unit: Currency) -> Iterator[tuple[str, Any, Any]]:
    """Each field in which a certificate and the ledger's entry disagree, with both values.

    Args:
        certificate: what a release says.
        entry: what its ledger says.
        unit: the currency in which the entry says what was charged.
    """
    asked = Budget(UNITS[entry.unit], entry.requested)
    due = asked.noise.charge(asked.amount, unit, entry.scale)
    drawn, whose = certificate.least_scale, _neighbours(certificate)
    found = (
        ("release_id", certificate.release_id, entry.release_id),
        ("privacy", certificate.noise.unit, entry.unit),
        ("budget", certificate.budget, entry.requested),
        ("plan_digest", certificate.plan_digest, entry.plan_digest),
        ("table", certificate.table, entry.table),
        ("privacy_unit", certificate.privacy_unit, entry.privacy_unit),
        ("snapshot", certificate.snapshot or None, entry.snapshot),
        ("ledger_head", certificate.ledger_head, entry.head),
        ("charged", None if due is None else round_up(due), entry.charged),
        ("scale", drawn if entry.scale is not None else None, entry.scale),
        ("relation", None if whose is None or entry.relation is None else whose.relation, entry.relation),
    )
    yield from (one for one in found if one[1] != one[2])


def answers_digest_of(release: Release) -> str:
    """SHA-256 of what the answers of a release are: their names and queries."""
    return answers_digest(release.reader, release.said.told(), release.certificate.neighbours)


def _other_answers(release: Release, entry: Entry, kept: Stored) -> Iterator[str]:
    """What of a release's content is not what the ledger has of it, as far as the ledger has anything of it."""
    if entry.answers_digest != answers_digest_of(release):
        yield "its queries, or what they are called,"
    if not np.array_equal(kept.noisy, release.noisy):
        yield "its measurements"
    values, standard_errors = kept.values, kept.standard_errors
    if values is None or standard_errors is None:
        return
    reader, starts = release.reader, release.reader.starts
    if not len(values) == len(standard_errors) == reader.answers:
        yield "its answers"
        return
    for t in range(len(reader.sizes)):
        own, figures = slice(starts[t], starts[t + 1]), release.linear_figures(t)
        errors, given = figures.standard_errors, standard_errors[own]
        if not np.all(np.abs(given - errors) <= FITTED * given):
            yield "its standard errors"
            return
        most = FITTED * errors + reader.rounding(t, release.noisy)
        if not np.all(np.abs(values[own] - figures.values) <= most):
            yield "its answers"
            return


@singledispatch
def contradictions(reader: Any, release: Release, factor: int) -> Iterator[str]:
    """What in a release contradicts its certificate, by the kind of its reader.

    Args:
        reader: of the release.
        release: what is claimed.
        factor: how many records neighbours differ by, as the certificate says.
    """
    raise TypeError(f"nothing says what a {type(reader).__name__} claims")


def _contradictions(release: Release) -> Iterator[str]:
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
    if c.noise != release.reader.noise:
        yield f"its certificate is about {c.noise.name} noise, its measurements are for {release.reader.noise.name}"
        return
    if c.shape != release.reader.shape_text:
        yield "its noise has not the shape that its certificate says; a repeat takes the plan that was answered"
        return
    if c.measurements != len(release.noisy):
        yield f"it has {len(release.noisy)} measurements, its certificate says {c.measurements}"
    yield from _false_list(release)
    found = list(contradictions(release.reader, release, whose.factor))
    yield from found
    if not found:
        yield from _false_answers(release)


def _false_list(release: Release) -> Iterator[str]:
    """What is wrong with the list of what is shown."""
    listed = release.layout.listed[1]
    derived = sum(one.derived for one in listed)
    if release.certificate.derived != derived:
        yield f"derived={release.certificate.derived} is not how many of its answers are computed from others"
    plain = [one for one in listed if isinstance(one.of, int)]
    for t, own, places in release.reader.split([one.of for one in plain if isinstance(one.of, int)]):
        for i, place in zip(own.tolist(), places.tolist(), strict=True):
            if (name := release.layout.linear_name(t, place)) != plain[i].name:
                yield f"its answer {plain[i].name!r} is that to {name!r}"


def _false_answers(release: Release) -> Iterator[str]:
    """Whether answers that were given first are read from the measurements, but for rounding."""
    reader = release.reader
    for t in range(len(reader.sizes)) if release.given is not None else ():
        read, most = reader.values(t, release.noisy).reshape(-1), reader.rounding(t, release.noisy)
        if not np.all(np.abs(read - release.linear_values(t)) <= most):
            yield "its answers do not follow from its measurements"
            return


def _neighbours(c: PrivacyCertificate) -> Neighbours | None:
    """What the certificate says that neighbours differ by, and whose privacy that is; None where it is neither."""
    found = NEIGHBOURS.fullmatch(c.neighbours)
    if found is None:
        return None
    column = None if c.privacy_unit.startswith(CALLER) else c.privacy_unit
    try:
        apart = (one.partition(" of ") for one in re.split(r", (?=[0-9]+ of )", found[3] or "") if one)
        tables = tuple((name, int(cap)) for cap, _, name in apart)
        whose = Neighbours("replace" if found[1] == "replacing" else "add-remove", int(found[2]), column, tables)
    except (PrivacyParameterError, ValueError, ZeroDivisionError):
        return None
    return whose if (str(whose), whose.privacy_unit) == (c.neighbours, c.privacy_unit) else None


def _shown(loss: Fraction) -> str:
    return f"{float(loss):.12g}" if loss < 10**300 else "more than 1e300"


@contradictions.register(TableReader)
@contradictions.register(WeightedReader)
def _(reader: Any, release: Release, factor: int) -> Iterator[str]:
    c, lattice = release.certificate, reader.lattice
    if len(c.groups) != len(lattice.groups) or len(reader.scales) != len(lattice.groups):
        yield "its groups are not those of its tables"
        return
    if c.plan_digest != answers_digest_of(release):
        yield "its tables, or how they are read, are not those of its certificate"
    if c.largest_total != lattice.largest_total:
        yield "its certificate says of its tables what no table has"
    for group, one, scale in zip(lattice.groups, c.groups, reader.scales.tolist(), strict=True):
        moved = group.moved * factor**c.noise.norm
        if (one.moved, one.columns, one.bits) != (moved, group.columns, group.bits):
            yield f"a group is changed by {one.moved} where what it measured is changed by {moved}"
        if one.moved and scale != one.scale:
            yield f"its noise has scale {scale!r}, its certificate says {one.scale!r}"
            return


@contradictions.register
def _(reader: CellReader, release: Release, factor: int) -> Iterator[str]:
    c = release.certificate
    bits = {one.bits for one in c.groups}
    most = MOST_BODY_BITS if isinstance(c.noise, KNorm) else MOST_BITS
    if bits != {reader.bits} or not FEWEST_BITS <= reader.bits <= most:
        yield f"bits={sorted(bits)} are not the {reader.bits} of its lattice, from {FEWEST_BITS} to {most}"
        return
    if any(one.columns for one in c.groups):
        yield "its groups look at columns, and it measured cells"
    if bool(reader.shape_text) != isinstance(c.noise, KNorm):
        yield f"its noise is not what its certificate says, {c.noise.name} noise"
        return
    yield from _false_noise(reader, c, factor)
    yield from _other_queries(reader)


def _false_noise(reader: CellReader, c: PrivacyCertificate, factor: int) -> Iterator[str]:
    law, bits = reader.noise_law, reader.bits
    Q = sparse.csc_array(reader.measure) * 2.0**bits
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


def _other_queries(reader: CellReader) -> Iterator[str]:
    """B L must be W but for what the lattice cuts off: on random mixtures of the cells, which nobody can foresee."""
    B, W = reader.reconstruct, reader.workload
    cells = W.shape[1]
    x = np.random.default_rng().choice((-1.0, 1.0), (cells, PROBES))
    misses = np.abs(W @ x - B @ (reader.measure @ x)).max(axis=1)
    cut = cells * np.asarray(abs(sparse.csr_array(B)).sum(axis=1)).ravel() / 2.0**reader.bits
    sums = np.asarray(abs(W).sum(axis=1)).ravel()
    wrong = np.flatnonzero(misses > CUT * cut + SLACK * sums)
    if wrong.size:
        yield f"its answer {reader.names[int(wrong[0])]!r} is not the query that it says"
