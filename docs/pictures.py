"""Draws docs/page-*.png and docs/terminal.svg and films docs/live-*.webp, of a new run of repeats:
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

import numpy as np
from film import AGAIN, WORD, film
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

import gpt

DOCS = Path(__file__).parent
INDUCTION = "layer=1&head=2"
#: What the terminal shows: the words after gptx, and the most rows of each output. The text has no
#: space, whose sign few fonts have.
COMMANDS = {
    "attn qwertyqwert --layer 1 --head 1 --view heat": 24,
    "why qwertyqwert --against q": 8,
}
#: Picture -> width and height in pixels, colour scheme, and the state in the address.
PICTURES: dict[str, tuple[int, int, Any, str]] = {
    "page-light": (1280, 800, "light", INDUCTION),
    "page-dark": (1280, 800, "dark", f"of=b&{INDUCTION}&off=1.0,1.1,1.2,1.3"),
}


def draw(folder: Path) -> None:
    """Draws the page of an induction head, and films it; needs a folder for the run."""
    run = gpt.train("repeats", checkpoints=folder)
    draw_terminal(folder)
    live = folder / "live.html"
    run.live(live, text="qwerty asdf qwerty asd")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        draw_stills(browser, live)
        head = decisive_head(run)
        for scheme in ("light", "dark"):
            film(browser, live, scheme, 1, head).save(DOCS / f"live-{scheme}.webp")
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


def draw_stills(browser: Browser, live: Path) -> None:
    """Draws the pictures of the whole page; in the dark one, all induction heads are off."""
    for name, (width, height, scheme, state) in PICTURES.items():
        size: Any = {"width": width, "height": height}
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.goto(f"{live.as_uri()}#{state}")
        page.locator("main:not([hidden])").wait_for()
        page.wait_for_timeout(2000)  # parts of the page are drawn later
        drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        # A third of the size; no colour moves by more than 9 of 255.
        none = Image.Dither.NONE
        small = drawn.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=none)
        small.save(DOCS / f"{name}.png", optimize=True)


def decisive_head(run: gpt.TrainedGPT) -> int:
    """The head of layer 1 without which the model expects the film's next character least."""
    character = run.vocabulary.id_of(WORD[len(AGAIN)])

    def expected_without(head: int) -> float:
        logits = run.logits(WORD + AGAIN, patch={("context", 1, head): 0})[0, -1]
        return float(logits[character] - np.logaddexp.reduce(logits))

    return min(range(run.config.n_head), key=expected_without)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
