"""Files that hold more than what is read of them: whatever it would say, it is refused and not ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from batchdp import Ledger, LedgerError, answer, archive, load_plan, load_release, plan
from batchdp.errors import BatchDPError, ReleaseError
from batchdp.release.file import decoded

DOMAIN = {"table": "t", "columns": {"a": {"values": ["x", "y"]}, "b": {"range": [0, 8], "bins": [0, 4]}}}
TABLE = pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 7]})
PLANS: dict[str, dict[str, Any]] = {
    "linear": {"sql": "SELECT COUNT(*) FROM t GROUP BY a; SELECT COUNT(*) FROM t"},
    "derived": {"sql": "SELECT a, SUM(CASE WHEN b < 4 THEN 1 END) / COUNT(*) AS share FROM t GROUP BY a"},
    "shaped": {"sql": "SELECT COUNT(*) FROM t WHERE a = 'x'; SELECT COUNT(*) FROM t", "shape": "any"},
    "gaussian": {"sql": "SELECT COUNT(*) FROM t GROUP BY a, b; SELECT COUNT(*) FROM t", "privacy": "zcdp"},
    "tables": {"marginals": 2},
    "gaussian tables": {"marginals": [1, 2], "privacy": "zcdp"},
}


def keys(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where objects are, at any depth."""
    if isinstance(content, dict):
        yield at
        for name, value in content.items():
            yield from keys(value, (*at, name))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from keys(value, (*at, place))


def with_more(header: Any, place: tuple[Any, ...]) -> Any:
    copy = json.loads(json.dumps(header))
    inside = copy
    for step in place:
        inside = inside[step]
    inside["exact counts"] = [8675309]
    return copy


@pytest.mark.parametrize("kind", PLANS)
def test_a_key_or_an_array_that_no_file_has_is_refused(kind: str, tmp_path: Path) -> None:
    made = plan(domain=DOMAIN, seconds=0.2, **PLANS[kind])
    ledger = Ledger.create(tmp_path / "budget.db", rho=10)
    budget: dict[str, Any] = {"rho": 0.5} if "gaussian" in kind else {"epsilon": 0.5}
    done = answer(made, TABLE, ledger=ledger, **budget)
    made.save(tmp_path / "a.plan")
    done.save(tmp_path / "a.release")
    for name, load in (("a.plan", load_plan), ("a.release", load_release)):
        path = tmp_path / name
        load(path)
        header, arrays = archive.load(path, str(archive.read_format(path)), ReleaseError, name)
        places = list(keys(header))
        assert len(places) > 1
        for place in places:
            archive.save(path, with_more(header, place), arrays, ReleaseError)
            with pytest.raises(BatchDPError, match=r"a\.(plan|release)"):
                load(path)
        archive.save(path, header, {**arrays, "exact counts": np.array([8675309])}, ReleaseError)
        with pytest.raises(BatchDPError, match="holds 'exact counts', which this version does not know"):
            load(path)


@pytest.mark.parametrize("kind", ["linear", "tables"])
def test_an_output_in_a_ledger_holds_nothing_else(kind: str, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1)
    answer(plan(domain=DOMAIN, seconds=0.2, **PLANS[kind]), TABLE, epsilon=1, ledger=ledger, release_id="r")
    stored = ledger.stored("r")
    assert stored is not None
    line, _, rest = stored.output.partition(b"\n")
    decoded(stored.output, "r")
    more = json.dumps(with_more(json.loads(line), ())).encode() + b"\n" + rest
    with pytest.raises(LedgerError, match="not a release"):
        decoded(more, "r")
