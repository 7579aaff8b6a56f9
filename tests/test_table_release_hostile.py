"""Releases of tables against hostile tables, names and files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

import batchdp
from batchdp.errors import BudgetError, LatticeError, ReleaseError, TableError
from batchdp.mechanism.sensitivity import exact_squares
from batchdp.release import estimates
from batchdp.release.answering import room_on_disk, uninterrupted
from batchdp.release.counts import codes_of
from test_components import structure
from test_table_release import SIZES, codes, forged, strategy


@pytest.fixture
def ledger(tmp_path: Path) -> batchdp.Ledger:
    return batchdp.Ledger.create(tmp_path / "ledger.db", rho=100)


def frame(*names: str) -> pd.DataFrame:
    return pd.DataFrame(codes(), columns=pd.Index(names, dtype=object))


def listed() -> Any:
    prefix = np.tril(np.ones((4, 4)))
    batch = structure(batchdp.workloads.products(SIZES, [[prefix, np.eye(3), None], [None, np.eye(3), np.eye(5)]]))
    return batchdp.optimize(batch, privacy="zcdp")


def test_a_refusal_does_not_tell_how_many_records_there_are(ledger: batchdp.Ledger) -> None:
    told = set()
    for count in (1000, 1001):
        with pytest.raises(TableError) as refusal:
            batchdp.answer(strategy(), codes(count)[:, :2], rho=0.5, ledger=ledger)
        told.add(str(refusal.value))
    assert len(told) == 1


class Remote:
    """Something that computes when it is made an array."""

    ndim, shape, dtype = 2, (3, 3), np.dtype(np.int64)

    def __array__(self, *_: object, **__: object) -> NDArray[np.int64]:
        pytest.fail("read before the charge")


class Own(pd.DataFrame):  # type: ignore[misc]
    """A frame of somebody's own class."""


def test_what_would_be_computed_before_the_charge_is_refused(ledger: batchdp.Ledger) -> None:
    with pytest.raises(TableError, match="Remote"):
        batchdp.answer(strategy(), Remote(), rho=0.5, ledger=ledger)
    nullable = Own({name: pd.array([1, None], dtype="Int64") for name in "abc"})
    assert codes_of(nullable, strategy().workload).read().codes.tolist() == [[1, 1, 1]]


