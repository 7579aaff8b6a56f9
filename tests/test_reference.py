"""The reference pages are what the code says."""

from __future__ import annotations

import inspect

import pytest

import batchdp
from reference import PAGES, api, arguments_of, cli, read_examples

STALE = "stale: run .venv/bin/python tests/reference.py"


@pytest.mark.parametrize(("page", "made"), [("api.md", api), ("cli.md", cli)])
def test_the_committed_page_is_what_the_code_says(page: str, made: object) -> None:
    assert callable(made)
    assert (PAGES / page).read_text() == made(), STALE


FUNCTIONS = [name for name in batchdp.__all__ if inspect.isfunction(getattr(batchdp, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_bullet_an_argument_and_an_example_with_output(name: str) -> None:
    function = getattr(batchdp, name)
    assert set(arguments_of(function)[1]) == set(inspect.signature(function).parameters)
    assert "```text" in read_examples()[name]
