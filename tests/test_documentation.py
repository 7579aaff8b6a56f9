"""Every Python block in the README and the docs runs, and prints what the text block after it says.

Numbers may differ by 2 %: an optimiser's last digits depend on the machine's linear algebra.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\s*```text\n(?P<output>.*?)```)?", re.DOTALL)


def assert_same(printed: list[str], shown: list[str]) -> None:
    assert len(printed) == len(shown), (printed, shown)
    for ours, page in zip(printed, shown, strict=True):
        try:
            expected = float(page)
        except ValueError:
            assert ours == page
        else:
            assert float(ours) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_run_and_print_what_the_page_shows(page: Path) -> None:
    names: dict[str, object] = {}
    for block in BLOCK.finditer(page.read_text()):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], str(page), "exec"), names)
        if block["output"] is not None:
            assert_same(printed.getvalue().split(), block["output"].split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
