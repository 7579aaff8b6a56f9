"""The pictures of the report in the documentation: an invented hospital's records, a real release, a real browser.

    make screenshots

writes docs/images/report-*.png. It needs Debian's chromium and chromium-driver. Every run draws fresh noise, so the
answers in the pictures differ a little from run to run.
"""

from __future__ import annotations

import io
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

import batchdp
from batchdp.plans.comparison import compare

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests"))

from browser import chromium, show  # noqa: E402

OPEN_A_MAP = """[...document.querySelectorAll(".tables details")].find(
    (one) => one.querySelector(".title").textContent.includes("×")).open = true"""
RECORDS = 100_000
STATES = ("California", "New Jersey", "New York", "Texas", "Washington")
SHARES = (0.36, 0.09, 0.21, 0.26, 0.08)
AGES = (0, 6, 12, 18, 25, 35, 45, 55, 65, 75, 85)
"""Lower ends of the age groups."""
AGE_SHARES = (0.05, 0.04, 0.04, 0.07, 0.11, 0.12, 0.13, 0.15, 0.14, 0.10, 0.05)
VISITS = (3.1, 1.9, 1.6, 1.8, 2.2, 2.4, 2.9, 3.6, 4.8, 6.1, 7.0)
"""Of a patient of each age group, in a year on average."""
SPENDS = ((0.5, "patients", 9), (0.25, "patients", 23), (0.25, "visits 2025", 51))
"""Earlier releases: the budget, the table, and the day."""


def invented_counts() -> NDArray[np.int64]:
    """How many patients there are of every state and age group."""
    return np.random.default_rng(2024).multinomial(RECORDS, np.outer(SHARES, AGE_SHARES).ravel())


def queries() -> batchdp.MatrixWorkload:
    """Totals, states, age ranges, age ranges of states, and sums weighted by age."""
    rows: dict[str, NDArray[np.float64]] = {}

    def cells(state: int | None = None, low: int = 0, high: int = 200) -> NDArray[np.float64]:
        chosen = np.zeros((len(STATES), len(AGES)))
        chosen[slice(None) if state is None else state] = [low <= age < high for age in AGES]
        return chosen.ravel()

    rows["All patients"] = cells()
    for i, state in enumerate(STATES):
        rows[f"Patients[state={state}]"] = cells(i)
    for low, high in ((0, 18), (18, 25), (25, 45), (45, 65), (65, 200)):
        age = f"{low} to {high - 1}" if high < 200 else f"{low} or older"
        rows[f"Patients[age={age}]"] = cells(None, low, high)
        for i, state in enumerate(STATES):
            rows[f"Patients[state={state}, age={age}]"] = cells(i, low, high)
    for age_below in AGES[1:]:
        rows[f"Younger than {age_below}"] = cells(None, 0, age_below)
    for i, state in enumerate(STATES):
        rows[f"Expected visits a year[state={state}]"] = cells(i) * np.tile(VISITS, len(STATES))
    rows["Patients of an average state"] = cells() / len(STATES)
    rows["New York and New Jersey together"] = cells(1) + cells(2)
    rows["New York less New Jersey, aged 85 or older"] = cells(2, 85) - cells(1, 85)
    rows["West coast, aged 25 to 64"] = cells(0, 25, 65) + cells(4, 25, 65)
    return batchdp.MatrixWorkload(np.array(list(rows.values())), names=rows)


def write_example(page: Path) -> None:
    """A ledger with several spends, one of them interrupted, and a report of the last."""
    workload, counts = queries(), invented_counts()
    strategy = batchdp.optimize(workload, seed=0)
    ledger = batchdp.Ledger.create(page.with_suffix(".db"), epsilon=3)
    start = datetime(2026, 1, 5, 9, 12, tzinfo=UTC)
    for budget, table, day in SPENDS:
        with patch("batchdp.ledger.chain._now", lambda day=day: (start + timedelta(days=day)).isoformat()):
            if table == "patients":
                batchdp.answer(strategy, counts, epsilon=budget, ledger=ledger, label=table)
            else:
                ledger.reserve("quarterly-visits", epsilon=budget, plan_digest="0", table=table)
    with patch("batchdp.ledger.chain._now", lambda: (start + timedelta(days=78)).isoformat()):
        release = batchdp.answer(
            strategy, counts, epsilon=1.0, ledger=ledger, label="patients", release_id="patients-2026-spring"
        )
    compared = compare(workload)
    batchdp.report(release, page, ledger=ledger, methods=compared.methods, lower_bound=compared.lower_bound)


def main() -> None:
    """Draw them all."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "page.html"
        write_example(page)
        screens = {
            "report-light": (1200, 1620, False, "body"),
            "report-tables": (1200, 1500, False, "#tables"),
            "report-dark": (1200, 1620, True, "#budget"),
            "report-phone": (375, 1200, False, "body"),
        }
        for name, (width, height, dark, section) in screens.items():
            show(browser, page, width=width, height=height, dark=dark)
            wait_for(browser, 1)
            if section == "#tables":
                browser.execute_script(OPEN_A_MAP)
                wait_for(browser, 2)
            browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", section)
            small(browser.get_screenshot_as_png(), IMAGES / f"{name}.png")


def wait_for(browser: Chrome, tables: int) -> None:
    """Until so many tables are drawn."""
    drawn = "return document.querySelectorAll('[data-drawn=done]').length"
    WebDriverWait(browser, 20).until(lambda shown: shown.execute_script(drawn) >= tables)


def small(png: bytes, path: Path) -> None:
    """The picture with 256 colours, which is plenty for a page of text."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
