"""Shows results in notebooks: as HTML, what a terminal of 100 columns would show."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType

from gpt.show.result import Result
from gpt.show.terminal import Screen, parts_of, print_parts, prose

WIDTH = 100
LIMIT = 1_000_000  # bytes of HTML; a larger result shows its title only
_STYLE = "font-family:monospace;line-height:1.25;background:none;white-space:pre"


def to_html(result: Result) -> str:
    """A result as HTML with its own styles, in the colours of the notebook; text is escaped."""
    screen = Screen(WIDTH, color="always")
    html = _html(parts_of(result, screen))
    if len(html) <= LIMIT:
        return html
    return _html([prose(repr(result), screen), prose("This result is too large to show.", screen)])


def _html(parts: list[RenderableType]) -> str:
    console = Console(file=StringIO(), record=True, width=WIDTH, color_system="truecolor")
    print_parts(parts, console)
    code = f'<pre style="{_STYLE}">{{code}}</pre>'
    return console.export_html(inline_styles=True, code_format=code)
