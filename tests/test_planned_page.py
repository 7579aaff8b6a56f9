from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import batchdp
from batchdp import AccuracyError, BatchDPError, Ledger, MatrixWorkload, Plan, outlook, report_plan
from batchdp.domain.domain import read_domain
from batchdp.plans.accuracy import margins, needed
from batchdp.plans.baselines import beside, tables_alone
from batchdp.plans.criteria import as_criteria
from batchdp.plans.encoding import CellBatch
from batchdp.plans.outlook import expected_derived
from batchdp.privacy import Budget
from batchdp.reports.planned import Prospect, plan_page
from batchdp.reports.rendering import significant
from batchdp.workloads.encode.cells import cells_of
from browser import MISSING, chromium, cut_off, show
from cases import read_batch
from commands import DOMAIN, QUERIES, make_study, refused, succeeds
from needs import need

CRITERIA = {"total": 12.0, "visits": {"margin": 20}, "aged[age=0 to under 18]": 2.5}
PAINTS = "return performance.getEntriesByType('paint').map((one) => one.startTime)"
HOSTILE = '"</script><script>alert(1)</script>"'


def planned(privacy: Any = "pure", queries: str = QUERIES) -> Any:
    return batchdp.plan(queries, DOMAIN, privacy=privacy, seconds=0.3, cache=False)


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {privacy: planned(privacy) for privacy in ("pure", "zcdp")}


