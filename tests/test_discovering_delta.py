"""δ of values of texts: how it is divided between columns and a person's values, attacked by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.accounting import least_threshold
from batchdp.domain import Listed
from batchdp.mechanism.measurement import Relation
from batchdp.release import discovering
from batchdp.release.sought import prepare

EPSILON, DELTA = 8.0, 0.05
COLUMNS, CAP = ("s", "t"), 2
Rule = tuple[float, int]
"""The scale of the noise, and the count with noise from which a value is shown."""
World = tuple[tuple[int, ...], ...]
"""Of every column, how many persons have each of its values."""


def rules_of(folder: Path, patch: pytest.MonkeyPatch, relation: Relation) -> tuple[float, list[Rule]]:
    """The ε of the texts and the rules of `discover` itself, seen from outside.

    Every person has values of their own, and the noise is 0, 1, 2 and so on: which of them are shown tells the rule.
    """
    persons, scales = 2000, []

    def counting(_: Any, scale: Any, times: Any) -> Any:
        scales.append(float(scale[0]))
        return np.arange(int(times[0]))

    patch.setattr(discovering, "sample_independent", counting)
    books = batchdp.Ledger.create(folder / f"{relation}.db", epsilon=EPSILON, delta=DELTA, neighbours=relation)
    table = pd.DataFrame({name: [f"{name} {i}" for i in range(persons)] for name in COLUMNS} | {"who": range(persons)})
    found = discovering.find(
        table, epsilon=EPSILON, delta=DELTA, unit="who", rows_per_unit=CAP, neighbours=relation, ledger=books, tell=None
    )
    shown = [found.domain.columns[name] for name in COLUMNS]
    least = [1 + persons - len(one.values) for one in shown if isinstance(one, Listed)]
    _, _, each = prepare(
        table, EPSILON, DELTA, {"unit": "who", "rows_per_unit": CAP, "neighbours": relation}, None, None
    ).splits(1, len(COLUMNS))
    return float(each) * len(COLUMNS), list(zip(scales, least, strict=True))


def chance(count: int, rule: Rule) -> float:
    """Of a value that so many persons have to be shown; one that nobody has is never."""
    scale, least = rule
    q = math.exp(-1 / scale)
    if count == 0:
        return 0.0
    return q ** (least - count) / (1 + q) if least > count else 1 - q ** (count - least + 1) / (1 + q)


def excess(here: World, there: World, rules: Sequence[Rule], epsilon: float) -> float:
    """The δ that two worlds need: Σ max(0, P − e^ε Q) over everything that may be shown."""
    pairs = [(1.0, 1.0)]
    for own, others, rule in zip(here, there, rules, strict=True):
        for count, other in zip(own, others, strict=True):
            p, q = chance(count, rule), chance(other, rule)
            pairs = [(a * x, b * y) for a, b in pairs for x, y in ((p, q), (1 - p, 1 - q))]
    return sum(max(0.0, a - math.exp(epsilon) * b) for a, b in pairs)


def worst(rules: Sequence[Rule], epsilon: float, relation: Relation) -> float:
    """The largest δ over all small tables that differ in one person."""
    alone = range(CAP + 1)
    found = 0.0
    top = max(least for _, least in rules) + 1
    for base in (0, 1, 2, top // 2, top):  # how many others have what this person has
        for own in itertools.product(alone, repeat=len(COLUMNS)):
            for beside in itertools.product(alone, repeat=len(COLUMNS) if relation == "replace" else 0):
                given = beside or (0,) * len(COLUMNS)
                here = tuple((base + 1,) * k + (base,) * n for k, n in zip(own, given, strict=True))
                there = tuple((base,) * k + (base + 1,) * n for k, n in zip(own, given, strict=True))
                found = max(found, excess(here, there, rules, epsilon), excess(there, here, rules, epsilon))
    return found


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_no_table_needs_more_delta_than_is_charged(
    relation: Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epsilon, rules = rules_of(tmp_path, monkeypatch, relation)
    charged = worst(rules, epsilon, relation)
    assert 0.3 * DELTA < charged <= DELTA


def undivided(scale: float) -> int:
    """δ for every column in full."""
    return least_threshold(CAP, batchdp.privacy.shortest(scale), batchdp.privacy.shortest(DELTA))


def of_one_value(scale: float) -> int:
    """As if a person had one value in a column."""
    return least_threshold(1, batchdp.privacy.shortest(scale), batchdp.privacy.shortest(DELTA / len(COLUMNS)))


@pytest.mark.parametrize("wrong", [undivided, of_one_value])
def test_the_attack_sees_a_delta_that_is_not_divided(
    wrong: Callable[[float], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epsilon, rules = rules_of(tmp_path, monkeypatch, "add-remove")
    assert worst([(scale, wrong(scale)) for scale, _ in rules], epsilon, "add-remove") > DELTA
