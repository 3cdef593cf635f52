"""`gptx live`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import (
    OutputOptions,
    ReadingOptions,
    TextOptions,
    default_page_path,
    open_in_browser,
)
from gpt.config.fields import option

DEFAULT_FILE = "live.html"


@dataclass(frozen=True, kw_only=True)
class LiveOptions(OutputOptions):
    json: bool = False
    output: Annotated[Path | None, option("The file to write; - is stdout.")] = Path(DEFAULT_FILE)
    open: Annotated[bool, option("Open the file in the browser.")] = False


def command(source: TextOptions, page: LiveOptions, reading: ReadingOptions) -> None:
    """Write the model into an HTML page that shows what every head does as you type.

    The page shows the GPT alone, without counting.
    """
    from gpt.page.live import live_page

    path = page.path
    if path == Path(DEFAULT_FILE):
        default_page_path(DEFAULT_FILE, "--output")
    text, model = source.read(reading.encoding), reading.open()
    html = live_page(model, None if text is None else model.known_text(text, reading.unknown))
    console.write(html, page.path)
    if page.open and path:
        open_in_browser(path)
    elif path:
        size = len(html) / 1e6
        console.say(f"page of {model.stored.title}: {path}, {size:.1f} MB; open it in a browser")