class Cells(HTMLParser):
    """The rows of every table on a page: attributes of the row, and of each cell with its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[tuple[dict[str, str | None], list[tuple[dict[str, str | None], str]]]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append((dict(attrs), []))
        self.inside = tag in ("td", "th") or (self.inside and tag == "bdi")
        if tag in ("td", "th"):
            self.rows[-1][1].append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            attributes, text = self.rows[-1][1][-1]
            self.rows[-1][1][-1] = attributes, text + data


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_the_figures_are_those_of_the_plan(plans: dict[str, Plan], privacy: str) -> None:
    plan = plans[privacy]
    expected = outlook(plan, epsilon=1.0)
    prospect = Prospect(plan, None, None)
    assert float(prospect.reference) == expected.budget
    rows = [row for row in Cells(plan_page(prospect)).rows if "data-row" in row[0]]
    assert [cells[0][1] for _, cells in rows] == list(plan.names)
    half = margins(plan) * expected.budget ** (-1 / plan.strategy.noise.norm)
    alone = tables_alone(plan, prospect.reference)
    for (_, cells), one, margin, other in zip(rows, expected.tables, half, alone, strict=True):
        for (attributes, text), value in zip(cells[1:], (one.standard_error, margin, other), strict=True):
            assert float(attributes["data-at"] or "nan") == pytest.approx(value, rel=1e-12)
            assert text == significant(value)
    for statement in expected.statements:
        (cells,) = [
            cells for _, cells in Cells(plan_page(prospect)).rows if cells[0][1] == statement.name and len(cells) == 8
        ]
        assert cells[3][1] == significant(statement.standard_error)
        assert cells[4][1] == significant(statement.by_itself)
        assert cells[5][1] == f"{statement.by_itself / statement.standard_error:.2f}×"


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_queries_by_themselves_are_those_of_their_statement_by_itself(plans: dict[str, Plan], privacy: str) -> None:
    plan = plans[privacy]
    budget = plan.strategy.noise.implied_by(0.7)
    alone = tables_alone(plan, budget)
    for statement, one in zip(plan.statements, beside(plan, budget), strict=True):
        assert np.sqrt(np.mean(alone[list(statement.queries)] ** 2)) == pytest.approx(one.by_itself, rel=1e-12)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_the_least_budget_meets_every_criterion_and_no_less_does(plans: dict[str, Plan], privacy: str) -> None:
    plan = plans[privacy]
    criteria = as_criteria(CRITERIA)
    prospect = Prospect(plan, criteria, None)
    assert prospect.least == max(budget for _, budget in needed(plan, criteria))
    page = plan_page(prospect)
    assert page.count('class="unmet"') == 0
    assert '<strong class="count">3</strong> of 3' in page
    errors = plan.typical_errors(**{plan.strategy.noise.unit: prospect.start})
    assert errors[0] <= 12.0 * (1 + 1e-5)
    less = {plan.strategy.noise.unit: prospect.least * 0.98}
    worst = max(
        float(plan.typical_errors(**less)[0]) / 12.0,
        float(plan.typical_errors(**less)[plan.names.index("aged[age=0 to under 18]")]) / 2.5,
        float(np.max(margins(plan)[1:4])) * (prospect.least * 0.98) ** (-1 / plan.strategy.noise.norm) / 20,
    )
    assert worst > 1


@pytest.mark.parametrize(
    ("privacy", "unit", "left", "expected"),
    [
        ("pure", "epsilon", 0.5, 0.5),
        ("pure", "rho", 0.02, 0.2068541994),  # by what Laplace noise costs, and not 0.2
        ("zcdp", "rho", 0.3, 0.3),
        ("zcdp", "epsilon", 1.0, 0.0),
    ],
)
def test_what_is_left_is_said_in_the_plans_unit(
    plans: dict[str, Plan], tmp_path: Path, privacy: str, unit: str, left: float, expected: float
) -> None:
    given: Any = {unit: left}
    ledger = Ledger.create(tmp_path / "budget.db", **given)
    prospect = Prospect(plans[privacy], None, ledger)
    assert prospect.left == pytest.approx(expected)
    page = plan_page(prospect)
    assert f"can pay up to {plans[privacy].strategy.noise.letter} = {expected:g}" in page


def test_names_are_only_text_on_the_page(tmp_path: Path) -> None:
    plan = planned(queries=QUERIES.replace("total", HOSTILE))
    page = report_plan(plan, tmp_path / "page.html", title="</title><script>").read_text()
    assert page.count("<script>") == 1
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)


def test_wrong_criteria_and_plans_are_refused(plans: dict[str, Plan], tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="neither a statement nor a query"):
        report_plan(plans["pure"], tmp_path / "x.html", criteria={"totals": 3})
    wrong: Any = plans["pure"].strategy
    with pytest.raises(BatchDPError, match="plan is a PairStrategy"):
        report_plan(wrong, tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_a_plan_or_a_release(tmp_path: Path) -> None:
    make_study(tmp_path)
    (tmp_path / "wanted.toml").write_text("[accuracy]\ntotal = 12\nvisits = { margin = 20 }\n")
    options = ("--criteria", tmp_path / "wanted.toml", "--ledger", tmp_path / "budget.db", "-o", tmp_path / "page.html")
    assert "Written to" in succeeds("report", tmp_path / "pure.plan", *options)
    page = (tmp_path / "page.html").read_text()
    assert "of 2</strong>" not in page
    assert "budget.db" in page
    plan = batchdp.load_plan(tmp_path / "pure.plan")
    assert (
        significant(float(plan.standard_errors(epsilon=Prospect(plan, None, None).start)[0]))
        in succeeds("report", tmp_path / "pure.plan", "-o", tmp_path / "plain.html")
        + (tmp_path / "plain.html").read_text()
    )
    succeeds(
        *("answer", tmp_path / "pure.plan", "-t", tmp_path / "visits.csv", "-e", 0.5, "-l", tmp_path / "budget.db"),
        *("-o", tmp_path / "out.csv", "--yes"),
    )
    assert "criteria are for plans" in refused("report", tmp_path / "out.release", *options, code=2)
    assert "leave --plan out" in refused(
        "report", tmp_path / "pure.plan", "--plan", tmp_path / "pure.plan", "-o", tmp_path / "x.html", code=2
    )
    (tmp_path / "wanted.toml").write_text("[accuracy]\nnobody = 3\n")
    assert "did you mean" in refused("report", tmp_path / "pure.plan", *options)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    need("browser", missing=MISSING)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def written(plans: dict[str, Plan], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    ledger = Ledger.create(folder / "budget.db", rho=2.0)
    return {
        privacy: report_plan(plan, folder / f"{privacy}.html", criteria=CRITERIA, ledger=ledger)
        for privacy, plan in plans.items()
    }


def type_budget(browser: Chrome, budget: float) -> None:
    browser.execute_async_script(
        "const [budget, done] = arguments; const typed = document.querySelector('#typed'); typed.value = budget;"
        "typed.dispatchEvent(new Event('input')); requestAnimationFrame(() => requestAnimationFrame(() => done()));",
        budget,
    )


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_every_figure_follows_the_slider(
    browser: Chrome, written: dict[str, Path], plans: dict[str, Plan], privacy: str
) -> None:
    plan, unit = plans[privacy], plans[privacy].strategy.noise.unit
    wants = needed(plan, as_criteria(CRITERIA))
    show(browser, written[privacy])
    for budget in (0.013, 0.37, 1.0, 4.5):
        type_budget(browser, budget)
        given: Any = {unit: budget}
        cells = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#table tbody td:nth-child(3)")]
        assert cells == [significant(one) for one in plan.standard_errors(**given).tolist()]
        rows = browser.find_elements(By.CSS_SELECTOR, "#criteria tbody tr")
        met = [budget >= needs for _, needs in wants]
        assert [row.get_attribute("class") for row in rows] == ["met" if one else "unmet" for one in met]
        assert browser.find_element(By.CSS_SELECTOR, ".count").text == str(sum(met))
        alone = [significant(one.by_itself) for one in beside(plan, Budget(plan.strategy.noise, budget))]
        shown = browser.find_elements(By.CSS_SELECTOR, "#statements table:first-of-type tbody td:nth-child(5)")
        assert [one.text for one in shown][: len(alone)] == alone
        assert browser.find_element(By.CSS_SELECTOR, ".over").is_displayed() == (budget > 2.0)  # ρ = 2, or ε = √(2 · 2)
    browser.execute_script(
        "const dial = document.querySelector('#dial'); dial.value = 0; dial.dispatchEvent(new Event('input'));"
    )
    low = float(browser.find_element(By.CSS_SELECTOR, "#typed").get_attribute("value") or "nan")
    assert low == pytest.approx(Prospect(plan, as_criteria(CRITERIA), None).ends()[0], rel=0.01)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_colours_are_green_and_red_and_words_say_the_same(browser: Chrome, written: dict[str, Path]) -> None:
    for dark in (False, True):
        show(browser, written["pure"], dark=dark)
        for budget, word, strongest in ((0.02, "no", 0), (8.0, "yes", 1)):
            type_budget(browser, budget)
            verdict = browser.find_element(By.CSS_SELECTOR, "#criteria .verdict")
            colour = [int(one) for one in re.findall(r"\d+", verdict.value_of_css_property("color"))[:3]]
            assert verdict.text == word
            assert colour.index(max(colour)) == strongest


@pytest.mark.parametrize("width", [360, 390, 1200])
def test_the_page_fits_phones_and_desks(browser: Chrome, written: dict[str, Path], width: int) -> None:
    show(browser, written["zcdp"], width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    verdict = browser.find_element(By.CSS_SELECTOR, "#criteria .verdict")
    assert verdict.location["x"] + verdict.size["width"] <= width
    assert cut_off(browser) == []


def test_without_javascript_there_is_a_table_at_a_few_budgets(
    browser: Chrome, written: dict[str, Path], plans: dict[str, Plan]
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, written["pure"])
        assert not browser.find_element(By.CSS_SELECTOR, ".dial").is_displayed()
        text = browser.find_element(By.ID, "statements").text
        assert "At a few budgets" in text
        for budget in (0.1, 0.5, 5.0):
            assert f"ε = {budget:g}" in text
            assert significant(float(margins(plans["pure"])[0]) / budget) in text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_on_paper_the_slider_is_gone_and_its_budget_stays(browser: Chrome, written: dict[str, Path]) -> None:
    show(browser, written["pure"])
    type_budget(browser, 0.25)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not browser.find_element(By.CSS_SELECTOR, ".dial").is_displayed()
        assert "ε = 0.25" in browser.find_element(By.CSS_SELECTOR, ".state").text
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})


AVERAGES = """
SELECT COUNT(*) AS total FROM t; SELECT g, AVG(v) AS mean FROM t GROUP BY g; SELECT MEDIAN(v) AS middle FROM t
"""


def test_averages_are_listed_with_their_margins_and_take_a_wanted_one(browser: Chrome, tmp_path: Path) -> None:
    columns = {"g": {"values": ["a", "b"]}, "v": {"integers": [0, 20]}}
    plan = batchdp.plan(AVERAGES, {"table": "t", "columns": columns}, seconds=0.3, cache=False)
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=2.0)
    show(browser, report_plan(plan, tmp_path / "page.html", ledger=ledger))
    rows = browser.find_elements(By.CSS_SELECTOR, ".asked tbody tr")
    names = [row.find_element(By.TAG_NAME, "th").text.split(" over")[0] for row in rows]
    assert names == ["total", "mean", "middle"]
    assert "a year; what is left pays for 2" in browser.find_element(By.ID, "budget").text
    for budget in (0.4, 1.7):
        type_budget(browser, budget)
        for row, one in zip(rows[1:], expected_derived(plan, Budget(plan.strategy.noise, budget)), strict=True):
            shown = float(row.find_elements(By.TAG_NAME, "td")[1].text.replace(",", ""))
            # Between points of the curve; quantiles move in whole values.
            assert shown == pytest.approx(one.half_width, rel=0.1, abs=0.6)
    total = float(margins(plan)[0])
    rows[0].find_element(By.TAG_NAME, "input").send_keys(str(total / 0.8))
    assert rows[0].find_element(By.CSS_SELECTOR, ".needs").text == "0.8"
    rows[1].find_element(By.TAG_NAME, "input").send_keys("0.5")
    needs = float(rows[1].find_element(By.CSS_SELECTOR, ".needs").text)
    mean = expected_derived(plan, Budget(plan.strategy.noise, needs))[0]
    assert mean.half_width == pytest.approx(0.5, rel=0.1)
    browser.find_element(By.CSS_SELECTOR, ".hint button").click()
    assert float(browser.find_element(By.ID, "typed").get_attribute("value") or "nan") == max(0.8, needs)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_statements_are_counted_as_they_are_written() -> None:
    columns = {"g": {"values": ["a", "b"]}, "v": {"integers": [0, 20]}}
    sql = "SELECT g, COUNT(*) AS many, AVG(v) AS mean, SUM(v) AS all_of_it FROM t GROUP BY g"
    plan = batchdp.plan(sql, {"table": "t", "columns": columns}, seconds=0.3, cache=False)
    assert Prospect(plan, None, None).asked_in == "in 1 statement"


@pytest.mark.slow
def test_the_first_paint_of_two_thousand_queries_takes_less_than_a_second(browser: Chrome, tmp_path: Path) -> None:
    columns = (f'[columns.{name}]\nintegers = [1, {most}]\nother = "drop"\n' for name, most in (("a", 50), ("b", 40)))
    domain = read_domain('table = "t"\n' + "".join(columns))
    sql = "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b"
    asked = read_batch(sql, domain)
    cells = cells_of(asked.queries, domain)
    strategy = batchdp.STRATEGIES["noise-on-data"](MatrixWorkload(cells.matrix, cells.names, blocks=cells.sizes))
    plan = Plan(sql, None, domain, CellBatch(cells, asked), strategy)
    assert len(plan.names) == 2000
    page = report_plan(plan, tmp_path / "page.html", criteria={"n": {"margin": 5}})
    times = []
    for _ in range(3):  # other work on the machine is not the page's
        show(browser, page)
        wait = WebDriverWait(browser, 20, poll_frequency=0.05)
        paints: Any = wait.until(lambda shown: shown.execute_script(PAINTS))
        times.append(max(paints))
    assert min(times) < 1000
    type_budget(browser, 0.5)
    last = browser.execute_script("return document.querySelectorAll('#table tbody td:nth-child(3)')[1999].textContent")
    assert last == significant(float(plan.standard_errors(epsilon=0.5)[1999]))


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_a_plan_of_tables_has_a_page_too(privacy: Any, tmp_path: Path) -> None:
    domain = {"table": "t", "columns": {"a": {"values": [1, 2]}, "b": {"values": [1, 2, 3], "other": "drop"}}}
    made = batchdp.plan(domain=domain, marginals=2, privacy=privacy, cache=False)
    text = report_plan(made, tmp_path / "p.html", criteria={"a": 2.0, "*": {"margin": 50}}).read_text()
    assert 'type="range"' in text
    for table, error in zip(made.tables, made.typical_errors(**made.strategy.noise.reference.arguments), strict=True):
        assert table.name in text
        assert repr(float(error)) in text
    least = batchdp.epsilon_for(made, standard_error=2.0, query="a")
    assert batchdp.epsilon_for(made, half_width=50) < least  # so that this one is what the page asks for
    assert repr(least) in text


def test_tables_weigh_alike_in_a_fair_plan() -> None:
    domain = {"table": "t", "columns": {"a": {"values": [1, 2], "other": "drop"}, "b": {"integers": [1, 30]}}}
    sql = "SELECT /*+ weight(4) */ a, COUNT(*) AS n FROM t GROUP BY a"
    made = batchdp.plan(sql, domain, marginals=[2], weights={"a × b": 0.5}, privacy="zcdp", cache=False)
    assert made.workload.weights == pytest.approx([4 / 2, 0.5 / made.tables[1].queries])
    by_sum = batchdp.plan(sql, domain, marginals=[2], objective="sum", privacy="zcdp", cache=False)
    assert by_sum.workload.weights == pytest.approx([4, 1])
    fair, total = (float(one.standard_errors(rho=0.5)[0]) for one in (made, by_sum))
    assert fair < total  # the small table matters more
