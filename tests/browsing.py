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

from gpt.view.page.page import StartHead, Subject, build_page

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Frame, Page

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

#: Builds a subject's page and opens it: open_page(subject, hash="layer=1", width=360, …).
Open = Callable[..., "Page"]
#: Opens a file: open_file(path, hash="layer=1", width=360, scheme="dark").
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
        own = address.split("#")[0] in addresses or address.startswith(("data:", "blob:"))
        if not own:
            complaints.append(f"asked for {address[:200]}")

    def dismiss(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open_(path: Path, hash: str = "", width: int = 1280, scheme: Any = "light") -> Page:
        addresses.add(path.as_uri())
        pages.append(page := chromium.new_page())
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.set_default_timeout(60_000)
        page.on("request", lambda request: seen(request.url))
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", dismiss)
        page.add_init_script(KEEP)
        page.goto(path.as_uri() + (f"#{hash}" if hash else ""))
        return page

    yield open_
    for page in pages:
        page.close()
    assert complaints == []


def address(page: Page) -> str:
    """The page's address after "#", read in the page; `page.url` follows a moment later."""
    return str(page.evaluate("location.hash")).removeprefix("#")


def wait_until(page: Page | Frame, condition: str) -> None:
    """Waits until a function in JavaScript returns true; the page's policy forbids Playwright's own
    `wait_for_function`."""
    page.evaluate(
        f"""() => new Promise((resolve, reject) => {{
            setTimeout(() => reject(new Error("waited for 60 seconds")), 60_000);
            const look = () => ({condition})() ? resolve() : setTimeout(look, 10);
            look();
        }})"""
    )


def settled(page: Page) -> None:
    """Waits until the worker of a live page has answered and all parts of the page are drawn."""
    page.locator('main:not([aria-busy="true"])').wait_for(state="attached")
    wait_until(page, "() => performance.getEntriesByName('settled').length > 0")


def saved(page: Page, form: str = "csv") -> str:
    """The text of a CSV or SVG that the page saves."""
    page.evaluate("window.saved = []")
    page.locator(f"#save-{form}").click()
    return str(page.evaluate("window.saved[0].text()"))


def lines_of(csv_text: str) -> list[list[str]]:
    """The lines of a CSV."""
    return list(csv.reader(io.StringIO(csv_text, newline=""), strict=True))


def expect_csv(page: Page, text: str, tolerance: float) -> None:
    """The page saves this CSV, but for rounding of the numbers in its last column."""
    ours, theirs = lines_of(saved(page)), lines_of(text)
    assert [line[:-1] for line in ours] == [line[:-1] for line in theirs]
    numbers = [[float(line[-1]) for line in each[1:]] for each in (ours, theirs)]
    np.testing.assert_allclose(*numbers, rtol=tolerance, atol=tolerance)


@pytest.fixture
def open_page(open_file: OpenFile, tmp_path: Path) -> Open:
    """Builds pages of subjects and opens them."""

    def open_(
        subject: Subject,
        start: StartHead | None = None,
        limit: int = 5_000_000,
        **how: Any,
    ) -> Page:
        path = tmp_path / f"{len(list(tmp_path.glob('*.html')))}.html"
        path.write_text(build_page(subject, start or StartHead(), limit), encoding="utf-8")
        return open_file(path, **how)

    return open_
