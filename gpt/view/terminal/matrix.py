"""One matrix of an attention map as lines of text: numbers, heat, or the strongest keys.

Lines fit the page's width; without one (a pipe) they are as long as the matrix is wide. Characters
of the text are shown as labels, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from gpt.config.show import Scale
from gpt.heads.attention_map import AttentionMap
from gpt.reading.layers import Array
from gpt.view.characters import label, pad, quoted
from gpt.view.selection import Panel, Selection
from gpt.view.terminal.lines import DIM, Page, blocks, flow, number, painted, ruler

FAINT = 0.15  # a weight up to which the fixed scale shows little
ROW_SCALE = "scale: each row's largest = full"


def title_of(
    attention: AttentionMap, selection: Selection, panel: Panel, view: str, page: Page
) -> list[str]:
    """What is drawn: which head, stage, axes, T, head_size, scale."""
    size = attention.layers[panel.layer].q.shape[-1]
    parts = [panel.where(), selection.stage, axes(selection)]
    parts += [f"T={len(attention.text)}", f"head_size={size}"]
    if view == "heat":
        if page.scale == "row":
            parts.append(ROW_SCALE)
        elif selection.stage == "weights":
            faint = np.median(panel.values.max(axis=1)) < FAINT
            parts.append("scale 0–1" + ("; faint: --scale row shows more" if faint else ""))
        else:
            low, high = _extent(panel.values)
            parts.append(f"scale {low:.2f} … {high:.2f}")
    return parts


def axes(selection: Selection) -> str:
    """What the rows and columns of the selected stage are."""
    columns = "key" if selection.square else "dimension"
    return f"rows = query, columns = {columns}"


def fitting(
    attention: AttentionMap, selection: Selection, panel: Panel, page: Page
) -> Literal["numbers", "heat", "top"]:
    """Numbers if they fit, else heat, else the strongest keys."""
    if page.width is None:
        return "numbers"
    lines = numbers(attention, selection, panel, page)
    if len(lines) == 2 + len(selection.queries) - (not selection.square):
        return "numbers"
    gutter = cell_len(row_labels(attention, selection, page)[0])
    return "heat" if gutter + panel.values.shape[1] <= page.width else "top"


def numbers(attention: AttentionMap, selection: Selection, panel: Panel, page: Page) -> list[Text]:
    """Every value in digits; what the mask forbids is blank (−inf in the masked stage)."""
    rows = row_labels(attention, selection, page)
    positions = selection.keys if selection.square else range(panel.values.shape[1])
    columns = [[str(at) for at in positions]]
    columns += [_key_labels(attention, selection, page)] if selection.square else []
    cells = [
        [number(value, page) if shown else "" for value, shown in zip(values, seen, strict=True)]
        for values, seen in zip(panel.values.tolist(), _shown(selection, panel), strict=True)
    ]
    widest = max((cell_len(text) for texts in (*cells, *columns) for text in texts), default=1)
    gutter, width = cell_len(rows[0]), widest + 1
    strongest = _strongest(attention, selection, panel, page)
    lines: list[Text] = []
    for first, last in blocks(len(columns[0]), width, gutter, page.width):
        if first:
            lines.append(Text())
        for heading in columns:
            cell_texts = (pad(text, width, right=True) for text in heading[first:last])
            lines.append(Text(" " * gutter + "".join(cell_texts), DIM))
        final = last == len(columns[0])
        for row, texts, note in zip(rows, cells, strongest, strict=True):
            line = Text(row, DIM)
            line.append("".join(pad(text, width, right=True) for text in texts[first:last]))
            room = page.width is None or line.cell_len + cell_len(note) <= page.width
            lines.append(line.append(note, DIM) if final and room else line)
            lines[-1].rstrip()
    return lines


def heat(attention: AttentionMap, selection: Selection, panel: Panel, page: Page) -> list[Text]:
    """A coloured glyph for every value; a larger value is brighter and denser."""
    rows = row_labels(attention, selection, page)
    gutter, count = cell_len(rows[0]), panel.values.shape[1]
    doubled = page.width is None or gutter + 2 * count <= page.width
    width = 2 if doubled else 1
    shades = shades_of(selection, panel, page.scale)
    characters = _key_labels(attention, selection, page)
    lines: list[Text] = []
    for first, last in blocks(count, width, gutter, page.width):
        if first:
            lines.append(Text())
        positions = range(first, last)
        offset = selection.keys.start if selection.square else 0
        lines.append(Text(" " * gutter + ruler(positions, offset, width), DIM))
        if characters:
            fitting = [text if cell_len(text) <= width else "?" for text in characters[first:last]]
            lines.append(Text(" " * gutter + "".join(pad(text, width) for text in fitting), DIM))
        for row, values in zip(rows, shades, strict=True):
            lines.append(Text(row, DIM).append_text(painted(values[first:last], width)))
    return lines


def top(attention: AttentionMap, selection: Selection, panel: Panel, page: Page) -> list[Text]:
    """A line for each query: its strongest keys, and what is left for the rest.

    Dimensions by their size, whatever the sign; keys by their value.
    """
    arrow, separator = ("<-", " | ") if page.ascii_only else ("←", " · ")
    digits = len(str(selection.queries.stop - 1))
    lines = []
    first = selection.keys.start if selection.square else 0
    for query, values in zip(selection.queries, panel.values, strict=True):
        allowed = query + 1 - first if selection.stage in ("masked", "weights") else len(values)
        values = values[: max(0, allowed)]
        strength = values if selection.square else np.abs(values)
        order = np.argsort(-strength, kind="stable")[: page.top].tolist()
        items = []
        for column in order:
            key = first + column
            name = f" {quoted(attention.text[key], page.ascii_only)}" if selection.square else ""
            items.append(f"{key}{name} {number(float(values[column]), page)}")
        if selection.stage == "weights" and len(values) > len(order):
            rest = max(0.0, float(values.sum() - values[order].sum()))
            items.append(f"rest {number(rest, page)}")
        head = f"{query:>{digits}} {quoted(attention.text[query], page.ascii_only)}"
        start = f"{head} {arrow} "
        gutter = cell_len(start)
        flowed = flow(items, page.width and page.width - gutter, separator) or ["masked"]
        for nth, part in enumerate(flowed):
            line = Text(" " * gutter if nth else start, DIM)
            lines.append(line.append(part, Style(dim=False)))
    return lines


def _shown(selection: Selection, panel: Panel) -> npt.NDArray[np.bool_]:
    """(rows, columns) False where the mask forbids."""
    everywhere = np.ones(panel.values.shape, dtype=np.bool_)
    return selection.allowed if selection.stage == "weights" else everywhere


def row_labels(attention: AttentionMap, selection: Selection, page: Page) -> list[str]:
    """ "   3 t ": position and character of every row, all of one width."""
    names = [label(attention.text[query], page.ascii_only) for query in selection.queries]
    digits, width = len(str(selection.queries.stop - 1)), max(map(cell_len, names))
    return [
        f"{query:>{digits + 2}} {pad(name, width)} "
        for query, name in zip(selection.queries, names, strict=True)
    ]


def _key_labels(attention: AttentionMap, selection: Selection, page: Page) -> list[str]:
    """The characters of the columns, if the columns are characters."""
    keys = selection.keys if selection.square else ()
    return [label(attention.text[key], page.ascii_only) for key in keys]


def _strongest(
    attention: AttentionMap, selection: Selection, panel: Panel, page: Page
) -> list[str]:
    """For each row of weights: "  → 3 't'", the key with the largest."""
    if selection.stage != "weights":
        return [""] * len(selection.queries)
    arrow, notes = "->" if page.ascii_only else "→", []
    for query, values in zip(selection.queries, panel.values, strict=True):
        key = selection.keys.start + int(values.argmax())
        name = quoted(attention.text[key], page.ascii_only)
        notes.append(f"  {arrow} {key} {name}" if key <= query else "")
    return notes


def shades_of(selection: Selection, panel: Panel, scale: Scale) -> Array:
    """(rows, columns) in 0 … 1, NaN where the mask forbids."""
    shown = _shown(selection, panel) & np.isfinite(panel.values)
    values = np.where(shown, panel.values, np.nan).astype(np.float64)
    low, high = 0.0, 1.0
    if selection.stage != "weights":
        low, high = _extent(values)
    shades: Array = (values - low) / (high - low if high > low else 1.0)
    if scale == "row":
        largest = np.where(np.isnan(shades), -np.inf, shades).max(axis=1, keepdims=True)
        shades = shades / np.where(largest > 0, largest, 1.0)
    return np.clip(shades, 0.0, 1.0)


def _extent(values: Array) -> tuple[float, float]:
    """The smallest and the largest finite value; 0 and 0 where all are masked."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


#: View -> what draws one matrix in it.
VIEWS: dict[str, Callable[[AttentionMap, Selection, Panel, Page], list[Text]]] = {
    "numbers": numbers,
    "heat": heat,
    "top": top,
}
