"""Golden cases: what is measured, charged, certified and answered stays what it was; see golden/make.py."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from golden import cases

NOISES = {
    "pairs": ("laplace", "gaussian"),
    "blocks": ("laplace", "gaussian"),
    "amounts": ("laplace", "gaussian"),
    "shaped": ("k-norm",),
    "residuals": ("gaussian",),
    "marginals": ("laplace",),
}
"""What there must be cases of: every kind, with all of its noises."""


@pytest.mark.parametrize("name", cases.names())
def test_a_stored_strategy_gives_what_it_gave(name: str, tmp_path: Path) -> None:
    case = cases.read(name)
    assert cases.compare(cases.observe(case["given"], tmp_path), case) == []


@pytest.mark.parametrize(("kind", "noise"), [(kind, noise) for kind in NOISES for noise in NOISES[kind]])
def test_every_kind_has_all_neighbours_rows_and_caps(kind: str, noise: str) -> None:
    given = [cases.read(name)["given"] for name in cases.names() if name.startswith(f"{kind}-")]
    own = [one for one in given if one["noise"] == noise]
    assert {(one["neighbours"], one["max_rows"] is None) for one in own} == set(
        product(("add-remove", "replace"), (True, False))
    )
    assert {one["rows_per_unit"] for one in own} == {1, 3}


def altered(tree: Any) -> Iterator[Any]:
    """Copies of plain data in which one number or text is a little different, or one entry is missing."""
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            for other in altered(tree[key]):
                changed = copy.copy(tree)
                changed[key] = other
                yield changed
        if tree:
            yield {key: tree[key] for key in list(tree)[:-1]} if isinstance(tree, dict) else tree[:-1]
    elif isinstance(tree, str):
        yield tree + "0"
    elif isinstance(tree, float):
        yield tree * (1 + 1e-8) if tree else 1e-300
    elif tree is not None:
        yield tree + 1
        yield float(tree)


def test_whatever_is_a_little_different_is_noticed() -> None:
    for name in ("pairs-whole-gaussian", "shaped-groups"):
        found = cases.read(name)["found"]
        others = list(altered(found))
        assert len(others) > 100
        assert all(any(cases.differences(other, found)) for other in others)
        assert not any(cases.differences(copy.deepcopy(found), found))


def test_nothing_but_the_adapter_knows_the_package() -> None:
    folder = cases.FOLDER.parent
    for path in (Path(__file__), *(folder / f"{name}.py" for name in ("cases", "given", "make"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not any(module.startswith("batchdp") for module in modules), path
    assert not any("batchdp" in json.dumps(cases.read(name)) for name in cases.names())
    assert sum(path.stat().st_size for path in cases.FOLDER.iterdir()) < 2_000_000
