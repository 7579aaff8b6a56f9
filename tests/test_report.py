from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import sparse
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import batchdp
from batchdp import (
    STRATEGIES,
    Ledger,
    MatrixWorkload,
    PairStrategy,
    Release,
    ReleaseError,
    answer,
    load_release,
    workloads,
)
from batchdp.plans.comparison import Row, compare
from batchdp.privacy import noise_of
from batchdp.release.certificate import PrivacyCertificate
from batchdp.reports import page, report
from batchdp.reports.answers import answers_section
from batchdp.reports.matrices import picture
from batchdp.reports.notebook import Excerpt, summary
from batchdp.reports.rendering import decimals_for, number, significant
from batchdp.reports.sections import MEANINGS, budget_section, certificate_section, methods_section, privacy_section
from browser import MISSING, chromium, show
from cases import small_workloads
from mechanisms import reread
from needs import need

NAMES = (
    '<script>alert("x")</script>',
    "quotes \" ' & </title></style><img src=x onerror=alert(1)>",
    "ducks 🦆 and 👩‍⚕️",
    "مرضى أكبر من ٦٥ سنة",
    "W" * 300,
    "a name of many words " * 14,
    "back \u202e to front",
    "nul \x00 and lone \ud800 half",
    "$title ${style} {braces} %s",
    "patients, plain",
)
VOID = {"meta", "link", "input", "img", "br", "line", "circle", "rect"}


@dataclass(frozen=True)
class Compared:
    name: str
    expected_squared_error: float
    residual: float


