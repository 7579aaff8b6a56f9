"""What a release would cost: said once everything is in order, before anything is charged or read."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import batchdp.engines
from batchdp import (
    STRATEGIES,
    BudgetError,
    Ledger,
    LedgerError,
    PrivacyParameterError,
    ReleaseError,
    answer,
    optimize,
    plan,
    workloads,
)
from batchdp.mechanism.measurement import Neighbours
from batchdp.privacy import LAPLACE
from batchdp.private import CellCounts
from batchdp.release.answering import Cost
from batchdp.workloads.kronecker import in_factors
from mechanisms import released

STRATEGY = STRATEGIES["noise-on-data"](workloads.prefix(4))
COUNTS = [3, 1, 4, 1]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=1)


def noted(seen: list[Cost]) -> Callable[[Cost], bool]:
    """Says yes to everything, and keeps what it was asked."""

    def confirm(cost: Cost) -> bool:
        seen.append(cost)
        return True

    return confirm


def test_the_cost_is_that_of_the_release_and_nothing_is_charged_or_read_before(ledger: Ledger) -> None:
    order: list[str] = []
    seen: list[Cost] = []

    def counts() -> CellCounts:
        order.append(f"read, {len(ledger.history())} charged")
        return CellCounts(np.array(COUNTS))

    def confirm(cost: Cost) -> bool:
        order.append(f"asked, {len(ledger.history())} charged")
        seen.append(cost)
        return True

    whose = Neighbours("replace", 3, "patient")
    released(STRATEGY, counts, ledger, 0.1, label="t", neighbours=whose, confirm=confirm)
    assert order == ["asked, 0 charged", "read, 1 charged"]
    (cost,) = seen
    assert (cost.budget.noise, float(cost.budget), cost.unit) == (LAPLACE, 0.1, "epsilon")
    assert (cost.charged, cost.remaining, cost.left) == (0.1, 1.0, 0.9)
    assert (cost.neighbours, cost.is_new) == (whose, True)


@pytest.mark.parametrize("reply", [False, None])
def test_without_a_yes_nothing_is_opened_twice_charged_or_read(
    reply: Any, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan("SELECT COUNT(*) AS n FROM t", {"table": "t", "columns": {"c": {"integers": [0, 2]}}}, cache=False)
    opened, counted = [], []
    really_open = batchdp.engines.open_table

    def open_table(*given: Any, **options: Any) -> Any:
        opened.append(given)
        return really_open(*given, **options)

    monkeypatch.setattr(batchdp.engines, "open_table", open_table)
    monkeypatch.setattr(batchdp.engines, "prepare_count", lambda *_, **__: lambda _: counted.append(1))
    before = ledger.head
    with pytest.raises(ReleaseError, match="not confirmed, so nothing was read and nothing was spent"):
        answer(made, pa.table({"c": [1, 2]}), epsilon=0.5, ledger=ledger, confirm=lambda _: reply)
    assert (ledger.head, len(opened), counted) == (before, 1, [])


def test_another_unit_is_converted(tmp_path: Path) -> None:
    seen: list[Cost] = []
    rho = Ledger.create(tmp_path / "rho.db", rho=1)
    answer(STRATEGY, COUNTS, epsilon=0.5, ledger=rho, confirm=noted(seen))
    (cost,) = seen
    assert (float(cost.budget), cost.budget.noise, cost.unit) == (0.5, LAPLACE, "rho")
    assert cost.charged == pytest.approx(0.5 + math.exp(-0.5) - 1, rel=1e-6)  # and not 0.125
    assert rho.spent == cost.charged
    assert cost.left == pytest.approx(1 - cost.charged)


def test_what_is_free_or_will_be_refused_is_not_asked_about(ledger: Ledger) -> None:
    def never(cost: Cost) -> bool:
        raise AssertionError(cost)

    first = answer(STRATEGY, COUNTS, epsilon=0.5, ledger=ledger, release_id="one")
    again = answer(STRATEGY, COUNTS, epsilon=0.5, ledger=ledger, release_id="one", confirm=never)
    assert np.array_equal(first.values, again.values)
    with pytest.raises(BudgetError, match="more than is left"):
        answer(STRATEGY, COUNTS, epsilon=0.500000001, ledger=ledger, confirm=never)
    with pytest.raises(PrivacyParameterError, match="epsilon=nan"):
        answer(STRATEGY, COUNTS, epsilon=float("nan"), ledger=ledger, confirm=never)
    asked: list[Cost] = []
    answer(STRATEGY, COUNTS, epsilon=0.5, ledger=ledger, confirm=noted(asked))
    assert [cost.left for cost in asked] == [0.0]  # all that is left may be spent


def test_a_ledger_is_given_open_or_by_its_path(ledger: Ledger, tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "dossier"
    made = plan("SELECT COUNT(*) FROM t", domain={"table": "t", "columns": {"a": {"values": ["x"]}}})
    table = pa.table({"a": ["x"]})
    for given in (ledger.path, str(ledger.path)):
        answer(STRATEGY, COUNTS, epsilon=0.25, ledger=given)
    done = answer(made, table, epsilon=0.5, ledger=ledger.path)
    assert ledger.spent == 1
    batchdp.report(done, page, ledger=ledger.path)
    batchdp.report_plan(made, page, ledger=str(ledger.path))
    batchdp.dossier(done, folder, ledger=str(ledger.path))
    batchdp.verify(folder, ledger=ledger.path)
    for wrong, said in ((None, "missing"), (3, "a int"), (b"budget.db", "a bytes")):
        with pytest.raises(LedgerError, match=f"ledger is {said}; give a Ledger, or the path of a file"):
            answer(made, table, epsilon=0.5, ledger=wrong)  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match="does not exist"):
        answer(made, table, epsilon=0.5, ledger="elsewhere.db")


MANY = optimize(in_factors([2, 2], [[np.eye(2), None], [None, np.eye(2)]]), privacy="zcdp")
COUNTED = plan("SELECT COUNT(*) FROM t", domain={"table": "t", "columns": {"a": {"values": ["x"]}}}, cache=False)


@pytest.mark.parametrize(
    ("planned", "table", "budget"),
    [
        (COUNTED, pa.table({"a": ["x"]}), {"epsilon": 0.5}),
        (STRATEGY, COUNTS, {"epsilon": 0.5}),
        (MANY, np.ones((3, 2), dtype=int), {"rho": 0.5}),
    ],
    ids=["plan", "matrix", "many columns"],
)
def test_answer_refuses_what_is_no_ledger(planned: Any, table: Any, budget: Any, tmp_path: Path) -> None:
    wrong = {
        None: "missing",
        3: "a int",
        "": "an empty text",
        tmp_path: "the folder .*",
        str(tmp_path): "the folder .*",
    }
    for given, said in wrong.items():
        with pytest.raises(LedgerError, match=f"^ledger is {said}; give a Ledger, or the path of a file that Ledger."):
            answer(planned, table, **budget, ledger=given)  # type: ignore[arg-type]
