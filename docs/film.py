"""Films the page for the README: a user types a word a second time, and then switches the head that
copies off and on.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Locator, Page

WORD, AGAIN = "qwerty ", "qwert"
SIZE: Any = {"width": 1060, "height": 358}  # CSS pixels: down to the heads
SHARPNESS = 1.66  # pixels of the film for one CSS pixel, in each direction

#: Screenshots show neither the caret nor the pointer, so the film draws both.
STYLE = """
html { scrollbar-width: none }
nav, details { display: none !important }
#paper:focus-within .ghost { box-shadow: -2px 0 0 rgb(var(--ink)) }
#input { caret-color: transparent }
#pointer { position: fixed; top: 0; left: 0; z-index: 9; width: 20px; pointer-events: none }
"""
SCRIPT = """() => {
  document.body.insertAdjacentHTML("beforeend", `<svg id="pointer" viewBox="0 0 20 28">
    <path d="M1 1v20l5-4.5 3.5 8.5 4-1.7-3.5-8.3h7z" stroke="#fff" stroke-width="1.5"/></svg>`);
  const { style } = document.querySelector("#pointer");
  addEventListener("pointermove", ({ x, y }) => style.translate = `${x}px ${y}px`);
}"""


class Film:
    """Screenshots of a page, each with the milliseconds for which the film shows it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.at = (0.0, 0.0)  # the position of the pointer
        self.stills: list[tuple[bytes, int]] = []

    def show(self, milliseconds: int, wait: int = 400) -> None:
        """Adds a screenshot as soon as the page has not changed for `wait` milliseconds."""
        still, before = self.page.screenshot(), b""
        while still != before:
            self.page.wait_for_timeout(wait)
            still, before = self.page.screenshot(), still
        self.stills.append((still, milliseconds))

    def press(self, keys: Iterable[str], milliseconds: int) -> None:
        """Presses keys, and adds a screenshot after each."""
        for key in keys:
            self.page.keyboard.press(key)
            self.show(milliseconds)

    def point(self, to: Locator, across: float, down: float, stills: int = 9) -> None:
        """Moves the pointer to a point in an element: `across` and `down` are shares of its width
        and height. Adds a screenshot of each position but the last; the next `show` adds that one.
        """
        box = to.bounding_box()
        assert box
        (x, y), begin = self.at, self.at
        end = box["x"] + across * box["width"], box["y"] + down * box["height"]
        for n in range(1, stills + 1):
            share = (n / stills) ** 2 * (3 - 2 * n / stills)  # begins and ends slowly
            x, y = (round(a + (b - a) * share) for a, b in zip(begin, end, strict=True))
            self.page.mouse.move(x, y)
            if n < stills:
                self.show(40, wait=30)
        self.at = x, y

    def click(self) -> None:
        self.page.mouse.click(*self.at)

    def save(self, path: Path) -> None:
        """Writes an animated WebP, lossless, which repeats for ever."""
        first, *rest = (Image.open(io.BytesIO(still)).convert("RGB") for still, _ in self.stills)
        durations = [milliseconds for _, milliseconds in self.stills]
        how: dict[str, Any] = {"lossless": True, "method": 4, "loop": 0, "duration": durations}
        first.save(path, save_all=True, append_images=rest, **how)


def film(browser: Browser, live: Path, scheme: Any) -> Film:
    """Films a page in a colour scheme. The head that the user switches off is the one that the page
    opens on. The last picture of the film equals the first, so that it can repeat.
    """
    page = browser.new_page(
        viewport=SIZE, device_scale_factor=SHARPNESS, color_scheme=scheme, bypass_csp=True
    )
    page.goto(live.as_uri())
    page.locator('main[aria-busy="false"]').wait_for()
    page.add_style_tag(content=STYLE)
    page.evaluate(SCRIPT)
    text, switch = page.locator("#input"), page.locator(".tile.chosen .switch")
    made = Film(page)
    made.point(switch, 0.5, 0.9, stills=1)
    made.show(1200)
    made.point(text, 0.6, 0.6)
    made.click()
    page.keyboard.press("End")
    made.press(["Backspace"] * len(AGAIN), 90)
    made.show(700)
    made.press(AGAIN, 480)
    made.show(1500)
    made.point(switch, 0.5, 0.9)
    made.show(300)
    made.click()  # off
    made.show(2500)
    made.click()  # on
    made.show(800)
    page.close()
    return made
