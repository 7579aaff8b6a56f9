"""Debian's Chromium without a window, for pages that must work in a real browser."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = None if CHROMIUM and DRIVER else "there is no Chromium; apt-get install chromium chromium-driver brings it"
FLAGS = (
    "--headless",
    "--no-sandbox",  # it would refuse to run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A browser with an empty profile, gone afterwards."""
    assert CHROMIUM is not None
    assert DRIVER is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        browser = Chrome(options=options, service=Service(DRIVER))
        try:
            yield browser
        finally:
            browser.quit()


def show(browser: Chrome, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
    """Open the page on a screen of this size, in CSS pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.get(page.as_uri())


def cut_off(browser: Chrome) -> list[str]:
    """The tables of which something is beyond the edge of their box."""
    boxes = "[...document.querySelectorAll('.box')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
    found: list[str] = browser.execute_script(f"return {boxes}.map((one) => one.getAttribute('aria-label'))")
    return found
