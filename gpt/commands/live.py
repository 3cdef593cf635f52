"""`gptx live`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.shared import (
    OutputOptions,
    ReadingOptions,
    TextOptions,
    default_file,
    note,
    open_in_browser,
    refuse_if,
)
from gpt.config.fields import option
from gpt.config.train import Data
from gpt.words import printable

SCHEMA = 1
NAME = "live.html"
OURS = b"gptx live</title>"


@dataclass(frozen=True, kw_only=True)
class LiveOptions(OutputOptions):
    """Where to write the page, and whether to open it."""

    output: Annotated[Path | None, option("A file; - is stdout.")] = Path(NAME)
    open: Annotated[bool, option("Open the file in the browser.")] = False
    data: Data = Path("data")


def command(source: TextOptions, page: LiveOptions, reading: ReadingOptions) -> None:
    """Write the model into one HTML file: type in it, and every head follows.

    The page shows the GPT alone, without counting.
    """
    from gpt.commands.progress import progress_bar
    from gpt.view.page.live import live_page

    path = page.path
    refuse_if(page.json and path is None, "--json: needs a file for the page, not stdout")
    refuse_if(page.open and path is None, "--open: needs a file, not stdout")
    if path == Path(NAME):
        default_file(NAME, OURS, "--output")
    given = source.given(reading.encoding)
    model = reading.open()
    text = None if given is None else reading.known_text(model, given)
    with progress_bar() as done:
        made = live_page(model, text, page.data, done, note)
    page.write_text(made.html)
    if page.open and path:
        open_in_browser(path)
    if page.json:
        size = {"bytes": len(made.html.encode()), "bits": made.bits}
        facts = {"file": printable(str(path)), **size}
        console.write_json({"schema": SCHEMA, **model.origin, **facts})
    elif path and not page.open:
        console.say(
            f"page: {path}, {len(made.html) / 1e6:.1f} MB, weights in "
            f"float{made.bits}; open it in a browser"
        )
