"""`answer` for strategies over many columns: draw, charge, count, store, then show.

The noise is drawn before anything is charged: it does not depend on the data, takes most of the time, and can then be
interrupted at no cost. Room for the output is taken on the disk before the charge as well. What is left after the
charge is a count of the records and one file; Ctrl-C waits for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.asking.legend import Legend
from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger import Ledger, StoredRelease
from batchdp.measuring.components.axes import Records, Tallies
from batchdp.measuring.components.drawing import draw as draw_noise
from batchdp.measuring.components.preparing import Prepared, prepare, reader_of
from batchdp.measuring.law import checked_confidence
from batchdp.measuring.neighbours import Neighbours
from batchdp.measuring.preparing import exact_charge
from batchdp.privacy import Budget
from batchdp.release.charged import paid
from batchdp.release.components.certificate import ComponentCertificate, ComponentNoise, listed, packed
from batchdp.release.components.claims import check_tables
from batchdp.release.components.estimating import check_fits, estimated
from batchdp.release.components.file import digest_of
from batchdp.release.components.safety import room_on_disk, uninterrupted
from batchdp.release.components.storing import decoded, encoded
from batchdp.release.components.tables import TableRelease
from batchdp.release.cost import Confirm, confirmed, cost_of
from batchdp.strategies.over_tables import OverTables

Integers = NDArray[np.int64]
Progress = Callable[[float, str], object]
Draw = Callable[[NDArray[np.float64], Integers, Progress | None], Integers]


def release_components(
    strategy: OverTables,
    read: Callable[[], Records | Tallies],
    *,
    epsilon: float | None,
    rho: float | None,
    ledger: Ledger,
    release_id: str | None,
    label: str,
    neighbours: Neighbours,
    max_rows: int | None,
    confidence: float,
    column_names: tuple[str, ...] | None = None,
    legend: Legend | None = None,
    progress: Progress | None = None,
    draw: Draw | None = None,
    confirm: Confirm | None = None,
) -> TableRelease:
    """Private tables, from any strategy over many columns, with the noise that it is for.

    Guarantee: ε-differential privacy with Laplace noise, ρ-zCDP with Gaussian noise, for these neighbours. `read` gives
    the records once they are paid for, `draw` is a test's own noise.
    """
    checked_confidence(confidence)
    noise = strategy.noise
    charge, budget = exact_charge(Budget.of(noise, epsilon=epsilon, rho=rho))
    prepared = prepare(strategy, neighbours, budget, max_rows)
    names = column_names or tuple(f"a{i + 1}" for i in range(len(strategy.workload.sizes)))
    digest = digest_of(prepared.lattice, str(neighbours), names, legend)
    identity = release_id or uuid.uuid4().hex
    spend: dict[str, Any] = {
        noise.unit: charge,
        "plan_digest": digest,
        "table": label,
        "privacy_unit": neighbours.privacy_unit,
    }
    if release_id is not None and ledger.stored(release_id) is not None:
        repeated = ledger.reserve(identity, **spend)
        assert isinstance(repeated, StoredRelease)
        return _again(repeated, prepared, names, confidence, legend)
    needed = estimated(prepared)
    if progress is not None:
        progress(0.0, str(needed))
    check_fits(needed, ledger.path)
    cost = cost_of(charge, ledger, identity, neighbours)  # refused where the ledger cannot count this noise
    if cost.left < 0:  # before noise is drawn in vain; the ledger itself decides below
        due = "" if noise == cost.ledger else f", {cost.ledger.unit}={cost.charged!r}"
        raise BudgetError(
            f"{noise.unit}={budget!r}{due} is more than is left, {cost.remaining!r}; ask for at most that"
        )
    if confirm is not None:
        confirmed(confirm, cost)
    scales, sizes = prepared.scales, prepared.lattice.sizes
    noisy = draw_noise(scales, sizes, progress, noise) if draw is None else draw(scales, sizes, progress)
    components = listed(prepared)
    with room_on_disk(ledger.path, 8 * len(noisy) + len(packed(components)) + 10_000) as free, uninterrupted():
        reserved = ledger.reserve(identity, **spend)
        if isinstance(reserved, StoredRelease):  # by another process, meanwhile
            return _again(reserved, prepared, names, confidence, legend)
        head = reserved.head

        def measured() -> ComponentCertificate:
            add_measured(prepared, read(), noisy)
            certificate = _certificate(prepared, components, neighbours, identity, digest, label, head)
            free()
            ledger.complete(reserved, encoded(certificate, noisy))
            return certificate

        # From here on records are read. Nothing may raise because of what they are.
        certificate = paid(measured, identity)
    return TableRelease(prepared.reader, noisy, certificate, names, confidence, legend)


def add_measured(prepared: Prepared, records: Records | Tallies, noisy: Integers) -> None:
    """Add the exact measurements to the noise, part by part, each once."""
    for _, start, exact in prepared.reader.measured(records):
        noisy[start : start + len(exact)] += exact


def _certificate(
    prepared: Prepared,
    components: tuple[ComponentNoise, ...],
    neighbours: Neighbours,
    identity: str,
    digest: str,
    label: str,
    head: str,
) -> ComponentCertificate:
    loss = float(prepared.loss)
    return ComponentCertificate(
        release_id=identity,
        budget=prepared.budget,
        privacy=prepared.noise.privacy,
        neighbours=str(neighbours),
        privacy_unit=neighbours.privacy_unit,
        loss=loss if loss >= prepared.loss else float(np.nextafter(loss, np.inf)),
        largest_total=prepared.lattice.largest_total,
        bias_share=prepared.bias_share,
        measurements=prepared.lattice.measurements,
        plan_digest=digest,
        table=label,
        ledger_head=head,
        opendp=version("opendp"),
        components=components,
    )


def _again(
    stored: StoredRelease, prepared: Prepared, names: tuple[str, ...], confidence: float, legend: Legend | None
) -> TableRelease:
    """The release that is stored under this id: reconstructed anew, never drawn again."""
    certificate, noisy = decoded(stored.output, stored.release_id)
    scales = np.array([one.scale for one in certificate.components])  # that were drawn then
    if len(scales) != len(prepared.noises):
        raise LedgerError(f"release_id={stored.release_id!r}: what the ledger has stored has other components")
    done = TableRelease(reader_of(prepared.lattice, scales), noisy, certificate, names, confidence, legend)
    check_tables(done)
    return done