class Nesting(HTMLParser):
    """Fails on an element that is closed out of order; gathers elements, ids and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(content: str) -> Nesting:
    parser = Nesting()
    parser.feed(content)
    parser.close()
    assert parser.open == []
    ids = [found["id"] for _, found in parser.elements if "id" in found]
    assert len(ids) == len(set(ids))
    return parser


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=3)


def released(workload: MatrixWorkload, ledger: Ledger, epsilon: float = 1.0, **options: Any) -> Release:
    strategy = PairStrategy(workload, np.eye(workload.cells), workload.matrix)
    counts = np.arange(workload.cells) * 100
    return answer(strategy, counts, epsilon=epsilon, ledger=ledger, label="patients", **options)


def rich_release(ledger: Ledger) -> Release:
    """Ten answers with every kind of name, in a ledger with other spends, one of them interrupted."""
    released(workloads.prefix(4), ledger, epsilon=0.5)
    ledger.reserve("<i>stopped</i>", epsilon=0.25, plan_digest="d", table="<b>visits</b>")
    return released(MatrixWorkload(np.tri(10), names=NAMES), ledger)


METHODS = (
    Compared("optimize", 100.0, 0.0),
    Compared("<u>mine</u>", 2.5e7, 3e-15),
    Compared("failed", float("nan"), float("nan")),
)


def test_the_page_says_everything_and_is_well_formed(ledger: Ledger, tmp_path: Path) -> None:
    release = rich_release(ledger)
    written = report(release, tmp_path / "page.html", ledger=ledger, methods=METHODS, lower_bound=50.0)
    content = written.read_text(encoding="utf-8")
    assert content == page(release, ledger=ledger, methods=METHODS, lower_bound=50.0)
    found = parsed(content)
    for one in release.answers:
        for value in (one.value, one.standard_error, one.low, one.high):
            assert f'data-value="{value!r}"' in content
    text = " ".join(found.text.split())
    assert "ε-differentially private with ε = 1" in text
    assert "adding or removing one unit of at most 1 row" in text
    assert "What is not promised" in text
    assert "1.75 of 3 is spent, in 3 spends" in text
    assert "interrupted, no answers" in text
    assert "this release" in text
    assert "3e-15" in text
    assert "failed" not in text
    assert "25,000,000" in text
    for name in (one.name for one in fields(release.certificate)):
        if name in ("shape", "snapshot"):
            continue  # which this release has not
        assert MEANINGS[name][0] in text
    assert release.certificate.plan_digest in text
    assert [tag for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)][:2] == ["h1", "h2"]


def test_names_are_text_and_nothing_else(ledger: Ledger) -> None:
    release = rich_release(ledger)
    found = parsed(page(release, ledger=ledger, methods=METHODS, title=NAMES[1]))
    tags = [tag for tag, _ in found.elements]
    assert tags.count("script") == 1
    assert tags.count("img") == 4
    assert not {"i", "b", "u"} & set(tags)
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    for name in (NAMES[0], NAMES[2], NAMES[3], NAMES[4], NAMES[8], "<i>stopped</i>", "<b>visits</b>", "<u>mine</u>"):
        assert name in found.text
    assert "nul \ufffd and lone \ufffd half" in found.text


HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}{% raw %}</table></bdi>\x00"


def in_every_text(certificate: PrivacyCertificate, text: str, privacy: str) -> PrivacyCertificate:
    texts = [one.name for one in fields(certificate) if isinstance(getattr(certificate, one.name), str)]
    assert len(texts) >= 7
    named = noise_of(privacy).name
    values: dict[str, Any] = {**dict.fromkeys(texts, text), "privacy": privacy, "distribution": named}
    return replace(certificate, **values)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_every_field_of_every_section_is_text(privacy: str, ledger: Ledger) -> None:
    """A section with hostile text in all its fields has the elements of the one with harmless text, and no other."""
    release = released(workloads.prefix(2), ledger)

    def sections(text: str) -> dict[str, Nesting]:
        certificate = in_every_text(release.certificate, text, privacy)
        told = replace(reread(release, names=(text, text + " again")), certificate=certificate)
        entries = [replace(one, release_id=text, table=text, time=text) for one in ledger.history()]
        standing = replace(ledger.standing(), promise=text, entries=tuple(entries))
        books: Any = SimpleNamespace(standing=lambda: standing, delta=1e-6)
        parts = {
            "answers": answers_section(told),
            "privacy": privacy_section(told),
            "budget": budget_section(books, text),
            "methods": methods_section([Compared(text, 1.0, 0.0)], 0.5),
            "certificate": certificate_section(told.certificate),
            "notebook": told._repr_html_() + summary(text, {text: text}, [Excerpt([text, text], [(text, text)])]),
        }
        return {name: parsed(str(part)) for name, part in parts.items()}

    harmless = sections("harmless")
    for name, found in sections(HOSTILE).items():
        wanted = HOSTILE.replace("\x00", "\ufffd")
        assert [tag for tag, _ in found.elements] == [tag for tag, _ in harmless[name].elements], name
        assert [list(one) for _, one in found.elements] == [list(one) for _, one in harmless[name].elements], name
        assert wanted in found.text, name
        # The budget's section cuts ids and times short, so count how often it begins.
        assert found.text.count(wanted[:9]) == harmless[name].text.count("harmless"), name
    heading = parsed(page(release, title=HOSTILE))
    assert heading.text.count(HOSTILE.replace("\x00", "\ufffd")) == 2
    assert [tag for tag, _ in heading.elements] == [tag for tag, _ in parsed(page(release, title="t")).elements]


def test_the_page_needs_nothing_but_itself(ledger: Ledger) -> None:
    content = page(rich_release(ledger), ledger=ledger, methods=METHODS)
    found = parsed(content)
    addresses = [
        value for _, one in found.elements for name, value in one.items() if name in ("src", "href", "action", "srcset")
    ]
    assert addresses
    assert all(value and re.match(r"#|data:", value) for value in addresses)
    assert not re.search(r"url\(|@import|@font-face|https?://", content)
    policy = next(one["content"] for _, one in found.elements if one.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("name", small_workloads())
def test_every_release_has_a_page(name: str, tmp_path: Path) -> None:
    workload = small_workloads()[name]
    books = Ledger.create(tmp_path / "b.db", rho=1e9)
    for privacy, budget in (("pure", {"epsilon": 0.1}), ("zcdp", {"rho": 0.1})):
        strategy = PairStrategy(workload, np.eye(workload.cells), workload.matrix, privacy=privacy)  # type: ignore[arg-type]
        done = answer(strategy, np.arange(workload.cells), **budget, ledger=books, max_rows=1000)  # type: ignore[arg-type]
        done.save(tmp_path / "r.npz")
        content = page(load_release(tmp_path / "r.npz"), ledger=books)
        parsed(content)
        assert content == page(done, ledger=books)
        assert not re.search(r">(nan|−?inf|−0[.0]*)<", content)


def test_gaussian_and_replacing_releases_are_told_as_such(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "b.db", rho=100)
    strategy = PairStrategy(workloads.prefix(3), np.eye(3), workloads.prefix(3).matrix, privacy="zcdp")
    done = answer(strategy, [1, 2, 3], rho=0.5, ledger=books)
    text = parsed(page(done, ledger=books)).text
    assert "ρ-zero-concentrated" in text
    assert f"{done.epsilon_at(1e-6):.3f}" in text
    assert "k² times ρ" in text
    replacing = Ledger.create(tmp_path / "replacing.db", epsilon=100)
    other = released(workloads.prefix(3), replacing, neighbours="replace")
    assert "record is one thing or another" in parsed(page(other)).text
    assert "as good as certain" in parsed(page(released(workloads.prefix(3), books, epsilon=12.0))).text
    stranger = Ledger.create(tmp_path / "other.db", rho=10)
    assert "not charged to this ledger" in parsed(page(done, ledger=stranger)).text


def test_the_rows_of_a_comparison_can_be_passed_on(ledger: Ledger) -> None:
    methods = {name: STRATEGIES[name] for name in ("noise-on-data", "wavelet")}
    compared = compare(workloads.prefix(4), methods)
    content = page(released(workloads.prefix(4), ledger), methods=compared.methods, lower_bound=compared.lower_bound)
    text = parsed(content).text
    for row in compared.methods:
        assert isinstance(row, Row)
        assert row.name in text
        assert significant(row.expected_squared_error) in text
    assert significant(compared.lower_bound) in text


@pytest.mark.slow
def test_many_answers_and_spends_stay_one_page_of_moderate_size(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "b.db", epsilon=1000)
    with books:
        for i in range(150):
            books.reserve(f"id {i}", epsilon=0.1, plan_digest="d", table="t")
    done = released(MatrixWorkload(sparse.eye_array(1500, format="csr")), books)
    content = page(done, ledger=books)
    text = parsed(content).text
    assert "51 earlier spends" in text
    assert "The first 1,000 of 1,500 are drawn" in text
    assert content.count("<tr data-row") == 1500
    assert len(content) < 2_500_000


def test_a_planted_count_is_not_on_the_page(tmp_path: Path) -> None:
    canary = 987_654_321
    books = Ledger.create(tmp_path / "b.db", epsilon=1)
    strategy = STRATEGIES["noise-on-data"](MatrixWorkload(np.eye(3)))
    done = answer(strategy, np.full(3, canary), epsilon=1e-5, ledger=books)
    figure: Any = done.plot()
    shown = [page(done, ledger=books), done._repr_html_(), books._repr_html_()]
    shown.append(" ".join(text.get_text() for text in figure.axes[0].texts))
    for text in shown:
        assert str(canary) not in text.replace(",", "")


def test_a_page_that_cannot_be_written_is_an_error_and_leaves_nothing(ledger: Ledger, tmp_path: Path) -> None:
    done = released(workloads.prefix(3), ledger)
    with pytest.raises(ReleaseError, match="cannot write"):
        report(done, tmp_path / "missing" / "page.html")
    assert batchdp.report(done, tmp_path / "page.html") == tmp_path / "page.html"
    assert list(tmp_path.glob(".*part")) == []


def test_figures_have_the_digits_that_mean_something() -> None:
    assert decimals_for(np.array([4.9, 1.4, 0.0])) == 1
    assert decimals_for(np.array([120.0])) == 0
    assert decimals_for(np.array([0.0])) == 0
    assert decimals_for(np.array([1e-20])) is None
    assert number(-1234.56, 1) == "−1,234.6"
    assert number(-0.04, 1) == "0.0"
    assert number(1.5e20, None) == "1.5e+20"
    shown = [significant(value) for value in (14793.0, 0.5, 2.0, 0.0123456, 1e15, 0)]
    assert shown == ["14,790", "0.5", "2", "0.01235", "1e+15", "0"]


def test_a_matrix_becomes_a_picture_that_other_programs_read() -> None:
    address = picture(np.array([[1.0, 0.0], [-1.0, 0.25]]))
    image = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    width, height = image.size
    places = [(x, y) for y in (1, height - 1) for x in (1, width - 1)]
    (r1, _, b1, a1), (_, _, _, a2), (r3, _, b3, a3), (_, _, _, a4) = (image.getpixel(at) for at in places)  # type: ignore[misc]
    assert (a1, a2, a3) == (255, 0, 255)
    assert 120 < a4 < 136
    assert b1 > r1
    assert r3 > b3


@pytest.mark.slow
def test_the_wheel_holds_the_pages_parts(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    source = root / "src"
    parts = {
        path.relative_to(source).as_posix() for kind in ("html", "css", "js") for path in source.rglob(f"*.{kind}")
    }
    assert len(parts) == 26
    assert parts <= held


# In a real browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    need("browser", missing=MISSING)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    ledger = Ledger.create(folder / "budget.db", epsilon=3)
    return report(rich_release(ledger), folder / "page.html", ledger=ledger, methods=METHODS, lower_bound=50.0)


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test of the page may leave an error on the browser's console."""
    yield
    if "browser" in request.fixturenames:
        browser: Any = request.getfixturevalue("browser")
        assert browser.get_log("browser") == []


