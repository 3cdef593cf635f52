"""Trains on repeats and draws docs/page-*.png: `make pictures`. Needs Chromium.

docs/dates.svg needs an idle machine, as a busy one makes fewer steps in the two minutes:
`gptx train dates` and `gptx attn "24 December 2026" -o docs/dates.svg`.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import gpt

DOCS = Path(__file__).parent
INDUCTION = "layer=1&head=2"
#: Picture -> width and height in pixels, colour scheme, and the state in the address.
PICTURES: dict[str, tuple[int, int, Any, str]] = {
    "page-light": (1280, 800, "light", INDUCTION),
    "page-dark": (1280, 800, "dark", f"of=b&{INDUCTION}&off=1.0,1.1,1.2,1.3"),
    "page-narrow": (390, 844, "light", INDUCTION),
}


def draw(folder: Path) -> None:
    """Draws the page of an induction head; in the dark one, all induction heads are off."""
    run = gpt.train("repeats", checkpoints=folder)
    run.live(folder / "live.html", text="qwerty asdf qwerty asd")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, (width, height, scheme, state) in PICTURES.items():
            size: Any = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(f"{(folder / 'live.html').as_uri()}#{state}")
            page.locator("main:not([hidden])").wait_for()
            page.wait_for_timeout(2000)  # parts of the page are drawn later
            drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            # A third of the size; no colour moves by more than 9 of 255.
            none = Image.Dither.NONE
            small = drawn.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=none)
            small.save(DOCS / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
