"""Films the live page for the README: a user types a word again, looks at what a head reads, and
switches this head off and on. Knows the page, and nothing of trained models.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Locator, Page

WORD, AGAIN = "qwerty ", "qwert"
SIZE: Any = {"width": 880, "height": 432}  # CSS pixels, as the README shows them
SHARPNESS = 2  # pixels of the film in a CSS pixel, for each direction

#: Leaves out what the film does not need, and gives the rest fixed places. Screenshots have neither
#: caret nor pointer, so the film draws both. --n: length of the text; all lines have equal height.
STYLE = """
html { scrollbar-width: none }
body { padding: 0 }
header, footer, .under, .hint, .options, .frames, .caveat, #map-card, #order, #cell-card,
#lens-card, #measures-card, #matrix-card > .bar-of-tools, #next > :not(.guesses),
.guesses li > :nth-child(4) { display: none !important }
main {
  grid-template: "text text text" "heads matrix next" 1fr / 23.5rem 1fr 14.5rem !important;
  gap: 8px; height: 100vh; padding: 8px
}
.card { align-self: stretch; padding: 9px 14px }
#text-card { grid-template-columns: 19.5rem 1fr !important; align-items: center; padding: 5px 14px }
#matrix-card { display: block !important }
#heads { gap: 22px 8px }
#input, #text { font-size: 1.25rem }
#input { height: 2.4rem; min-height: 0; line-height: 1.5; resize: none; caret-color: transparent }
#input:focus {
  background: linear-gradient(var(--ink), var(--ink)) calc(8px + var(--n) * 1ch) 50% / 2px 1.5rem
    no-repeat var(--paper)
}
#text-said { font-size: 0.6875rem }
#lines-title { line-height: 1.8 }
#lines-body { max-height: calc(38px + 21px * var(--n)) !important }
.guesses { grid-template-columns: 2.6rem 1fr 3.2rem !important }
.guesses li { line-height: 1.8 !important }
#pointer { position: fixed; top: 0; left: 0; z-index: 9; width: 20px; pointer-events: none }
"""
SCRIPT = """() => {
  document.body.insertAdjacentHTML("beforeend", `<svg id="pointer" viewBox="0 0 20 28">
    <path d="M1 1v20l5-4.5 3.5 8.5 4-1.7-3.5-8.3h7z" stroke="#fff" stroke-width="1.5"/></svg>`);
  const { style } = document.querySelector("#pointer");
  addEventListener("pointermove", ({ x, y }) => style.translate = `${x}px ${y}px`);
  const input = document.querySelector("#input");
  const measure = () => document.documentElement.style.setProperty("--n", input.value.length);
  input.addEventListener("input", measure, true);
  measure();
}"""


class Film:
    """Still pictures of a page, each with the milliseconds for which the film shows it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.at = (0.0, 0.0)  # the pointer
        self.stills: list[tuple[bytes, int]] = []

    def show(self, milliseconds: int, wait: int = 400) -> None:
        """Adds the page as soon as it no longer changes. wait: milliseconds without a change."""
        still, before = self.page.screenshot(), b""
        while still != before:
            self.page.wait_for_timeout(wait)
            still, before = self.page.screenshot(), still
        self.stills.append((still, milliseconds))

    def press(self, keys: Iterable[str], milliseconds: int) -> None:
        """Presses keys, and shows what each of them does."""
        for key in keys:
            self.page.keyboard.press(key)
            self.show(milliseconds)

    def point(self, to: Locator, across: float, down: float, stills: int = 9) -> None:
        """Moves the pointer to a place in an element, from 0 to 1 of its width and height. The last
        position is in the next picture that `show` adds.
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

    def save(self, path: Path) -> None:
        """Writes an animated WebP without loss, which repeats for ever."""
        first, *rest = (Image.open(io.BytesIO(still)).convert("RGB") for still, _ in self.stills)
        durations = [milliseconds for _, milliseconds in self.stills]
        how: dict[str, Any] = {"lossless": True, "method": 4, "loop": 0, "duration": durations}
        first.save(path, save_all=True, append_images=rest, **how)


def film(browser: Browser, live: Path, scheme: Any, layer: int, head: int) -> Film:
    """The film of a live page in a colour scheme, with this head. Its end is its beginning."""
    page = browser.new_page(
        viewport=SIZE, device_scale_factor=SHARPNESS, color_scheme=scheme, bypass_csp=True
    )
    page.goto(f"{live.as_uri()}#layer={layer}&head={head}")
    page.locator("main:not([hidden])").wait_for()
    text = page.locator("#input")
    text.fill(WORD + AGAIN)
    text.blur()
    page.add_style_tag(content=STYLE)
    page.evaluate(SCRIPT)
    switch = page.locator(f'[data-switch="{layer}.{head}"]')
    last = page.locator("#lines-from .character").last
    made = Film(page)
    made.point(switch, 0.5, 0.7, stills=1)
    made.show(1200)
    made.point(text, 0.7, 0.6)
    page.mouse.click(*made.at)
    made.press(["Backspace"] * len(AGAIN), 90)
    made.show(700)
    made.press(AGAIN, 480)
    made.show(500)
    made.point(last, 0.5, 0.85)
    made.show(1500)
    made.point(switch, 0.5, 0.7)
    made.show(300)
    page.mouse.click(*made.at)  # off
    made.show(2000)
    page.mouse.click(*made.at)  # on
    made.show(800)
    page.close()
    return made
