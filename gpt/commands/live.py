"""`gptx live`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt.commands import console, shared
from gpt.commands.shared import refuse_if
from gpt.config.train import Data
from gpt.words import printable

SCHEMA = 1
NAME = "live.html"
OURS = b"gptx live</title>"


class Live(shared.ModelCommand):
    """Write the model into one HTML file: type in it, and every head follows.

    The page shows the GPT alone, without counting.
    """

    text: Annotated[
        str | None,
        typer.Argument(help="Text to begin with; - reads stdin.", show_default="from validation"),
    ] = None
    file: shared.TextFile = None
    output: Annotated[Path | None, shared.output_option("A file; - is stdout.")] = Path(NAME)
    show: Annotated[bool, typer.Option("--open", help="Open the file in the browser.")] = False
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.commands.progress import progress_bar
        from gpt.view.page.live import live_page

        refuse_if(
            (self.as_json and self.output is None, "--json: needs a file for the page, not stdout"),
            (self.show and self.output is None, "--open: needs a file, not stdout"),
        )
        if self.output == Path(NAME):
            shared.default_file(NAME, OURS, "--output")
        given = shared.one_text({"TEXT": self.text, "--file": self.file}, self.encoding)
        text = None if given is None else self.known_text(self.opened, given)
        with progress_bar() as done:
            page = live_page(self.opened, text, self.data, done, shared.note)
        console.write(page.html, self.output)
        if self.show and self.output:
            shared.open_in_browser(self.output)
        if self.as_json:
            size = {"bytes": len(page.html.encode()), "bits": page.bits}
            facts = {"file": printable(str(self.output)), **size}
            console.write_json({"schema": SCHEMA, **self.opened.origin, **facts})
        elif self.output and not self.show:
            console.say(
                f"page: {self.output}, {len(page.html) / 1e6:.1f} MB, weights in "
                f"float{page.bits}; open it in a browser"
            )
