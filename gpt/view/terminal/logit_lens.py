"""The logit lens in the terminal: what every depth would say next, position by position."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.text import Text

from gpt.heads.attention_map import AttentionMap
from gpt.heads.logit_lens import Lens
from gpt.view.characters import label, pad
from gpt.view.records import rounded
from gpt.view.selection import Look
from gpt.view.terminal.attention import meanings
from gpt.view.terminal.lines import BOLD, DIM, Page, blocks, checks, number, styled
from gpt.view.terminal.matrix import row_labels


def lens_lines(look: Look, lens: Lens, characters: str, page: Page) -> list[Text]:
    """A line a position, a column a depth: its likeliest next character, bold if it does come."""
    attention, queries = look.attention, look.selection.queries
    title = ["logit lens", "rows = position, columns = depth", "each its likeliest next character"]
    words = [*title, "a heuristic; the last column is the model"]
    lines = [*styled(words, page, BOLD), Text()]
    rows = row_labels(attention, look.selection, page)
    depths = len(lens.ids)
    headings = ["embedded", *(f"layer {layer}" for layer in range(depths - 1))]
    cells = [
        [_cell(lens, depth, query, characters, page) for depth in range(depths)]
        for query in queries
    ]
    width = max(cell_len(text) for texts in (headings, *cells) for text in texts) + 2
    gutter = cell_len(rows[0])
    for first, last in blocks(depths, width, gutter, page.width):
        if first:
            lines.append(Text())
        heading = "".join(pad(text, width, right=True) for text in headings[first:last])
        lines.append(Text(" " * gutter + heading, DIM))
        for row, query, texts in zip(rows, queries, cells, strict=True):
            line = Text(row, DIM)
            for depth in range(first, last):
                hit = _comes(attention, lens, depth, query)
                style = BOLD if hit else DIM
                line.append(pad(texts[depth], width, right=True), style)
            lines.append(line)
    signs = meanings(attention.text, page)
    return [*lines, Text(), *signs, *checks(attention.checks, page)]


def lens_record(lens: Lens, characters: str) -> list[list[list[dict[str, Any]]]]:
    """For programs: [depth][position][rank] of character and probability."""
    return [
        [
            [
                {"character": characters[token], "probability": rounded(chance)}
                for token, chance in zip(*pair, strict=True)
            ]
            for pair in zip(ids, chances, strict=True)
        ]
        for ids, chances in zip(lens.ids.tolist(), lens.probabilities.tolist(), strict=True)
    ]


def _cell(lens: Lens, depth: int, query: int, characters: str, page: Page) -> str:
    name = label(characters[lens.ids[depth, query, 0]], page.ascii_only)
    return f"{name} {number(float(lens.probabilities[depth, query, 0]), page)}"


def _comes(attention: AttentionMap, lens: Lens, depth: int, query: int) -> bool:
    """Whether the likeliest is what follows in the text."""
    return query + 1 < len(attention.ids) and bool(
        lens.ids[depth, query, 0] == attention.ids[query + 1]
    )
