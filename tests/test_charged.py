"""Whatever fails after the charge, in any kind of release: the budget is said to be gone, and no count gets out."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest

from batchdp import Ledger, answer, plan
from batchdp.engines.duck import StreamEngine
from batchdp.errors import BatchDPError, LedgerError, ReleaseError, TableError
from batchdp.release import answering
from kinds import MAKERS, kind

CANARY = "exact count 8675309"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", rho=1)


PLACES: dict[str, tuple[Any, str]] = {
    "certifying": (answering, "certify"),
    "measuring": (answering, "add"),
    "presenting": (answering, "_present"),
    "reading": (answering, "_kept"),
    "encoding": (answering, "encoded"),
    "storing": (Ledger, "complete"),
}
POINTS = [(name, place) for name in MAKERS for place in PLACES]


def failing(monkeypatch: pytest.MonkeyPatch, point: tuple[str, str], error: BaseException) -> Callable[[Ledger], Any]:
    own, (owner, name) = kind(point[0]), PLACES[point[1]]

    def fail(*_: Any, **__: Any) -> None:
        raise error from ZeroDivisionError(CANARY)

    def made(ledger: Ledger) -> Any:
        return answer(own.strategy, own.data, **own.budget, ledger=ledger, release_id="friday")

    monkeypatch.setattr(owner, name, fail)
    return made


@pytest.mark.parametrize("point", POINTS)
def test_an_error_that_nobody_thought_of_becomes_one_of_the_tree_without_its_text(
    point: tuple[str, str], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = failing(monkeypatch, point, ValueError(CANARY))
    with pytest.raises(ReleaseError, match=r"ValueError.*'friday' was charged .*stays spent") as caught:
        made(ledger)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert [entry.state for entry in ledger.history()] == ["reserved"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", [TableError, LedgerError])
def test_errors_that_never_show_records_keep_their_words(
    kind: type[BatchDPError], point: tuple[str, str], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = failing(monkeypatch, point, kind("the disk is full"))
    with pytest.raises(kind, match="the disk is full; release 'friday' was charged before") as caught:
        made(ledger)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_stays_one_and_says_what_became_of_the_budget(
    kind: type[BaseException], point: tuple[str, str], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = failing(monkeypatch, point, kind())
    with pytest.raises(kind) as caught:
        made(ledger)
    shown = "".join(traceback.format_exception(caught.value))
    assert "'friday' was charged before" in shown
    assert CANARY not in shown


def test_a_table_that_cannot_be_closed_shows_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError(CANARY)

    made = plan("SELECT COUNT(*) FROM t", domain={"table": "t", "columns": {"a": {"values": ["x"]}}})
    monkeypatch.setattr(StreamEngine, "close", fail)
    with pytest.raises(TableError, match=r"closing the pandas DataFrame failed .*RuntimeError") as caught:
        answer(made, pd.DataFrame({"a": ["x"]}), epsilon=0.5, ledger=ledger)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
