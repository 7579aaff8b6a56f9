"""Plans and releases as widgets: what they are given, their script in a browser, and all of it in a real Jupyter."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import batchdp
from batchdp import BatchDPError, Ledger, Plan, Release, answer
from batchdp.plans.accuracy import margins
from batchdp.reports import widget
from batchdp.reports.rendering import render_part
from browser import MISSING, chromium, show
from commands import environment
from needs import need

SQL = """
SELECT COUNT(*) AS "<b>everybody</b>" FROM t; SELECT g, COUNT(*) AS many, AVG(v) AS mean FROM t GROUP BY g;
SELECT v, COUNT(*) AS each FROM t GROUP BY v
"""
COLUMNS = {"g": {"values": ["a", "b"]}, "v": {"integers": [0, 20]}}
NOTEBOOK = None if find_spec("anywidget") and find_spec("jupyterlab") else "there is no Jupyter; make engines brings it"
MOVE = """
const dial = arguments[0]; dial.value = arguments[1];
dial.dispatchEvent(new Event("input", { bubbles: true }));
"""
PAGE = """<!doctype html><meta charset="utf-8"><style>{style}</style><div id="here"></div><script type="module">
{script}
const state = {state};
const heard = {{}};
window.model = {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; heard[`change:${{name}}`]?.(); }},
  save_changes: () => {{ window.saved = state.budget; }},
  on: (name, call) => {{ heard[name] = call; }},
  off: () => {{}},
}};
own.render({{ model, el: document.querySelector("#here") }});
</script>"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return batchdp.plan(SQL, {"table": "t", "columns": COLUMNS}, seconds=0.3, cache=False)


