"""Whatever fails after the charge, on either way to a release: the budget is said to be gone, and no count gets out."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from batchdp import Ledger, answer, optimize, plan, workloads
from batchdp.errors import BatchDPError, LedgerError, ReleaseError, TableError
from batchdp.measuring.lattice import Lattice
from batchdp.release import answering
from batchdp.release.components import answering as tables
from batchdp.tables.stream import StreamEngine
from test_components import structure

CANARY = "exact count 8675309"
BATCH = optimize([[1.0, 1.0], [1.0, 0.0]])
TABLES = optimize(structure(workloads.marginals((4, 3, 5), [0, 1, 2])), privacy="zcdp")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", rho=1)


def counted(ledger: Ledger) -> Any:
    return answer(BATCH, [40, 60], epsilon=0.5, ledger=ledger, release_id="friday")


def tabled(ledger: Ledger) -> Any:
    return answer(TABLES, np.zeros((7, 3), dtype=np.int64), rho=0.125, ledger=ledger, release_id="friday")


POINTS: dict[str, tuple[Callable[[Ledger], Any], Any, str]] = {
    "measuring": (counted, Lattice, "measured"),
    "reconstructing": (counted, answering, "_reconstructed"),
    "certifying": (counted, answering, "certified"),
    "encoding": (counted, answering, "encoded"),
    "storing": (counted, Ledger, "complete"),
    "adding to tables": (tabled, tables, "add_measured"),
    "certifying tables": (tabled, tables, "_certificate"),
    "encoding tables": (tabled, tables, "encoded"),
    "storing tables": (tabled, Ledger, "complete"),
}


def failing(monkeypatch: pytest.MonkeyPatch, point: str, error: BaseException) -> Callable[[Ledger], Any]:
    made, owner, name = POINTS[point]

    def fail(*_: Any, **__: Any) -> None:
        raise error from ZeroDivisionError(CANARY)

    monkeypatch.setattr(owner, name, fail)
    return made


@pytest.mark.parametrize("point", POINTS)
def test_an_error_that_nobody_thought_of_becomes_one_of_the_tree_without_its_text(
    point: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
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
    kind: type[BatchDPError], point: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = failing(monkeypatch, point, kind("the disk is full"))
    with pytest.raises(kind, match="the disk is full; release 'friday' was charged before") as caught:
        made(ledger)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_stays_one_and_says_what_became_of_the_budget(
    kind: type[BaseException], point: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
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
