"""Draws docs/page.png and docs/terminal.svg and films docs/live-*.webp, of a new run of repeats:
`make pictures`.

Needs Chromium. Takes about two minutes on a quiet machine.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from film import AGAIN, WORD, film
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

import gpt

DOCS = Path(__file__).parent
#: What the terminal shows: the words after gptx, and the most rows of each output. The text has no
#: space, whose sign few fonts have.
COMMANDS = {
    "attn qwertyqwert --layer 1 --head 1 --view heat": 24,
    "why qwertyqwert --against q": 8,
}
SIZE: Any = {"width": 1280, "height": 800}


def draw(folder: Path) -> None:
    """Draws the page of an induction head, and films it; needs a folder for the run."""
    run = gpt.train("repeats", checkpoints=folder)
    draw_terminal(folder)
    live = run.live(folder / "live.html", text=WORD + AGAIN)
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        draw_still(browser, live)
        for scheme in ("light", "dark"):
            film(browser, live, scheme).save(DOCS / f"live-{scheme}.webp")
        browser.close()


def draw_terminal(checkpoints: Path) -> None:
    """Draws a terminal with commands of the README and what they print."""
    terminal = Console(record=True, width=84, file=io.StringIO())
    for words, rows in COMMANDS.items():
        command = [sys.executable, "-m", "gpt", *shlex.split(words), "--color", "always"]
        place = {"COLUMNS": "84", "GPTX_CHECKPOINTS": str(checkpoints)}
        done = subprocess.run(command, env=os.environ | place, capture_output=True, check=True)
        lines = done.stdout.decode().splitlines()
        shown = [*lines[:rows], "…", lines[-1]] if len(lines) > rows else lines
        terminal.print(Text(f"$ gptx {words}", "bold"))
        terminal.print(Text.from_ansi("\n".join([*shown, ""])))
    terminal.save_svg(str(DOCS / "terminal.svg"), title="gptx", theme=DIMMED_MONOKAI)


def draw_still(browser: Browser, live: Path) -> None:
    """Draws the first screen; the head that copies is off."""
    page = browser.new_page(viewport=SIZE)
    page.goto(live.as_uri())
    page.locator(".tile.chosen .switch").click()
    page.locator('main[aria-busy="false"]').wait_for()
    page.wait_for_timeout(500)  # the switch moves
    drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # A third of the size; no colour moves by more than 9 of 255.
    none = Image.Dither.NONE
    small = drawn.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=none)
    small.save(DOCS / "page.png", optimize=True)
    page.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
