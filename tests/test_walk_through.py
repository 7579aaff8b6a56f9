"""docs/walk-through.md against the code: functions exist, their callers reach them, in the order of the page."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp

PAGE = Path(__file__).parent.parent / "docs" / "walk-through.md"
DOOR = "the door"
DOMAIN = """
table = "patients"
[columns.state]
values = ["NY", "NJ", "CA", "WA"]
other = "drop"
"""
SQL = """
SELECT COUNT(*) AS everybody FROM patients;
SELECT COUNT(*) AS east FROM patients WHERE state IN ('NY', 'NJ');
SELECT COUNT(*) AS west FROM patients WHERE state IN ('CA', 'WA');
"""


@dataclass(frozen=True)
class Step:
    line: int
    function: str
    caller: str

    def __str__(self) -> str:
        return f"docs/walk-through.md, line {self.line}: `{self.function}`"


def walks() -> dict[str, list[Step]]:
    """The steps under each heading."""
    found: dict[str, list[Step]] = {}
    heading = ""
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("## "):
            heading = line[3:]
        elif row := re.match(r"\| `([\w.]+)` \| `?([\w. ]+?)`? \| \S", line):
            found.setdefault(heading, []).append(Step(number, row[1], row[2]))
    return found


PLAN, ANSWER = "From queries to a plan", "From a plan to answers"
STEPS = [step for steps in walks().values() for step in steps]


def called(run: Callable[[], Any], watched: set[str]) -> tuple[Any, dict[str, set[str]]]:
    """What the run returns, and the watched functions in the order of their first calls, with all that led there."""
    seen: dict[str, set[str]] = {}

    def name_of(frame: FrameType) -> str:
        return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}".removeprefix("batchdp.")

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (name := name_of(frame)) not in watched:
            return
        above, at = seen.setdefault(name, set()), frame.f_back
        while at is not None:
            above.add(name_of(at))
            at = at.f_back

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        result = run()
    finally:
        sys.setprofile(before)
    return result, seen


def check(steps: list[Step], seen: dict[str, set[str]]) -> None:
    for step in steps:
        assert step.function in seen, f"{step} is not called any more; name what decides this now, or delete the line"
        assert step.caller == DOOR or step.caller in seen[step.function], (
            f"{step} is not reached from `{step.caller}` any more; among those above it are "
            f"{sorted(name for name in seen[step.function] if not name.startswith(('_pytest', 'pluggy')))}"
        )
    order = [name for name in seen if name in {step.function for step in steps}]
    assert [step.function for step in steps] == order, (
        "docs/walk-through.md has another order than the calls; put its lines in this one: " + ", ".join(order)
    )


def test_the_page_has_both_walks_and_every_row_is_read() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) == len(STEPS)
    assert set(walks()) == {PLAN, ANSWER}
    assert all(steps[0].caller == DOOR and len(steps) > 10 for steps in walks().values())


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.function)
def test_the_functions_of_the_page_exist(step: Step) -> None:
    parts = ["batchdp", *step.function.split(".")]
    module = len(parts) - 1
    while find_spec_of(parts[:module]) is None:
        module -= 1
    found: Any = import_module(".".join(parts[:module]))
    for name in parts[module:]:
        assert hasattr(found, name), f"{step}: {'.'.join(parts[:module])} has no {name}; name what took its place"
        found = getattr(found, name)
    assert callable(found), step


def find_spec_of(parts: list[str]) -> object:
    try:
        return find_spec(".".join(parts))
    except ModuleNotFoundError:  # its parent is no package
        return None


def test_the_walks_are_those_of_real_runs(tmp_path: Path) -> None:
    watched = {step.function for step in STEPS}
    plan, seen = called(lambda: batchdp.plan(SQL, DOMAIN, seconds=0.2), watched)
    check(walks()[PLAN], seen)
    table = pd.DataFrame({"state": ["NY", "NJ", "CA"] * 50})
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    release, seen = called(lambda: batchdp.answer(plan, table, epsilon=0.5, ledger=ledger), watched)
    check(walks()[ANSWER], seen)
    assert len(release.answers) == 3


def test_the_check_sees_what_it_is_for() -> None:
    seen = {"a": {"top"}, "b": {"top", "a"}}
    check([Step(1, "a", DOOR), Step(2, "b", "a")], seen)
    for steps, complaint in (
        ([Step(1, "a", DOOR), Step(2, "gone", "a")], "line 2: `gone` is not called any more"),
        ([Step(1, "a", "b")], "not reached from `b`"),
        ([Step(1, "b", "a"), Step(2, "a", DOOR)], "put its lines in this one: a, b"),
    ):
        with pytest.raises(AssertionError, match=re.escape(complaint)):
            check(steps, seen)