def column(browser: Chrome, at: int) -> list[str]:
    cells = browser.find_elements(By.CSS_SELECTOR, f"#table tbody tr:not([hidden]) > :nth-child({at})")
    return [str(cell.get_attribute("data-value") or cell.text) for cell in cells]


def plotted(browser: Chrome) -> list[str]:
    marks = browser.find_elements(By.CSS_SELECTOR, ".answers li:not([hidden])")
    return [str(mark.get_attribute("data-row")) for mark in marks]


def test_a_click_sorts_the_table_and_the_plot(browser: Chrome, written: Path) -> None:
    show(browser, written)
    head = browser.find_elements(By.CSS_SELECTOR, "#table thead th")[1]
    before = [float(value) for value in column(browser, 2)]
    for way, wanted in (("ascending", sorted(before)), ("descending", sorted(before)[::-1])):
        head.find_element(By.TAG_NAME, "button").click()
        assert head.get_attribute("aria-sort") == way
        assert [float(value) for value in column(browser, 2)] == wanted
        assert [before[int(row)] for row in plotted(browser)] == wanted
    name = browser.find_elements(By.CSS_SELECTOR, "#table thead th")[0]
    name.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)  # the keyboard's Enter does what a click does
    assert name.get_attribute("aria-sort") == "ascending"
    assert head.get_attribute("aria-sort") == "none"


