"""The rules of the house: short functions and modules, and no texts that stand for values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "batchdp"
DOORS = {"privacy.py", "optimizer/optimizing.py"}
"""Where a text becomes a value: `privacy` itself, and the argument of `optimize`. No other module branches on one."""
TEXTS = {"pure", "zcdp", "epsilon", "rho", "Laplace", "Gaussian", "K-norm"}
"""What stands for a kind of noise at the doors: the kind of privacy, the unit of the budget, the distribution."""
MOST_LINES = 500
MOST_LINES_OF_A_FUNCTION = 80

MODULES = sorted((*SOURCE.rglob("*.py"), *(ROOT / "reproduction").rglob("*.py")))

pytestmark = pytest.mark.xdist_group("house")  # so many and so short: cheaper done than handed out


def named(path: Path) -> str:
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_and_functions_are_short(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= MOST_LINES
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MOST_LINES_OF_A_FUNCTION, f"{named(path)}: {node.name}"


def branches_on_texts(tree: ast.AST) -> Iterator[int]:
    """Lines that compare something with such a text, match it, or look it up in a table of both kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            found = {
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            if found & TEXTS:
                yield node.lineno
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            keys = {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
            if keys & TEXTS:
                yield node.lineno


CHECKED = [path for path in MODULES if named(path) not in DOORS]


@pytest.mark.parametrize("path", CHECKED, ids=named)
def test_no_branch_on_the_texts_of_the_kinds_of_privacy(path: Path) -> None:
    assert list(branches_on_texts(parsed(path))) == []


@pytest.mark.parametrize("path", CHECKED, ids=named)
def test_nobody_writes_into_another_objects_dict(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            assert not (isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__"), node.lineno


def test_the_check_sees_what_it_is_for() -> None:
    seen = 'if kind == "pure":\n    pass\nx = 1 if "zcdp" in kinds else 2\ny = {"epsilon": 1, "rho": 2}[unit]'
    assert sorted(branches_on_texts(ast.parse(seen))) == [1, 3, 4]
    assert list(branches_on_texts(ast.parse('x = {"epsilon": 1}\nplan(privacy="pure")'))) == []
