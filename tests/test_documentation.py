"""The examples in the README and the docs run, and print what the text block after them says.

A page's blocks run in order and share one folder:

- `python` runs in one process, with one set of names;
- `sh` runs in the README and the tutorial; commands that cannot run everywhere are `console`;
- a block with a title is written to the file of that name.

Numbers may differ by 2 %: an optimiser's last digits depend on the machine's linear algebra. In a text block whose
title says that they differ, only the words are compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from browser import MISSING, chromium, show
from needs import need

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("**/*.md"))]
SHELL = [ROOT / "README.md", DOCS / "tutorial.md"]
BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^```$"
    r"(?:\s*^```text(?: title=\"(?P<remark>[^\"]*)\")?\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
FIGURE = re.compile(r"[0-9a-f]{32}|[-−]?\d[\d.,]*")


def number(word: str) -> float | None:
    """A word that is a figure, perhaps with a sign of its own."""
    try:
        return float(word.strip("±×;").replace(",", ""))
    except ValueError:
        return None


def assert_same(printed: str, shown: str, remark: str | None) -> None:
    if remark is not None and "differ" in remark:
        printed, shown = FIGURE.sub("#", printed), FIGURE.sub("#", shown)
    ours, page = printed.split(), shown.split()
    assert len(ours) == len(page), (printed, shown)
    for word, expected in zip(ours, page, strict=True):
        figure = number(expected)
        if figure is None:
            assert word == expected, (printed, shown)
        else:
            found = number(word)
            assert found is not None, (word, expected)
            assert found == pytest.approx(figure, rel=0.02), (printed, shown)


def run_shell(code: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BATCHDP_CACHE": str(folder / "cache"),
        "PYTHONUTF8": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (code, done.stderr)
    return done.stdout


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_examples_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHDP_CACHE", str(tmp_path / "cache"))
    names: dict[str, object] = {}
    for block in BLOCK.finditer(page.read_text()):
        kind, title, code = block["kind"], block["title"], block["code"]
        if title is not None:
            if kind != "text":
                Path(title).write_text(code)
            continue
        if kind == "python":
            stdout = io.StringIO()
            with contextlib.redirect_stdout(stdout):
                exec(compile(code, str(page), "exec"), names)
            printed = stdout.getvalue()
        elif kind == "sh" and page in SHELL:
            printed = run_shell(code, tmp_path)
        else:
            continue
        if block["output"] is not None:
            assert_same(printed, block["output"], block["remark"])


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+\.(?:md|svg|png|toml|sh|py))(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_fence_is_of_a_known_kind(page: Path) -> None:
    """A misspelt kind would silently not run."""
    kinds = set(re.findall(r"^```(\w+)", page.read_text(), re.MULTILINE))
    assert kinds <= {"python", "py", "sh", "console", "text", "toml", "sql", "csv"}
    assert len(re.findall(r"^```", page.read_text(), re.MULTILINE)) % 2 == 0


LOOKED_UP = {DOCS / "reference" / "api.md", DOCS / "reference" / "cli.md", DOCS / "reproduction.md"}
TEN_MINUTES = 2_200
"""Words that are read in ten minutes."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in LOOKED_UP], ids=relative)
def test_a_page_is_read_in_ten_minutes(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|\]\([^)]*\)", " ", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"[^\W_]\S*", text)) <= TEN_MINUTES, "split it"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, built strictly: every link and anchor leads somewhere."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.xdist_group("site")
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures are its own; only links lead out."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(PAGES) // 2
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(?:https?:)?//|<link[^>]*href=\"?(?:https?:)?//")
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    assert [
        style.name for style in site.rglob("*.css") if re.search(r"(?:@import|url\()[^;)]*//", style.read_text())
    ] == []


SEARCHED = """
const [word, done] = arguments;
document.querySelector('[data-md-toggle=search]').click();
const field = document.querySelector('input.md-search__input');
field.focus();
field.value = word;
field.dispatchEvent(new Event('input', { bubbles: true }));
const found = () => [...document.querySelectorAll('.md-search-result__item h1')].map(title => title.innerText);
const look = () => found().length ? done(found()) : setTimeout(look, 50);
look();
"""


@pytest.mark.xdist_group("site")
@pytest.mark.parametrize("page", ["index.html", "reference/api.html"])
def test_search_works_in_a_page_that_was_opened_from_a_folder(site: Path, page: str) -> None:
    need("browser", missing=MISSING)
    with chromium() as browser:
        show(browser, site / page)
        assert "Choosing rows_per_unit" in browser.execute_async_script(SEARCHED, "rows_per_unit")