def test_words_filter_the_table_and_the_plot(browser: Chrome, written: Path) -> None:
    show(browser, written)
    box = browser.find_element(By.ID, "filter")
    box.send_keys("PLAIN patients")
    assert column(browser, 1) == ["patients, plain"]
    assert plotted(browser) == ["9"]
    assert browser.find_element(By.ID, "found").text == "1 of 10 shown"
    box.send_keys(" nothing")
    assert column(browser, 1) == []
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.BACKSPACE, Keys.ENTER)
    assert len(column(browser, 1)) == 10


@pytest.mark.parametrize("width", [320, 375, 768, 1200])
def test_the_page_fits_the_screen(browser: Chrome, written: Path, width: int) -> None:
    show(browser, written, width=width, height=800)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return document.querySelector('.table').clientWidth") <= width


def test_the_dark_page_is_dark_and_both_are_easy_to_read(browser: Chrome, written: Path) -> None:
    colours = []
    for dark in (False, True):
        show(browser, written, dark=dark)
        probe = (
            "const s = getComputedStyle(document.documentElement); return arguments[0].map(n => s.getPropertyValue(n))"
        )
        found = browser.execute_script(probe, ["--sheet", "--page", "--ink", "--quiet", "--blue", "--orange"])
        colours.append(found)
        sheet, back, *inks = (_luminance(colour) for colour in found)
        for ink in inks:
            for ground in (sheet, back):
                assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 4.5  # WCAG AA
    assert _luminance(colours[0][0]) > 0.9
    assert _luminance(colours[1][0]) < 0.05


def _luminance(colour: str) -> float:
    parts = [int(colour.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_without_javascript_everything_but_sorting_is_there(browser: Chrome, written: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, written)
        text = browser.find_element(By.TAG_NAME, "body").text
        assert not browser.find_element(By.ID, "filter").is_displayed()
        assert len(column(browser, 1)) == len(plotted(browser)) == 10
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    for wanted in ("patients, plain", "What is not promised", "this release", "Ledger head", "Squared error"):
        assert wanted in text


def test_the_page_asks_the_network_for_nothing(browser: Chrome, written: Path) -> None:
    show(browser, written)
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert browser.execute_script("return [...document.images].every(one => one.naturalWidth > 0)")


def test_intervals_are_drawn_where_they_should_be(browser: Chrome, written: Path) -> None:
    show(browser, written)
    where = """return [...document.querySelectorAll('.answers li')].map(li => {
        const [dot, line, name] =
            ['circle', '.interval', '.name'].map(n => li.querySelector(n).getBoundingClientRect());
        return [dot.x + dot.width / 2, line.x + line.width / 2, dot.y + dot.height / 2, name.top, name.bottom]})"""
    places = browser.execute_script(where)
    values = [float(value) for value in column(browser, 2)]
    middles = [place[0] for place in places]
    assert np.argsort(middles).tolist() == np.argsort(values).tolist()
    for dot, line, height, top, bottom in places:
        assert dot == pytest.approx(line, abs=1.0)
        assert top <= height <= bottom
