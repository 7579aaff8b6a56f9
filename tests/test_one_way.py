"""The order of a release is its guarantee, for every kind: nothing is read before it is paid, nothing paid is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchdp import (
    BudgetError,
    Ledger,
    LedgerError,
    ReleaseError,
    answer,
    audit,
    dossier,
    estimate,
    load_release,
    verify,
)
from batchdp.mechanism import measure
from batchdp.release import answering
from batchdp.release.verify import check_charged, check_ledger
from kinds import MAKERS, kind

pytestmark = pytest.mark.parametrize("name", MAKERS)


def released(name: str, ledger: Ledger, **options: Any) -> Any:
    own = kind(name)
    return answer(own.strategy, own.data, **own.budget, ledger=ledger, **options)


def noisy(release: Any) -> list[Any]:
    found: list[Any] = release.noisy.tolist()
    return found


def test_cost_noise_room_charge_count_store_in_this_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, order = kind(name).ledger(tmp_path), list[str]()

    def noting(owner: Any, what: str, said: str) -> None:
        really = getattr(owner, what)

        def noted(*given: Any, **more: Any) -> Any:
            order.append(f"{said}, {len(ledger.history())} charged")
            return really(*given, **more)

        monkeypatch.setattr(owner, what, noted)

    for owner, what, said in (
        (answering, "prepare", "refuse"),
        (answering, "sample", "draw"),
        (answering, "room_on_disk", "room"),
        (answering, "add", "count"),
        (Ledger, "complete", "store"),
    ):
        noting(owner, what, said)

    def confirm(_: object) -> bool:
        order.append(f"cost, {len(ledger.history())} charged")
        return True

    released(name, ledger, confirm=confirm)
    assert order == [
        "refuse, 0 charged",
        "cost, 0 charged",
        "draw, 0 charged",
        "room, 0 charged",
        "count, 1 charged",
        "store, 1 charged",
    ]


def test_what_cannot_be_paid_is_refused_before_noise_is_drawn(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = kind(name).ledger(tmp_path, times=0.5)
    monkeypatch.setattr(answering, "sample", lambda *_: pytest.fail("drawn in vain"))
    with pytest.raises(BudgetError, match="is more than is left"):
        released(name, ledger)
    assert ledger.history() == ()


def test_an_interrupt_while_noise_is_drawn_costs_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    ledger = kind(name).ledger(tmp_path)
    monkeypatch.setattr(answering, "sample", interrupted)
    with pytest.raises(KeyboardInterrupt):
        released(name, ledger)
    assert ledger.history() == ()


def test_ctrl_c_after_the_charge_loses_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, really = kind(name).ledger(tmp_path), measure.add

    def add(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return really(*given)

    monkeypatch.setattr(answering, "add", add)
    with pytest.raises(KeyboardInterrupt):
        released(name, ledger, release_id="r")
    assert [entry.state for entry in ledger.history()] == ["released"]
    monkeypatch.undo()
    monkeypatch.setattr(answering, "sample", lambda *_: pytest.fail("drawn again"))
    assert len(noisy(released(name, ledger, release_id="r"))) > 0


def test_a_full_disk_is_noticed_before_the_charge(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    ledger = kind(name).ledger(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LedgerError, match="nothing was charged"):
        released(name, ledger)
    assert ledger.history() == ()


def test_a_repeat_is_what_was_stored_and_another_question_is_refused(name: str, tmp_path: Path) -> None:
    own, ledger = kind(name), kind(name).ledger(tmp_path)
    first = released(name, ledger, release_id="r")
    spent = ledger.spent
    again = answer(own.strategy, np.zeros_like(own.data), **own.budget, ledger=ledger, release_id="r")
    assert noisy(again) == noisy(first)
    assert again.certificate == first.certificate
    assert [one.value for one in again.answers] == [one.value for one in first.answers]
    with pytest.raises(BudgetError, match="choose a new release_id"):
        released(name, ledger, release_id="r", neighbours="replace")
    assert ledger.spent == spent
    (entry,) = ledger.history()
    assert entry.answers_digest is not None
    check_ledger(ledger)


def test_a_release_is_saved_loaded_charged_published_and_verified(name: str, tmp_path: Path) -> None:
    ledger = kind(name).ledger(tmp_path)
    done = released(name, ledger)
    done.save(tmp_path / "r.release")
    loaded = load_release(tmp_path / "r.release")
    assert noisy(loaded) == noisy(done)
    assert loaded.certificate == done.certificate
    assert check_charged(loaded, ledger)
    dossier(loaded, tmp_path / "out", ledger=ledger)
    assert len(verify(tmp_path / "out", ledger=ledger).unchecked) == 2
    with pytest.raises(ReleaseError):  # the same answers, charged elsewhere
        check_charged(_with_id(loaded, "other"), _charged(name, tmp_path / "elsewhere"))


def _with_id(release: Any, identity: str) -> Any:
    from dataclasses import replace

    return replace(release, certificate=replace(release.certificate, release_id=identity))


def _charged(name: str, folder: Path) -> Ledger:
    folder.mkdir()
    ledger = kind(name).ledger(folder)
    released(name, ledger, release_id="other")
    return ledger


def test_the_audit_passes_and_the_estimate_counts(name: str, tmp_path: Path) -> None:
    own = kind(name)
    assert audit(own.strategy, **own.budget, runs=2000).passed
    told = estimate(own.strategy, **own.budget)
    done = released(name, own.ledger(tmp_path))
    assert told.measurements == done.certificate.measurements == len(noisy(done))
    assert told.components == len(done.certificate.groups)


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from batchdp import Ledger
from batchdp.mechanism import measure
from batchdp.release import answering
import test_one_way
point = {point!r}
really = getattr(answering, point)
def killed(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(answering, point, killed)
test_one_way.released({name!r}, Ledger.open({path!r}), release_id="r")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "state"), [("sample", None), ("room_on_disk", None), ("add", "reserved"), ("encoded", "reserved")]
)
def test_a_kill_gives_nothing_away(name: str, point: str, state: str | None, tmp_path: Path) -> None:
    """Charged and without an output, or not charged at all; either way the id is never drawn for again."""
    ledger = kind(name).ledger(tmp_path)
    script = textwrap.dedent(KILLED).format(
        tests=str(Path(__file__).parent), point=point, name=name, path=str(ledger.path)
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [entry.state for entry in ledger.history()] == ([] if state is None else [state])
    ledger.verify()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".room") == ["budget.db"]
    if state is not None:
        with pytest.raises(BudgetError, match="has no output"):
            released(name, ledger, release_id="r")
