"""The page of a release of tables: a list, each opened on demand, from the page itself or from files beside it."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import batchdp
from batchdp import Ledger, MatrixWorkload, PairStrategy, Release, ReleaseError, answer
from batchdp.private import Records
from batchdp.reports import page, report, tables
from batchdp.reports.matrices import Grid, grids
from batchdp.reports.rendering import decimals_for, number
from batchdp.reports.tables import HOLE, Packer, harmless_json, packed, script_of
from browser import MISSING, chromium, cut_off, show
from commands import refused, succeeds
from mechanisms import released
from needs import need
from test_components import structure
from test_report import HOSTILE, parsed

COLUMNS = ("month", "weekday", "origin", "age")
SIZES = (12, 7, 5, 30)


def release_of(sizes: tuple[int, ...], orders: list[int], folder: Path, names: Any = None) -> Release:
    """Noise by NumPy: quick, and about no person."""
    rng = np.random.default_rng(0)
    records = np.column_stack([np.minimum((rng.random(20_000) ** 2 * n).astype(np.int64), n - 1) for n in sizes])
    found: Release = released(
        batchdp.optimize(structure(batchdp.workloads.marginals(sizes, orders)), privacy="zcdp"),
        lambda: Records(records),
        Ledger.create(folder / "budget.db", rho=2),
        0.5,
        label="people",
        names=names,
        draw=lambda measurement, noises, _: np.rint(
            rng.standard_normal(int(measurement.sizes.sum()))
            * np.repeat([one.scale for one in noises], measurement.sizes)
        ).astype(np.int64),
    )
    return found


def sql_release(names: tuple[str, ...], folder: Path) -> Release:
    m = len(names)
    planned = PairStrategy(MatrixWorkload(np.eye(m), names=names), np.eye(m), np.eye(m))
    return answer(planned, np.arange(m) * 100, epsilon=1.0, ledger=Ledger.create(folder / "s.db", epsilon=1))


def unpacked(parts: dict[str, Any], entry: list[Any]) -> np.ndarray:
    """What the page's script does: value, error, half width and, where there is one, consistent value of every cell."""
    _, _, _, sizes, _, _, part, word, each, stride, step, _, error, half, beside = entry
    alone = stride - beside
    found = []
    for cell in range(int(np.prod(sizes))):
        content = base64.b64decode(parts[f"part-{part + cell // each}"])
        at = word + cell % each * stride
        whole = np.frombuffer(content, "<i4")[at]
        own = np.frombuffer(content, "<f4")[at + 1 : at + 3] if alone > 1 else (error, half)
        more = [np.frombuffer(content, "<i4")[at + alone] * step] if beside else []
        found.append((np.nan if whole == HOLE else whole * step, *own, *more))
    return np.array(found, dtype=float)


def random_grid(rng: np.random.Generator, shape: tuple[int, ...], *, even: bool, scale: float) -> Grid:
    n = int(np.prod(shape))
    errors = np.full(n, 2.0 * scale) if even else rng.uniform(1, 3, n) * scale
    values = rng.normal(0, 1000, n) * scale
    values[rng.random(n) < 0.1] = np.nan
    values[0] = 5.0 * scale
    labels = tuple(tuple(f"{axis}{k}" for k in range(size)) for axis, size in enumerate(shape))
    return Grid("t", tuple(f"c{i}" for i in range(len(shape))), labels, values, errors, 2 * errors)


