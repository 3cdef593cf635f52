"""A real Chromium, one for all tests. A request or an error of a page fails its test.

Without Chromium these tests are skipped, or fail if GPTX_NEEDS_BROWSER=1.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()

#: Keeps the texts that a page saves, as Chromium drops the 11th download within a second.
KEEP = """
(({ createObjectURL }, { click }) => {
    URL.createObjectURL = (blob) => {
        window.saved?.push(blob);
        return createObjectURL.call(URL, blob);
    };
    HTMLAnchorElement.prototype.click = function () {
        if (this.download.endsWith(".png")) click.call(this);
    };
})(URL, HTMLAnchorElement.prototype);
"""

#: Opens a file: open_file(path, width=390, height=844, scheme="dark").
OpenFile = Callable[..., "Page"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[BrowserContext]:
    """One browser for each file of tests, as its event loop would disturb other tests; and one
    window, as opening a window costs more than most tests.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        if os.environ.get("GPTX_NEEDS_BROWSER") == "1":
            pytest.fail("GPTX_NEEDS_BROWSER=1, and no chromium on the PATH")
        pytest.skip("no chromium on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        context = browser.new_context(accept_downloads=True)
        context.new_page()  # keeps the window open between tests
        yield context
        browser.close()


@pytest.fixture
def open_file(chromium: BrowserContext) -> Iterator[OpenFile]:
    """Opens HTML files; fails the test if one made a request or logged an error. Chromium draws a
    page behind another one once a second: call `bring_to_front` to go on with an earlier page.
    """
    complaints: list[str] = []
    addresses: set[str] = set()
    pages: list[Page] = []

    def seen(address: str) -> None:
        if address not in addresses and not address.startswith(("data:", "blob:")):
            complaints.append(f"asked for {address[:200]}")

    def dismiss(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open_(path: Path, width: int = 1280, height: int = 800, scheme: Any = "light") -> Page:
        addresses.add(path.as_uri())
        pages.append(page := chromium.new_page())
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.set_default_timeout(60_000)
        page.on("request", lambda request: seen(request.url))
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", dismiss)
        page.add_init_script(KEEP)
        page.goto(path.as_uri())
        return page

    yield open_
    for page in pages:
        page.close()
    assert complaints == []


def settled(page: Page) -> None:
    """Waits until the page shows the answer to its last question."""
    page.locator('main[aria-busy="false"]').wait_for()


def saved(page: Page, form: str = "csv") -> str:
    """The text of a CSV or SVG that the page saves."""
    page.evaluate("window.saved = []")
    page.locator("#save-open").click()
    page.locator(f"#save-{form}").click()
    page.keyboard.press("Escape")
    return str(page.evaluate("window.saved[0].text()"))


def lines_of(csv_text: str) -> list[list[str]]:
    """The lines of a CSV."""
    return list(csv.reader(io.StringIO(csv_text, newline=""), strict=True))


def expect_csv(page: Page, text: str, tolerance: float) -> None:
    """The page saves this CSV, but for rounding of the numbers in its last column."""
    ours, theirs = lines_of(saved(page)), lines_of(text)
    assert [line[:-1] for line in ours] == [line[:-1] for line in theirs]
    found, expected = ([float(line[-1]) for line in each[1:]] for each in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
