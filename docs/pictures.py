"""Trains a run of repeats, draws docs/page.png and docs/terminal.svg, films docs/live-*.webp.

`make pictures` runs this script. It needs Chromium, and about two minutes on a quiet machine.
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
#: The commands that the terminal shows, without gptx -> how many rows of output it shows at most.
#: Their text has no space, because few fonts have the sign for a space.
COMMANDS = {
    "attn qwertyqwert --layer 1 --head 1 --view heat": 24,
    "why qwertyqwert --against q": 8,
}
SIZE: Any = {"width": 1280, "height": 800}


def draw(folder: Path) -> None:
    """Draws and films the page of a new run, which it keeps in a folder."""
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
    """Draws a terminal with COMMANDS and their output."""
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
    """Draws the first screen of the page with the head off that copies."""
    page = browser.new_page(viewport=SIZE)
    page.goto(live.as_uri())
    page.locator(".tile.chosen .switch").click()
    page.locator('main[aria-busy="false"]').wait_for()
    page.wait_for_timeout(500)  # the switch moves
    drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # 256 colours make the file a third as large; no colour changes by more than 9 of 255.
    none = Image.Dither.NONE
    small = drawn.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=none)
    small.save(DOCS / "page.png", optimize=True)
    page.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