@pytest.mark.parametrize("words", [4, 64, 10_000])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6, 1e13])
def test_packed_tables_are_the_tables(words: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.reports.tables.WORDS", words)
    rng = np.random.default_rng(3)
    shapes = [(), (5,), (3, 4), (1,), (2, 3, 4)]
    given = [random_grid(rng, shape, even=even, scale=scale) for shape in shapes for even in (True, False)]
    given += [replace(one, beside=np.abs(3 * one.values)) for one in given]
    parts: dict[str, Any] = {}
    packer = Packer(parts.__setitem__)
    for grid in given:
        packer.add(grid)
    packer.finish()
    parts = json.loads(json.dumps(parts))
    assert len([key for key in parts if key.startswith("part")]) > (words < 100)
    for grid, entry in zip(given, parts["list"], strict=True):
        found = unpacked(parts, entry)
        assert entry[4] == grid.answers
        asked = ~np.isnan(grid.values)
        assert np.array_equal(np.isnan(found[:, 0]), ~asked)
        assert np.all(np.abs(found[asked, 0] - grid.values[asked]) <= 0.01 * grid.errors[asked])
        if grid.beside is not None:
            assert np.all(np.abs(found[asked, 3] - grid.beside[asked]) <= 0.01 * grid.errors[asked])
        assert np.allclose(found[asked, 1:3], np.column_stack([grid.errors, grid.half_widths])[asked], rtol=1e-6)
        assert [parts[f"axis-{a}"] for a in entry[2]] == [list(labels) for labels in grid.labels]


def test_figures_without_noise_and_of_any_size_are_packed() -> None:
    zero = np.zeros(2)
    for values in ([0.0, 0.0], [1e300, -1e300], [1e-300, 0.0], [7.0, 3.0]):
        grid = Grid("t", ("c",), (("0", "1"),), np.array(values), zero, zero)
        words, step, _, constants = packed(grid)
        assert constants == (0.0, 0.0)
        assert np.allclose(words * step, values, rtol=1e-8, atol=1e-2)


def test_texts_are_harmless_in_scripts_and_pages() -> None:
    hostile = "</script><!--\u2028\u2029\"'\\\x00\ud800]]>&amp;"
    text = harmless_json({hostile: [hostile]})
    assert json.loads(text) == {hostile: [hostile]}
    assert text.isascii()
    assert not set("<>&\n\x00") & set(text)
    assert script_of("r", "part-1", "AAAA") == 'batchdp("r","part-1","AAAA")\n'


def test_statements_are_put_on_axes_with_holes_for_what_was_not_asked(tmp_path: Path) -> None:
    names = (
        "one",
        "n[a=x, b=1]",
        "n[a=x, b=2]",
        "n[a=y, b=1]",
        "n[a=all, b=all]",
        *(f"d[a={i}, b={i}]" for i in range(9)),
    )
    release = sql_release(names, tmp_path)
    rollup, diagonal = grids(release)
    assert rollup.labels == (("x", "y", "all"), ("1", "2", "all"))
    assert np.flatnonzero(~np.isnan(rollup.values)).tolist() == [0, 1, 3, 8]
    assert rollup.values[8] == release.answers[4].value
    assert rollup.answers == 4
    assert diagonal.columns == ("a, b",)
    assert diagonal.labels[0][3] == "3, 3"
    assert np.array_equal(diagonal.values, release.values[5:])


def test_a_release_of_tables_has_a_page_that_is_one_file(tmp_path: Path) -> None:
    release = release_of(SIZES, [0, 1, 2], tmp_path, COLUMNS)
    ledger = Ledger.open(tmp_path / "budget.db")
    written = report(release, tmp_path / "page.html", ledger=ledger)
    assert sorted(one.name for one in tmp_path.iterdir() if "budget" not in one.name) == ["page.html"]
    content = written.read_text(encoding="utf-8")
    assert content == page(release, ledger=ledger)
    found = parsed(content)
    text = " ".join(found.text.split())
    for wanted in ("11 tables with 954 answers", "month × weekday", "ρ-zero-concentrated", "this release", "2 columns"):
        assert wanted in text
    assert release.certificate.groups_digest in text
    assert sum(tag == "details" for tag, _ in found.elements) == 11
    assert sum(one.get("scope") == "row" for _, one in found.elements) > 954  # all of them, without JavaScript
    assert not re.search(r"url\(|@import|@font-face|https?:", content.replace("http://www.w3.org/2000/svg", ""))
    policy = next(one["content"] for _, one in found.elements if one.get("http-equiv"))
    assert policy is not None
    assert "strict-dynamic" not in policy


def test_labels_and_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    def made(text: str) -> str:
        release = sql_release(
            (f"{text}[c={text}]", f"{text}[c=2]", f"{text}[c={text}, d=1]", text), tmp_path / text[:3]
        )
        return str(tables.tables_of_page(release).section)

    for name in ("har", HOSTILE[:3]):
        (tmp_path / name).mkdir()
    nasty, plain = parsed(made(HOSTILE.replace("\x00", ""))), parsed(made("harmless"))
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]
    assert HOSTILE.replace("\x00", "") in nasty.text


def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "page.html") -> Path:
    """A page of few answers that has them beside it, in several parts."""
    monkeypatch.setattr(tables, "MOST_INSIDE", 100)
    monkeypatch.setattr("batchdp.reports.tables.WORDS", 100)
    return report(release_of(SIZES, [0, 1, 2, 3], tmp_path, COLUMNS), tmp_path / name)


