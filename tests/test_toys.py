"""A noise and a measurement, each added in one file, go through answer, certificate, store, files, verify and audit."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toy_aggregate
import toy_engine
import toy_format  # noqa: F401
import toy_search
from batchdp import (
    BudgetError,
    Ledger,
    MatrixWorkload,
    ReleaseError,
    answer,
    archive,
    audit,
    export,
    load_release,
    optimize,
    plan,
)
from batchdp.release.file import FORMAT
from batchdp.release.verify import check_charged, check_ledger, check_release
from batchdp.workloads.kronecker import in_factors
from toy_measurement import BITS, CountEverybody
from toy_noise import GEOMETRIC, identity

TOYS: dict[str, Any] = {
    "noise": lambda: identity(3),
    "measurement": lambda: CountEverybody(MatrixWorkload(np.ones((1, 3)))),
}


@pytest.fixture(params=TOYS)
def strategy(request: pytest.FixtureRequest) -> Any:
    return TOYS[request.param]()


def test_a_toy_is_released_stored_repeated_saved_and_verified(strategy: Any, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=2)
    done = answer(strategy, [5, 6, 7], epsilon=0.5, ledger=ledger, release_id="r", neighbours="replace")
    c = done.certificate
    assert c.distribution == strategy.noise.name
    assert c.loss <= 0.5
    assert c.exact_loss >= sum(Fraction(one.moved) / Fraction(one.scale) for one in c.groups) > 0
    again = answer(strategy, [0, 0, 0], epsilon=0.5, ledger=ledger, release_id="r", neighbours="replace")
    assert again.certificate == c
    done.save(tmp_path / "r.release")
    loaded: Any = load_release(tmp_path / "r.release")
    check_release(loaded)
    assert check_charged(loaded, ledger)
    check_ledger(ledger)
    with pytest.raises(BudgetError):
        answer(strategy, [5, 6, 7], epsilon=1.75, ledger=ledger)
    assert ledger.spent == 0.5


def test_a_forged_toy_is_refused(strategy: Any, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=2)
    answer(strategy, [5, 6, 7], epsilon=0.5, ledger=ledger).save(tmp_path / "r.release")
    header, arrays = archive.load(tmp_path / "r.release", FORMAT, ReleaseError, "release")
    ((columns, bits, moved, scale, loss),) = json.loads(arrays["groups"].tobytes())
    forged = json.dumps([[columns, bits, moved // 2, scale / 2, loss]])
    arrays["groups"] = np.frombuffer(forged.encode(), np.uint8)
    archive.save(tmp_path / "r.release", header, arrays, ReleaseError)
    with pytest.raises(ReleaseError, match="cannot be used"):
        load_release(tmp_path / "r.release")


def test_the_audit_of_a_toy_passes_and_catches_too_little_noise(strategy: Any) -> None:
    from batchdp.audits.attack import attack
    from batchdp.audits.exact import exact
    from batchdp.mechanism.measurement import Neighbours
    from batchdp.mechanism.prepare import prepare
    from batchdp.privacy import Budget

    assert audit(strategy, epsilon=1.0, runs=4000).passed
    made = prepare(strategy, Neighbours(), Budget(strategy.noise, 1.0), 10**6)
    (noise,) = made.noises
    half = replace(made, noises=(replace(noise, moved=noise.moved // 2, scale=noise.scale / 2),))
    assert not all(one.held for one in exact(half))
    quiet = attack(made, 4000, lambda scales, sizes: np.zeros(int(sizes.sum()), dtype=np.int64))
    assert not all(one.held for one in quiet)


def test_what_the_toys_draw_is_their_own(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3000)
    strategy: Any = CountEverybody(MatrixWorkload(np.ones((1, 3))))
    done: Any = answer(strategy, [5, 6, 7], epsilon=1000, ledger=ledger)
    assert done.values == pytest.approx([18], abs=0.1)
    assert [(one.name, one.low < one.value < one.high) for one in done.answers] == [("total", True)]
    assert done.certificate.groups[0].bits == BITS
    one: Any = answer(identity(2), [3, 4], epsilon=1000, ledger=ledger)
    assert one.values == pytest.approx([3, 4], abs=0.1)
    assert one.reader.noise == GEOMETRIC


def test_an_aggregate_an_engine_and_a_format_are_a_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """COUNT_IF over an address of a new kind, with so much budget that noise rounds away, written as JSON lines."""
    toy_aggregate.register(monkeypatch)
    toy_engine.TABLES["people"] = "SELECT 'a' AS g, unnest(range(100)) AS age"
    domain = {"table": "t", "columns": {"g": {"values": ["a", "b"]}, "age": {"integers": [0, 120]}}}
    planned = plan("SELECT g, COUNT_IF(age < 18) AS young FROM t GROUP BY g", domain, seconds=0.2)
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=60)
    done = answer(planned, "memory://people", epsilon=50.0, ledger=ledger)
    (file,) = export(done, tmp_path / "out", format="jsonl")  # type: ignore[arg-type]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["g"], round(row["value"])) for row in rows] == [("a", 18), ("b", 0)]


def test_a_search_over_many_columns_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs of three columns by the toy's search, from optimize to a verified release and its audit."""
    toy_search.register(monkeypatch)
    sizes = [3, 4, 5]
    pairs = [[None if i == left else np.eye(n) for i, n in enumerate(sizes)] for left in (2, 1, 0)]
    found = optimize(in_factors(sizes, pairs))
    assert found.method == "toy search"
    assert found.expected_squared_error(epsilon=1.0) == pytest.approx(2 * 9 * (12 + 15 + 20))
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=60)
    records = np.array([[0, 1, 2]] * 7 + [[2, 3, 4]])
    done = answer(found, records, epsilon=50.0, ledger=ledger)
    assert done.table(0, 1)["value"].round().to_numpy().reshape(3, 4)[[0, 2], [1, 3]].tolist() == [7, 1]
    done.save(tmp_path / "a.release")
    check_release(load_release(tmp_path / "a.release"))
    assert audit(found, epsilon=1.0, runs=4000).passed
