"""The page of `gptx live` in Chromium: how fast it opens, follows the keys, and writes.

A key's time is from its event to the frame that shows the result, in the page's own clock. Appended
characters fill the context; an edit replaces the first character of a full context, so that every
position is computed again. Without --run, the script trains for a few steps a model of 0.8 M
parameters with a context of 64 and counting, as weights and times do not depend on each other. The
last line is JSON.

    python benchmarks/live.py [--run RUN] [--precision float16] [--edits 30]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import GPTX, timed

import gpt

#: Waits until another key has been answered, without asking the page in each of its frames.
ANSWERED = "n => times.drawn.length > n || new Promise((resolve) => { window.wake = resolve; })"
#: "predicted" and "drawn" -> the milliseconds of each key.
Times = dict[str, list[float]]
SHAPE = "--steps 20 --n-layer 4 --n-head 4 --n-embd 128 --block-size 64"
#: Records the milliseconds from each key to the frame after the text and the prediction have been
#: drawn ("predicted"), and to the one after everything has ("drawn").
WATCH = """
window.times = { predicted: [], drawn: [] };
let begun = 0;
let expected = [];
addEventListener("keydown", () => {
  begun = performance.now();
  expected = ["predicted", "drawn"];
}, true);
new PerformanceObserver((list) => {
  for (const { name } of list.getEntries()) {
    if (name !== expected[0]) continue;
    expected.shift();
    const start = begun;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel(); // answers after the frame
      port1.onmessage = () => {
        times[name].push(performance.now() - start);
        if (name === "drawn" && window.wake) wake();
      };
      port2.postMessage(null);
    });
  }
}).observe({ type: "mark" });
"""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The page in Chromium, and the milliseconds until it had drawn."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        # The functions that wait are evaluated, which the page's policy forbids.
        page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        page.goto(path.as_uri())
        page.wait_for_function('performance.getEntriesByName("drawn").length')
        yield page
        browser.close()


def opening(page: Any) -> float:
    """Milliseconds from the start of loading to the first drawing."""
    return float(page.evaluate('performance.getEntriesByName("drawn")[0].startTime'))


def times(page: Any, keys: list[str]) -> Times:
    """Milliseconds of each key, pressed after the one before has been answered."""
    for key in keys:
        before = page.evaluate("times.drawn.length")
        page.locator("#input").press(key)
        page.evaluate(ANSWERED, before)
        page.wait_for_timeout(30)
    found: Times = page.evaluate("times")
    page.evaluate("times.predicted.length = times.drawn.length = 0")
    return found


def appending(page: Any, context: int) -> Times:
    """Of characters that are typed into an empty text until the context is full."""
    page.locator("#input").fill("")
    page.wait_for_timeout(500)
    return times(page, [*("the time of the world " * 50)[: context - 1].replace(" ", "e")])


def editing(page: Any, edits: int) -> Times:
    """Of another first character, the context being full."""
    found: Times = {"predicted": [], "drawn": []}
    for number in range(edits):
        page.locator("#input").evaluate("input => input.setSelectionRange(0, 1)")
        for name, values in times(page, ["ab"[number % 2]]).items():
            found[name] += values
    return found


def writing(page: Any, who: str) -> float:
    """Characters a second, as the page says."""
    page.locator("#input").fill("the ")
    if page.locator("#only button").count():
        page.locator("#only button", has_text=who).click()
    page.locator("#write").click()
    said = page.locator("#input-said", has_text="500 characters written")
    said.wait_for(timeout=60_000)
    page.wait_for_function("!document.getElementById('input').readOnly")
    return float(said.inner_text().split("written, ")[1].split()[0].replace(",", ""))


def summary(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {
        "median": round(statistics.median(values), 1),
        "p95": round(statistics.quantiles(values, n=20)[18], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run")
    parser.add_argument("--precision", default="auto", choices=["auto", "float16", "float32"])
    parser.add_argument("--edits", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.run is None:
            where = ["--checkpoints", folder, "--data", f"{folder}/data"]
            timed([GPTX, "train", *SHAPE.split(), *where])
        run = gpt.load(asked.run or folder)
        path = run.live(Path(folder) / "live.html", precision=asked.precision)
        result: dict[str, Any] = {"bytes": path.stat().st_size}
        for _ in range(3):
            with opened(path) as page:
                result.setdefault("opening ms", []).append(round(opening(page)))
        with opened(path) as page:
            page.evaluate(WATCH)
            page.evaluate("times.predicted.length = times.drawn.length = 0")
            for what, found in (
                ("append", appending(page, run.config.block_size)),
                ("edit", editing(page, asked.edits)),
            ):
                for name, values in found.items():
                    result[f"{what} ms, {name}"] = summary(values)
            for who in ("together", "GPT"):
                result[f"characters/s, {who}"] = writing(page, who)
    for name, value in result.items():
        print(f"{name:24} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