def test_larger_releases_have_a_folder_beside_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = beside(tmp_path, monkeypatch)
    folder = tmp_path / "page_files"
    files = {one.name for one in folder.iterdir()}
    assert {"tables.json", "list.js", "axis-0.js", "part-0.js", "part-1.js"} <= files
    assert all(re.fullmatch(r"(list|axis-\d+|part-\d+)\.js|tables\.json", name) for name in files)
    found = parsed(written.read_text(encoding="utf-8"))
    assert "page_files" in found.text
    assert len([one for tag, one in found.elements if tag == "tr"]) < 400
    before = sorted(files)
    report(release_again(tmp_path), written)  # replaced as a whole
    assert sorted(one.name for one in folder.iterdir()) == before
    assert not list(tmp_path.glob(".*"))


def release_again(folder: Path) -> Release:
    (folder / "again").mkdir()
    return release_of(SIZES, [0, 1, 2, 3], folder / "again", COLUMNS)


def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_INSIDE", 100)
    release = release_of((10, 20), [2], tmp_path)
    with pytest.raises(ReleaseError, match="report"):
        page(release)
    own = tmp_path / "page_files"
    own.mkdir()
    (own / "mine.txt").write_text("mine")
    with pytest.raises(ReleaseError, match="no report wrote"):
        report(release, tmp_path / "page.html")
    assert (own / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(ReleaseError, match="does not exist"):
        report(release, tmp_path / "missing" / "page.html")
    monkeypatch.setattr("batchdp.archive._move", _full)
    with pytest.raises(ReleaseError, match="No space left"):
        report(release, tmp_path / "other.html")
    assert not list(tmp_path.glob("*other*"))
    with pytest.raises(ReleaseError, match="a report needs"):
        report(7, tmp_path / "other.html")  # type: ignore[arg-type]


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_edited_release_of_tables_has_no_page(tmp_path: Path) -> None:
    release = release_of((3, 4), [1], tmp_path)
    told = replace(release, certificate=replace(release.certificate, budget=0.1))
    with pytest.raises(ReleaseError, match="edited or damaged"):
        page(told)


def test_the_command_writes_pages_of_tables(tmp_path: Path) -> None:
    release_of(SIZES, [1, 2], tmp_path, COLUMNS).save(tmp_path / "r.release")
    shown = succeeds("report", tmp_path / "r.release", "-o", tmp_path / "a page.html", "-l", tmp_path / "budget.db")
    assert "open it in a browser" in shown
    assert "does not exist" in refused("report", tmp_path / "r.release", "-o", tmp_path / "no" / "page.html")


# In a real browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    need("browser", missing=MISSING)
    with chromium() as found:
        yield found


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test of the page may leave an error on the browser's console."""
    yield
    if "browser" in request.fixturenames:
        found: Any = request.getfixturevalue("browser")
        assert found.get_log("browser") == []


def wait(browser: Chrome, script: str, *arguments: object) -> Any:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if found := browser.execute_script(script, *arguments):
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {script}")


def opened(browser: Chrome, title: str) -> Any:
    """The table with this title, opened by the keyboard and drawn."""
    box = browser.find_element(By.ID, "find-table")
    box.clear()
    box.send_keys(title.replace("×", " "))
    pick = """return [...document.querySelectorAll('.tables details')].find(
        d => d.querySelector('.title').textContent === arguments[0])"""
    details = wait(browser, pick, title)
    if not details.get_attribute("open"):
        details.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    wait(browser, "return arguments[0].dataset.drawn === 'done'", details)
    return details


def rows(details: Any) -> list[list[str]]:
    script = """return [...arguments[0].querySelectorAll('.opened .answers-of tbody tr')].map(
        row => [...row.cells].filter(c => !c.classList.contains('bars')).map(c => c.dataset.value ?? c.textContent))"""
    return list(details.parent.execute_script(script, details))


@pytest.fixture(scope="module", params=["inside", "beside"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Release]:
    """The same tables inside a page and beside it, under a name with odd characters."""
    folder = tmp_path_factory.mktemp("page")
    release = release_of(SIZES, [0, 1, 2, 3], folder, COLUMNS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST_INSIDE", 10**6 if request.param == "inside" else 100)
        patch.setattr("batchdp.reports.tables.WORDS", 100)
        return report(release, folder / "a ü%20#?'<b>.html"), release


def test_every_kind_of_table_opens_with_its_figures(browser: Chrome, both: tuple[Path, Release]) -> None:
    written, release = both
    show(browser, written)
    for columns in ((), (0,), (0, 1), (0, 3), (1, 2, 3)):
        frame = release.table(*columns)
        details = opened(browser, " × ".join(COLUMNS[i] for i in columns) or "total")
        if len(columns) > 2:
            frame = frame[frame[COLUMNS[columns[0]]] == 0].drop(columns=COLUMNS[columns[0]])
        shown = rows(details)
        assert len(shown) == min(len(frame), 100)
        figures = np.array([[float(cell) for cell in row[-4:]] for row in shown])
        error = frame["standard_error"].iloc[0]
        assert np.all(np.abs(figures - frame.iloc[: len(shown), -4:].to_numpy()) < 0.01 * error)
        assert len(details.find_elements(By.CSS_SELECTOR, ".map")) == (len(columns) > 1)


def test_consistent_figures_stand_beside_in_the_browser(browser: Chrome, tmp_path: Path) -> None:
    release = release_of((3, 4), [0, 1, 2], tmp_path, ("month", "origin"))
    found = release.consistent(whole=True)
    show(browser, report(release, tmp_path / "page.html", beside=found))
    details = opened(browser, "month × origin")
    shown = rows(details)
    t = release.find("month", "origin")
    assert [float(row[-1]) for row in shown] == found.array(t).reshape(-1).tolist()
    assert float(shown[0][-5]) == pytest.approx(release.array(t)[0, 0], abs=0.1)
    headings = [th.text for th in details.find_elements(By.CSS_SELECTOR, ".opened .answers-of thead th")]
    assert headings[-1] == "Consistent"


def test_a_phone_cuts_no_column_and_tells_a_screen_reader_the_same_table(browser: Chrome, tmp_path: Path) -> None:
    names = ("administrative division", "kind of procedure", "age")
    release = release_of((3, 4, 2), [0, 1, 2, 3], tmp_path, names)
    page = report(release, tmp_path / "page.html", beside=release.consistent())
    roles = {}
    for width in (360, 1200):
        show(browser, page, width=width)
        opened(browser, " × ".join(names))
        assert cut_off(browser) == []
        told = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        kinds = [one["role"]["value"] for one in told if "role" in one]
        roles[width] = [kinds.count(kind) for kind in ("table", "rowheader")]
        assert kinds.count("row") > roles[width][1] > 0
    assert roles[360] == roles[1200]


def test_columns_can_be_chosen_and_held(browser: Chrome, both: tuple[Path, Release]) -> None:
    written, release = both
    show(browser, written)
    details = opened(browser, "month × weekday × origin")
    down, across, held = (Select(one) for one in details.find_elements(By.TAG_NAME, "select"))
    assert (down.first_selected_option.text, across.first_selected_option.text) == ("weekday", "origin")
    held.select_by_visible_text("5")
    frame = release.table(*COLUMNS[:3])
    wanted = frame[frame["month"] == 5]["value"].to_numpy()
    wait(
        browser,
        "return Math.abs(arguments[0].querySelector('[data-value]').dataset.value - arguments[1]) < .1",
        details,
        wanted[0],
    )
    assert np.allclose([float(row[-4]) for row in rows(details)], wanted, atol=0.05)
    down.select_by_visible_text("month")
    wait(browser, "return arguments[0].querySelector('.answers-of button').textContent === 'month'", details)
    held = Select(details.find_elements(By.TAG_NAME, "select")[2])
    held.select_by_visible_text("3")
    wanted = frame[frame["weekday"] == 3]["value"].to_numpy()
    wait(
        browser,
        "return Math.abs(arguments[0].querySelector('[data-value]').dataset.value - arguments[1]) < .1",
        details,
        wanted[0],
    )
    assert np.allclose([float(row[-4]) for row in rows(details)], wanted, atol=0.05)
    assert "weekday = 3" in details.text


def test_rows_sort_filter_and_come_in_parts(browser: Chrome, both: tuple[Path, Release]) -> None:
    written, release = both
    show(browser, written)
    details = opened(browser, "month × age")
    button = details.find_element(By.CSS_SELECTOR, "button.more")
    assert "260 more of 360 rows" in button.text
    head = details.find_element(By.XPATH, ".//th[.//button[contains(., 'Answer')]]")
    for way, sign in (("ascending", 1), ("descending", -1)):
        head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        assert head.get_attribute("aria-sort") == way
        wanted = np.sort(sign * release.table(0, 3)["value"].to_numpy())[:100]
        assert np.allclose([sign * float(row[-4]) for row in rows(details)], wanted, atol=0.05)
    button.click()
    assert len(rows(details)) == 360
    box = details.find_element(By.CSS_SELECTOR, "input[type=search]")
    box.send_keys("29")
    assert {row[1] for row in rows(details)} == {"29"}
    assert "12 of 360 shown" in details.text


def test_a_map_is_read_with_the_keyboard(browser: Chrome, both: tuple[Path, Release]) -> None:
    written, release = both
    show(browser, written)
    details = opened(browser, "month × age")
    canvas = details.find_element(By.TAG_NAME, "canvas")
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    value = release.table(0, 3)["value"].iloc[1 * 30 + 2]
    told = details.find_element(By.CSS_SELECTOR, ".told").text
    assert told.startswith("1, 2: ")
    assert float(told.split()[2].replace(",", "").replace("−", "-")) == pytest.approx(value, abs=0.06)


def test_every_table_is_printed(browser: Chrome, tmp_path: Path) -> None:
    need("browser", missing=None if shutil.which("pdftotext") else "there is no pdftotext; poppler-utils brings it")
    release = release_of((3, 4, 2), [0, 1, 2], tmp_path, ("month", "origin", "carrier"))
    show(browser, report(release, tmp_path / "page.html"))
    opened(browser, "month × origin")
    browser.find_element(By.ID, "find-table").clear()
    browser.find_element(By.ID, "find-table").send_keys(" ")
    printed = tmp_path / "page.pdf"
    printed.write_bytes(base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]))
    text = subprocess.run(["pdftotext", "-layout", printed, "-"], capture_output=True, text=True, check=True).stdout
    for table in release.tables:
        assert f"{' × '.join(table.columns) or 'total'} " in text
        figures = release.figures(table)
        decimals = decimals_for(figures.standard_errors)
        for value in figures.values.tolist():
            assert f" {number(value, decimals)} " in text, (table.name, value)


@pytest.mark.parametrize("width", [320, 1200])
def test_the_page_fits_the_screen(browser: Chrome, both: tuple[Path, Release], width: int) -> None:
    show(browser, both[0], width=width, height=800)
    for title in ("month × age", "month × weekday", "weekday × origin × age"):
        opened(browser, title)
    browser.find_element(By.ID, "find-table").clear()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_without_javascript_there_is_a_list_with_the_first_tables(browser: Chrome, both: tuple[Path, Release]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, both[0])
        text = browser.find_element(By.TAG_NAME, "body").text
        assert not browser.find_element(By.ID, "find-table").is_displayed()
        assert len(browser.find_elements(By.CSS_SELECTOR, ".tables details")) == 15
        assert browser.find_elements(By.CSS_SELECTOR, ".tables details[open] tbody tr")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    for wanted in ("month × weekday", "What is not promised", "Ledger head"):
        assert wanted in text


def test_hostile_labels_are_shown_as_they_are(browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HOSTILE.replace("\x00", "") + "\u202e\u2028"
    release = sql_release((f"{text}[c={text}]", f"{text}[c=2]", f"n[c={text}, d=x]", f"n[c=1, d={text}]"), tmp_path)
    for inside in (10**6, 1):
        monkeypatch.setattr(tables, "MOST_INSIDE", inside)
        show(browser, report(release, tmp_path / "page.html"))
        wait(browser, "return document.querySelectorAll('[data-drawn=done]').length === 2")
        names = browser.execute_script(
            "return [...document.querySelectorAll('.answers-of tbody th')].map(th => th.textContent)"
        )
        assert text in names
        assert browser.execute_script("return document.images.length") == 4  # those of the strategy, and no other


def test_a_missing_or_foreign_folder_is_said(browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = beside(tmp_path, monkeypatch)
    first = (tmp_path / "page_files" / "list.js").read_text()
    show(browser, written)
    report(release_again(tmp_path), written)
    (tmp_path / "page_files" / "list.js").write_text(first)
    show(browser, written)
    wait(browser, "return document.querySelector('.problem')?.textContent.includes('another release')")
    (tmp_path / "page_files" / "list.js").unlink()
    show(browser, written)
    wait(browser, "return document.querySelector('.problem')?.textContent.includes('cannot be read')")
    assert browser.find_elements(By.CSS_SELECTOR, ".tables details")
    assert browser.get_log("browser")  # type: ignore[no-untyped-call]  # it says so too
