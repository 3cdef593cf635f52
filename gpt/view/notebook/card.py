"""HTML of one output: a card with a title, tables and notes, in colours of the light or dark theme.

Every output contains its style, limited to the class gptx, and no ids: several in one notebook do
not disturb each other. Text is escaped here, once: other modules pass plain texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpt import characters
from gpt.view.html import LIMIT as LIMIT
from gpt.view.html import MOST_ROWS as MOST_ROWS
from gpt.view.html import safe as safe
from gpt.view.html import style as style


def card(title: str, facts: str, *parts: str, alarm: str = "") -> str:
    """One output: a title in bold, facts beside it, and parts that are HTML already."""
    head = f'<p class="title">{safe(title)} <span>{safe(facts)}</span></p>'
    failed = f'<p class="alarm">{safe(alarm)}</p>' if alarm else ""
    return f'<div class="gptx"><style>{style()}</style>{head}{failed}{"".join(parts)}</div>'


def note(text: str) -> str:
    """A small remark; nothing for an empty text."""
    return f'<p class="note">{safe(text)}</p>' if text else ""


def label(character: str) -> str:
    """A character as a visible label; browsers lack the terminal's sign of a space."""
    return characters.drawn_label(character)


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, classes of the style, and a share in 0 … 1.

    share: the strength of the background (class heat) or the length of a bar (class bar). hint:
    shown while the mouse is over the cell.
    """

    text: str
    classes: str = ""
    share: float | None = None
    hint: str = ""

    def __str__(self) -> str:
        text = f"<bdi>{safe(self.text)}</bdi>" if self.text else ""
        classes, rest = self.classes, f' title="{safe(self.hint)}"' if self.hint else ""
        if self.share is not None:
            percent = f"{100 * min(1.0, max(0.0, self.share)):.0f}%"
            if "bar" in classes.split():
                gone = ' class="gone"' if "gone" in classes.split() else ""
                bar = f'<i{gone} style="width:{percent}"></i>' if self.share else ""
                text = bar + text
            else:
                classes, rest = f"{classes} heat".strip(), f'{rest} style="--v:{percent}"'
        return f"<td{f' class={chr(34)}{classes}{chr(34)}' if classes else ''}{rest}>{text}</td>"


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str | Cell]], left: Sequence[int] = (0,)
) -> str:
    """A table; columns in `left` are left-aligned, all others right-aligned."""

    def cell(place: int, value: str | Cell) -> str:
        if isinstance(value, Cell):
            return str(value)
        return str(Cell(value, "left" if place in left else ""))

    heads = (
        f"<th{' class=left' if place in left else ''}>{safe(name)}</th>"
        for place, name in enumerate(headings)
    )
    lines = ("".join(cell(place, each) for place, each in enumerate(row)) for row in rows)
    top = f"<thead><tr>{''.join(heads)}</tr></thead>" if any(headings) else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table class="gptx-table">{top}<tbody>{body}</tbody></table>'


def facts(values: dict[str, str]) -> str:
    """A table of names and facts; empty facts are left out."""
    rows = [[Cell(name, "left dim"), Cell(fact, "wide")] for name, fact in values.items() if fact]
    return table((), rows)


def shortened(count: int, what: str, shown: int = MOST_ROWS) -> str:
    """A remark on a table that does not show all of its rows, or nothing."""
    if count <= shown:
        return ""
    return note(f"the first {shown} of {count:,} {what}; all of them: .to_pandas()")


def decimal(value: float, digits: int = 3) -> str:
    """A number with a fixed number of decimals; – for NaN."""
    return f"{value:.{digits}f}".replace("-", "−") if value == value else "–"