def test_group_columns_may_be_called_like_the_columns_of_answers(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    release = batchdp.answer(strategy(), frame("value", "low", "value_"), rho=0.5, ledger=ledger)
    found = release.table("low", "value")
    assert list(found) == ["low_", "value_", "value", "standard_error", "low", "high"]
    assert np.array_equal(found["value"], release.array(release.find(0, 1)).reshape(-1))
    assert found["low_"].tolist() == [0, 1, 2] * 4
    assert list(release.table("value", "value_"))[:2] == ["value__", "value_"]
    files = batchdp.export(release, tmp_path / "tables")
    index = json.loads((tmp_path / "tables" / "tables.json").read_text(encoding="utf-8"))["tables"]
    for file, one, table in zip(files, index, release.tables, strict=True):
        assert len(one["columns"]) == len(table.columns)
        assert pq.read_table(file).num_columns == len(table.columns) + 4


def test_so_may_those_of_statements(ledger: batchdp.Ledger) -> None:
    workload = batchdp.MatrixWorkload(np.eye(2), ["by[low=1]", "by[low=2]"])
    plain = batchdp.PairStrategy(workload, np.eye(2), np.eye(2), privacy="zcdp")
    found = batchdp.answer(plain, [1, 2], rho=0.5, ledger=ledger).table("low")
    assert list(found) == ["low_", "value", "standard_error", "low", "high"]
    assert found["low_"].tolist() == ["1", "2"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_names_that_files_cannot_have(format: Any, ledger: batchdp.Ledger, tmp_path: Path) -> None:
    batch = structure(batchdp.workloads.products(SIZES, [[np.eye(4), None, None]], names=["../" + "漢" * 200]))
    planned: Any = batchdp.optimize(batch, privacy="zcdp")
    (file,) = batchdp.export(batchdp.answer(planned, codes(), rho=0.5, ledger=ledger), tmp_path / "a", format=format)
    assert file.is_file()
    assert file.parent == tmp_path / "a"
    odd = batchdp.answer(planned, frame("\ud800", "b", "c"), rho=0.5, ledger=ledger)
    with pytest.raises(ReleaseError, match="text that files can hold"):
        batchdp.export(odd, tmp_path / "b", format=format)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a", ledger.path]


def test_formulas_stay_texts_and_numbers_numbers(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    release = batchdp.answer(strategy(), frame("=1+1", "b", "c"), rho=0.5, ledger=ledger)
    assert batchdp.export(release, tmp_path / "a", format="csv")[1].read_text().startswith("'=1+1,value")
    workload = batchdp.MatrixWorkload(np.eye(2), ["by[day=-5]", "by[day=-5+cmd|' /C calc'!A0]"])
    plain = batchdp.PairStrategy(workload, np.eye(2), np.eye(2), privacy="zcdp")
    groups = batchdp.answer(plain, [1, 2], rho=0.5, ledger=ledger)
    (file,) = batchdp.export(groups, tmp_path / "b", format="csv")
    assert pd.read_csv(file)["day"].tolist() == ["-5", "'-5+cmd|' /C calc'!A0"]


def test_what_no_ledger_stores_is_refused_before_the_charge(
    ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "LARGEST_OUTPUT", 1000)
    monkeypatch.setattr("batchdp.ledger.ledger.LARGEST_OUTPUT", 1000)
    with pytest.raises(ReleaseError, match="that a ledger stores"):
        batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    assert ledger.spent == 0


@pytest.mark.parametrize("folder", ["", ".", "a\0b", "..", "/"])
def test_folders_that_are_none(
    folder: str, ledger: batchdp.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    release = batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    with pytest.raises(ReleaseError, match="new folder"):
        batchdp.export(release, folder)


def test_an_id_keeps_its_columns_names(ledger: batchdp.Ledger) -> None:
    planned = strategy()
    first = batchdp.answer(planned, frame("age", "sex", "ward"), rho=1, ledger=ledger, release_id="one")
    with pytest.raises(BudgetError, match="plan_digest"):
        batchdp.answer(planned, frame("sex", "age", "ward"), rho=1, ledger=ledger, release_id="one")
    again = batchdp.answer(planned, frame("age", "sex", "ward"), rho=1, ledger=ledger, release_id="one")
    assert again.column_names == first.column_names


LIES: dict[str, Callable[[Any, Any], Any]] = {
    "answers twice as large": lambda _, a: a["recover"].__imul__(2),
    "other queries": lambda _, a: a["given"].__imul__(3),
    "other averages": lambda _, a: a["averages"].__imul__(2),
    "other columns": lambda h, _: h["column_names"].reverse(),
    "tables that nothing answers": lambda h, _: [group.update(tables=[]) for group in h["groups"]],
    "another cap": lambda h, _: h.update(largest_total=1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_certificate_vouches_for_how_tables_are_read(lie: str, ledger: batchdp.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "a.release"
    batchdp.answer(listed(), codes(), rho=0.5, ledger=ledger).save(path)
    forged(path, LIES[lie])
    with pytest.raises(ReleaseError, match="how they are read"):
        batchdp.load_release(path)


def _wide(header: Any, arrays: Any, k: int = 40) -> None:
    """One table of many columns, and so of 2^40 components."""
    header.update(sizes=[2] * k, factors=[[None]] * k, names=None, distinct=[2] * k)
    header["column_names"] = [f"c{i}" for i in range(k)]
    arrays.update(starts=np.array([0, k]), columns=np.arange(k), chosen=np.zeros(k, int), weights=np.ones(1))
    arrays.update(value=np.tile([0, 1], k), orbit=np.zeros(2 * k, int), averages=np.full(2 * k, 0.5))


def _long(header: Any, arrays: Any) -> None:
    """Twenty lists of twenty: 20^20 components."""
    lists = [[[[], [], [1, 1]]] * 20] * 20
    header["groups"] = [{"bits": 0, "share": 1.0, "tables": None, "lists": lists}]
    arrays.update(integers=np.ones(400, int), recover=np.ones(400), scales=np.ones(1))


def _fine(header: Any, arrays: Any, k: int = 8, n: int = 10) -> None:
    """A list that looks at 10^8 combinations of orbits, one column at a time."""
    header.update(sizes=[n] * k, factors=[[]] * k, names=None, distinct=[n] * k)
    header["column_names"] = [f"c{i}" for i in range(k)]
    lists = [[[[i], [], [1, n]] for i in range(k)]]
    header["groups"] = [{"bits": 0, "share": 1.0, "tables": None, "lists": lists}]
    nothing = np.zeros(0, int)
    arrays.update(starts=np.array([0, 0]), columns=nothing, chosen=nothing, weights=np.ones(1), given=np.zeros(0))
    arrays.update(value=np.tile(np.arange(n), k), orbit=np.tile(np.arange(n), k), averages=np.full(n * k, 1 / n))
    arrays.update(integers=np.ones(k * n, int), recover=np.ones(k * n), scales=np.ones(1))


@pytest.mark.parametrize(
    ("bomb", "planned", "problem"),
    [(_wide, strategy, "measurements"), (_long, listed, "measurements"), (_fine, listed, "records apart")],
)
def test_small_files_that_ask_for_much_are_refused(
    bomb: Any, planned: Any, problem: str, ledger: batchdp.Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "a.release"
    batchdp.answer(planned(), codes(), rho=0.5, ledger=ledger).save(path)
    forged(path, bomb)
    with pytest.raises(ReleaseError, match=problem):
        batchdp.load_release(path)


def test_the_least_integer_is_too_large_to_be_squared() -> None:
    with pytest.raises(LatticeError, match="too large"):
        exact_squares(np.array([[-(2**63)]]))


def test_a_handler_that_is_not_pythons_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("replaced"))
    with uninterrupted():
        pass


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="a file that is open cannot be removed everywhere")
def test_room_is_given_back_even_by_a_process_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really, taken = os.posix_fallocate, []

    def noted(file: int, start: int, size: int) -> None:
        really(file, start, size)
        taken.append(file)

    monkeypatch.setattr(os, "posix_fallocate", noted)
    with room_on_disk(tmp_path / "ledger.db", 100_000) as free:
        assert list(tmp_path.iterdir()) == []  # no name is left: the room lasts as long as the open file
        assert os.fstat(taken[0]).st_size == 100_000
        free()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(taken[0])
