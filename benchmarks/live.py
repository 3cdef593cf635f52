"""The page of `gptx live` in Chromium: how fast it opens and follows the keys.

The time of a key is the time from its event to the frame that shows the result, in the page's own
clock. "append" types characters until the context is full. "edit" replaces the first character of a
full context, so the page computes every position again. "empty page" has only a text field, a
worker that answers at once, and a canvas; its times are those of the browser. Without --run, the
script trains a model of 0.8 M parameters with a context of 64 for a few steps; the times do not
depend on the weights. The last line is JSON.

    python benchmarks/live.py [--run RUN] [--edits 30]
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

#: Waits until the page has answered another key. It does not poll the page, which takes time.
ANSWERED = "n => times.length > n || new Promise((resolve) => { window.wake = resolve; })"
SHAPE = "--steps 20 --counting 0 --n-layer 4 --n-head 4 --n-embd 128 --block-size 64"
#: Records the milliseconds from each key to the frame that shows the answer.
WATCH = """
window.times = [];
let begun = null;
addEventListener("keydown", () => begun = performance.now(), true);
new PerformanceObserver((list) => {
  if (begun === null || !list.getEntriesByName("drawn").length) return;
  const start = begun;
  begun = null;
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel(); // answers after the frame
    port1.onmessage = () => {
      times.push(performance.now() - start);
      if (window.wake) wake();
    };
    port2.postMessage(null);
  });
}).observe({ type: "mark" });
"""
EMPTY = """<!doctype html><title>empty</title>
<textarea id="input" rows="3" cols="90"></textarea>
<canvas width="600" height="600"></canvas>
<script>
const source = "onmessage = ({ data }) => postMessage(data);";
const worker = new Worker(URL.createObjectURL(new Blob([source])));
const pen = document.querySelector("canvas").getContext("2d");
const input = document.querySelector("textarea");
input.addEventListener("input", () => worker.postMessage(input.value.length));
worker.addEventListener("message", ({ data }) => {
  pen.fillRect(0, 9 * (data % 64), 9 * data, 9);
  performance.mark("drawn");
});
worker.postMessage(0);
</script>
"""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Opens a page in Chromium; returns after its first drawing."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        # bypass_csp: the page's policy forbids to evaluate the functions that wait.
        page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        page.goto(path.as_uri())
        page.wait_for_function('performance.getEntriesByName("drawn").length')
        yield page
        browser.close()


def opening(page: Any) -> float:
    """Returns the milliseconds from the start of loading to the first drawing."""
    return float(page.evaluate('performance.getEntriesByName("drawn")[0].startTime'))


def times(page: Any, keys: list[str]) -> list[float]:
    """Presses each key after the page has answered the key before; returns the milliseconds."""
    page.evaluate("times.length = 0")
    for number, key in enumerate(keys):
        page.locator("#input").press(key)
        page.evaluate(ANSWERED, number)
        page.wait_for_timeout(30)
    milliseconds: list[float] = page.evaluate("times")
    return milliseconds


def appending(page: Any, context: int) -> list[float]:
    """Types into an empty text until the context is full; returns the milliseconds of each key."""
    page.locator("#input").fill("")
    page.wait_for_timeout(500)
    return times(page, [*("the time of the world " * 50)[: context - 1].replace(" ", "e")])


def editing(page: Any, edits: int) -> list[float]:
    """Changes the first character of a full context; returns the milliseconds of each change."""
    milliseconds = []
    for number in range(edits):
        page.locator("#input").evaluate("input => input.setSelectionRange(0, 1)")
        page.wait_for_timeout(200)  # the page draws the row that the caret has chosen
        milliseconds += times(page, ["ab"[number % 2]])
    return milliseconds


def summary(values: list[float]) -> dict[str, float]:
    """Returns the median and the 95th percentile."""
    return {
        "median": round(statistics.median(values), 1),
        "p95": round(statistics.quantiles(values, n=20)[18], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run")
    parser.add_argument("--edits", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.run is None:
            where = ["--checkpoints", folder, "--data", f"{folder}/data"]
            timed([GPTX, "train", *SHAPE.split(), *where])
        run = gpt.load(options.run or folder)
        path = run.live(Path(folder) / "live.html")
        result: dict[str, Any] = {"bytes": path.stat().st_size}
        for _ in range(3):
            with opened(path) as page:
                result.setdefault("opening ms", []).append(round(opening(page)))
        context = run.config.block_size
        with opened(path) as page:
            page.evaluate(WATCH)
            result["append ms"] = summary(appending(page, context))
            result["edit ms"] = summary(editing(page, options.edits))
        empty = Path(folder) / "empty.html"
        empty.write_text(EMPTY, "utf-8")
        with opened(empty) as page:
            page.evaluate(WATCH)
            result["append ms, empty page"] = summary(appending(page, context))
    for name, value in result.items():
        print(f"{name:25} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