@pytest.fixture(scope="module")
def release(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Release:
    ledger = Ledger.create(tmp_path_factory.mktemp("budget") / "budget.db", epsilon=2)
    frame = pd.DataFrame({"g": ["a", "b"] * 500, "v": [3, 14] * 500})
    return answer(plan, frame, epsilon=1.0, ledger=ledger)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    need("browser", missing=MISSING)
    with chromium() as started:
        yield started


def opened(browser: Chrome, value: Plan | Release, folder: Path) -> None:
    """The widget's own script on an empty page, with what Jupyter would give it."""
    script = str(render_part("reports/widget.js")).replace("export default", "const own =")
    style = str(render_part("reports/widget.css"))
    content = PAGE.format(style=style, script=script, state=json.dumps(widget.contents(value)).replace("<", "\\u003c"))
    (folder / "page.html").write_text(content, encoding="utf-8")
    show(browser, folder / "page.html")
    WebDriverWait(browser, 20).until(lambda page: page.find_elements(By.CSS_SELECTOR, ".batchdp tbody tr"))


def rows(browser: Chrome) -> list[list[str]]:
    found = browser.find_elements(By.CSS_SELECTOR, ".batchdp tbody tr")
    return [[cell.text.strip() for cell in row.find_elements(By.CSS_SELECTOR, "th, td")] for row in found]


def test_without_the_extra_notebooks_show_html(plan: Plan, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "find_spec", lambda _: None)
    for value in (plan, release):
        assert value._repr_mimebundle_() == {}
        assert "<table" in value._repr_html_()
        with pytest.raises(BatchDPError, match=r"pip install 'batchdp\[notebook\]'"):
            value.widget()


def test_with_the_extra_they_show_a_widget(plan: Plan, release: Release) -> None:
    need("notebook", missing=NOTEBOOK)
    for value in (plan, release):
        shown, _ = value._repr_mimebundle_(include=None, exclude=None)
        assert list(shown) == ["application/vnd.jupyter.widget-view+json"]
        own = value.widget()
        assert "http" not in own._esm.replace("http://www.w3.org/2000/svg", "")
        assert "<b>" in json.dumps(own.content)  # a text, which the script never reads as HTML
    assert "innerHTML" not in plan.widget()._esm


def test_the_slider_moves_every_margin(browser: Chrome, plan: Plan, tmp_path: Path) -> None:
    opened(browser, plan, tmp_path)
    assert [row[0] for row in rows(browser)] == ["<b>everybody</b>", "many", "each", "mean"]
    at_one = margins(plan)
    for step in (40, 290):
        browser.execute_script(MOVE, browser.find_element(By.CSS_SELECTOR, "input[type=range]"), step)
        budget = float(browser.execute_script("return window.saved"))
        assert browser.find_element(By.CSS_SELECTOR, "output").text == f"ε = {budget:g}"
        shown = [float(row[2].replace(",", "")) for row in rows(browser)]
        for one, margin in zip(plan.statements, shown, strict=False):
            if one.name in ("many", "each"):
                assert margin == pytest.approx(at_one[list(one.queries)].max() / budget, rel=6e-3)
    before = browser.find_element(By.CSS_SELECTOR, "circle").get_attribute("cx")
    browser.execute_script("window.model.set('budget', 0.2)")  # from Python
    assert float(rows(browser)[0][2].replace(",", "")) == pytest.approx(at_one[0] / 0.2, rel=6e-3)
    assert browser.find_element(By.CSS_SELECTOR, "circle").get_attribute("cx") != before
    browser.find_elements(By.CSS_SELECTOR, "input[type=radio]")[3].click()
    assert "mean" in (browser.find_element(By.CSS_SELECTOR, "svg").get_attribute("aria-label") or "")
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_a_release_is_looked_at_table_by_table(browser: Chrome, release: Release, tmp_path: Path) -> None:
    opened(browser, release, tmp_path)
    assert rows(browser)[0][0] == "<b>everybody</b>"
    browser.find_elements(By.TAG_NAME, "option")[-1].click()
    found = rows(browser)
    figures = np.array([[float(cell.replace(",", "").replace("−", "-")) for cell in row[2:]] for row in found])
    frame = release.table("each")
    assert np.allclose(figures, frame.iloc[:, -4:].to_numpy(), atol=0.51)
    bars = browser.find_elements(By.CSS_SELECTOR, "svg.bar rect")
    widths = [float((bar.get_attribute("width") or "").rstrip("%")) for bar in bars]
    assert np.argmax(widths) == np.argmax(np.abs(frame["value"].to_numpy()))
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("14")
    assert [row[0] for row in rows(browser)] == ["14"]
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@contextmanager
def jupyter(folder: Path) -> Iterator[str]:
    """JupyterLab of this environment on this machine alone, without anybody's settings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.root_dir": folder,
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "LabApp.news_url": None,
    }
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment(folder, HOME=str(folder), **own), stdout=log, stderr=log
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


CELL = """
import batchdp
plan = batchdp.load_plan("one.plan")
shown = plan.widget()
shown.observe(lambda change: open("seen", "w").write(str(change.new)), "budget")
shown
"""


@pytest.mark.slow
def test_the_slider_moves_in_a_real_jupyter(browser: Chrome, plan: Plan, tmp_path: Path) -> None:
    need("notebook", missing=NOTEBOOK)
    plan.save(tmp_path / "one.plan")
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": CELL,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell]}
    (tmp_path / "one.ipynb").write_text(json.dumps(content))
    wait = WebDriverWait(browser, 120, ignored_exceptions=[Exception])
    with jupyter(tmp_path) as address:
        wait.until(lambda _: urlopen(f"{address}/api/status").status == 200)
        browser.get(f"{address}/lab/tree/one.ipynb")
        wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell"))
        run = "return window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => true)"
        wait.until(lambda page: page.execute_script(run))
        wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, ".batchdp tbody tr"))
        before = rows(browser)
        browser.execute_script(MOVE, browser.find_element(By.CSS_SELECTOR, ".batchdp input[type=range]"), 250)
        wait.until(lambda _: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text())
        budget = float((tmp_path / "seen").read_text())
        assert browser.find_element(By.CSS_SELECTOR, ".batchdp output").text == f"ε = {budget:g}"
        assert budget > 1
        for old, new in zip(before, rows(browser), strict=True):
            assert float(new[2].replace(",", "")) < float(old[2].replace(",", ""))
        loaded = "return performance.getEntriesByType('resource').map((one) => one.name)"
        foreign = [one for one in browser.execute_script(loaded) if not one.startswith((address, "data:", "blob:"))]
        assert foreign == []
        if folder := os.environ.get("BATCHDP_SCREENSHOTS"):
            Path(folder, "jupyter.png").write_bytes(browser.get_screenshot_as_png())
