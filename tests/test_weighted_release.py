"""Releases of tables with Laplace noise: from codes to frames, files, ledgers and certificates."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.errors import BudgetError, PrivacyParameterError, ReleaseError
from batchdp.private import Records
from batchdp.release import answering, estimates
from batchdp.release.verify import check_charged, check_ledger
from batchdp.strategies.marginal.strategy import MarginalStrategy, Results
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors
from mechanisms import released
from test_components import structure
from test_table_release import SIZES, codes, forged
from test_weighted_lattice import group_of, of_groups

PREFIX = np.tril(np.ones((4, 4)))


def whole() -> MarginalStrategy:
    found = batchdp.optimize(structure(batchdp.workloads.marginals(SIZES, [0, 1, 2])), privacy="pure", seconds=1)
    assert isinstance(found, MarginalStrategy)
    return found


def mixed() -> KroneckerWorkload:
    return in_factors(SIZES, [[PREFIX, np.eye(3), None], [None, np.eye(3), np.eye(5)], [None, None, np.ones((1, 5))]])


def inside() -> MarginalStrategy:
    """With strategies inside columns."""
    return of_groups(mixed(), group_of(mixed(), np.random.default_rng(1), 1.0, None))


def groups() -> MarginalStrategy:
    """Two groups, each with columns of its own."""
    from batchdp.optimizer.marginal.problem import sub_batch

    rng, batch = np.random.default_rng(2), mixed()
    parts = [([0, 2], 0.6), ([1], 0.4)]
    return of_groups(batch, *(group_of(sub_batch(batch, own), rng, share, frozenset(own)) for own, share in parts))


def results() -> MarginalStrategy:
    """Noise on results."""
    batch = mixed()
    return of_groups(batch, Results(batch, 1 / float(np.abs(batch.matrix.toarray()).sum(axis=0).max())))


def rounded() -> MarginalStrategy:
    """Noise on results that are no whole numbers of anything."""
    rng = np.random.default_rng(3)
    batch = in_factors(SIZES, [[rng.random((2, 4)), rng.random((2, 3)), None], [None, None, np.eye(5)]])
    return of_groups(batch, Results(batch, 1 / float(np.abs(batch.matrix.toarray()).sum(axis=0).max())))


KINDS = {"whole": whole, "inside": inside, "groups": groups, "results": results, "rounded": rounded}


@pytest.fixture
def ledger(tmp_path: Path) -> batchdp.Ledger:
    return batchdp.Ledger.create(tmp_path / "ledger.db", epsilon=1000)


def without_noise(planned: MarginalStrategy, read: Any, ledger: batchdp.Ledger) -> batchdp.Release:
    found: batchdp.Release = released(planned, read, ledger, 0.5)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_answered_saved_and_loaded(kind: str, ledger: batchdp.Ledger, tmp_path: Path) -> None:
    planned, given = KINDS[kind](), codes()
    exact = without_noise(planned, lambda: Records(given), ledger)
    counts = np.bincount(np.ravel_multi_index(given.T, SIZES), minlength=planned.workload.cells)
    truth = planned.workload.matrix @ counts
    assert np.concatenate([exact.array(t).reshape(-1) for t in range(len(exact.tables))]) == pytest.approx(
        truth, abs=1e-6
    )
    release = batchdp.answer(planned, given, epsilon=50, ledger=ledger, release_id="one")
    values = np.array([one.value for one in release.answers])
    errors = np.array([one.standard_error for one in release.answers])
    assert np.all(np.abs(values - truth) <= 30 * errors)
    assert not np.array_equal(values, truth)
    release.save(tmp_path / "a.release")
    loaded = batchdp.load_release(tmp_path / "a.release")
    assert isinstance(loaded, batchdp.Release)
    for t in range(len(release.tables)):
        assert np.array_equal(loaded.array(t), release.array(t))
        assert np.array_equal(loaded.figures(t).standard_errors, release.figures(t).standard_errors)
        assert np.array_equal(loaded.figures(t).half_widths, release.figures(t).half_widths)
    assert loaded.certificate == release.certificate
    assert check_charged(loaded, ledger)
    check_ledger(ledger)
    again = batchdp.answer(planned, given, epsilon=50, ledger=ledger, release_id="one")
    assert np.array_equal(again.noisy, release.noisy)
    assert release.covariance.diagonal() == pytest.approx(np.square(errors))
    assert batchdp.audit(planned, epsilon=0.5, runs=2000).passed


def test_the_certificate_says_what_an_auditor_needs(ledger: batchdp.Ledger) -> None:
    release = batchdp.answer(whole(), codes(), epsilon=0.5, ledger=ledger, neighbours="replace")
    c = release.certificate
    (noise,) = c.groups
    assert (c.privacy, c.noise.name, c.budget) == ("pure", "Laplace", 0.5)
    reader: Any = release.reader
    assert noise.moved == 2 * reader.lattice.groups[0].moved
    assert noise.moved / noise.scale <= c.loss <= 0.5
    assert "Laplace noise, ε = 0.5" in str(c)
    assert f"Δ = {noise.moved}, λ = " in str(c)
    assert "ε = 0.5" in repr(release)
    assert "ε = 0.5" in release._repr_html_()
    assert release.epsilon_at(1e-6) == 0.5
    assert ledger.spent == 0.5


def test_intervals_are_those_of_laplace_draws(ledger: batchdp.Ledger) -> None:
    release = batchdp.answer(results(), codes(), epsilon=1.0, ledger=ledger)
    ratio = release.figures(0).half_widths / release.figures(0).standard_errors
    assert ratio == pytest.approx(np.log(20) / np.sqrt(2), rel=2e-3)  # one draw
    other = release.with_confidence(0.5)
    ratio = other.figures(0).half_widths / release.figures(0).standard_errors
    assert ratio == pytest.approx(np.log(2) / np.sqrt(2), rel=2e-3)
    frame = release.table(1, 2)
    assert np.allclose(frame["high"] - frame["value"], release.figures(1).half_widths.reshape(-1))


def test_a_ledger_in_rho_is_charged_what_epsilon_implies(tmp_path: Path) -> None:
    ledger = batchdp.Ledger.create(tmp_path / "rho.db", rho=0.2)
    release = batchdp.answer(whole(), codes(), epsilon=0.5, ledger=ledger, release_id="one")
    assert ledger.spent == pytest.approx(0.5 + math.exp(-0.5) - 1, rel=1e-9)
    assert check_charged(release, ledger)
    with pytest.raises(BudgetError, match=r"epsilon=0\.5, which costs rho 0\.1065\d*…, is more than is left"):
        batchdp.answer(whole(), codes(), epsilon=0.5, ledger=ledger)


def test_what_cannot_be_paid_is_refused_before_noise_is_drawn(
    ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "sample", lambda *_: pytest.fail("drawn in vain"))
    with pytest.raises(BudgetError, match="more than is left"):
        batchdp.answer(whole(), codes(), epsilon=1001, ledger=ledger)
    with pytest.raises(PrivacyParameterError, match="epsilon"):
        batchdp.answer(whole(), codes(), rho=0.5, ledger=ledger)
    monkeypatch.setattr(estimates, "_memory", lambda: 10**6)
    with pytest.raises(ReleaseError, match="fewer tables"):
        batchdp.answer(whole(), codes(), epsilon=0.5, ledger=ledger)
    assert ledger.spent == 0


def test_ctrl_c_loses_nothing(ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Records:
        os.kill(os.getpid(), signal.SIGINT)
        return Records(codes())

    with pytest.raises(KeyboardInterrupt):
        without_noise(whole(), read, ledger)
    (entry,) = ledger.history()
    assert entry.state == "released"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(answering, "sample", interrupted)
    with pytest.raises(KeyboardInterrupt):
        batchdp.answer(whole(), codes(), epsilon=0.5, ledger=ledger)
    assert ledger.spent == 0.5  # noise is drawn before the charge


def test_estimates_take_epsilon() -> None:
    told = batchdp.estimate(whole(), epsilon=0.5)
    assert told.components == 1
    assert told.measurements == whole().measurements
    with pytest.raises(PrivacyParameterError, match="epsilon"):
        batchdp.estimate(whole(), rho=0.5)


def test_tables_are_exported(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    release = batchdp.answer(inside(), codes(), epsilon=0.5, ledger=ledger)
    files = batchdp.export(release, tmp_path / "tables")
    for t, file in enumerate(files):
        assert np.array_equal(pq.read_table(file)["value"].to_numpy(), release.array(t).reshape(-1))


FORGERIES: dict[str, Any] = {
    "a smaller noise": lambda _, a: a["scales"].__imul__(0.5),
    "a smaller loss": lambda h, _: h["certificate"].update(loss=1e-9),
    "a smaller budget": lambda h, _: h["certificate"].update(budget=1e-3),
    "another noise": lambda h, _: h["certificate"].update(privacy="zcdp"),
    "larger weights": lambda _, a: a["weighed"].__imul__(2),
    "weights below 0": lambda _, a: a["weighed"].__imul__(-1),
    "weights that overflow": lambda _, a: a["weighed"].__iadd__(2**61),
    "another strategy inside": lambda _, a: a["integers"].__iadd__(1),
    "more tables": lambda h, _: h["groups"][0].update(tables=99),
    "other tables": lambda _, a: a.update(apart=~a["apart"]),
    "differences of what has none": lambda _, a: a.update(difference=~a["apart"]),
    "groups that serve nobody": lambda h, _: h["groups"][0].update(serves=[]),
    "other values": lambda _, a: a["value"].__iadd__(1),
    "fewer measurements": lambda _, a: a.update(noisy=a["noisy"][:-1]),
    "another kind": lambda h, _: h.update(kind="results"),
    "other bits": lambda h, _: h.update(bits=h["bits"] - 1),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_releases_are_refused(forgery: str, ledger: batchdp.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "a.release"
    batchdp.answer(inside(), codes(), epsilon=0.5, ledger=ledger).save(path)
    forged(path, FORGERIES[forgery])
    with pytest.raises(ReleaseError):
        batchdp.load_release(path)


def test_damaged_files_are_refused(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "a.release"
    done: Any = batchdp.answer(rounded(), codes(), epsilon=0.5, ledger=ledger)
    done.save(path)
    content = path.read_bytes()
    rng, refused = np.random.default_rng(0), 0
    for place in rng.integers(0, len(content), 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            loaded: Any = batchdp.load_release(path)
        except ReleaseError:
            refused += 1
        else:  # an archive says some things twice, and others that nobody reads
            assert np.array_equal(loaded.noisy, done.noisy)
            assert str(loaded.certificate) == str(done.certificate)
    assert refused > 20
