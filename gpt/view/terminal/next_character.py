"""The next character: its distribution as bars, and the logit lens at every depth.

Bars show it before and after temperature and filters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt.config import SampleConfig
from gpt.config.fields import flag_of
from gpt.config.sample import SHAPING
from gpt.heads.next_character import Following, Lens
from gpt.view.characters import label, pad
from gpt.view.records import picked, rounded
from gpt.view.selection import Selection
from gpt.view.terminal.attention import meanings
from gpt.view.terminal.lines import BOLD, DIM, Page, Row, checks, grid, number, styled
from gpt.view.terminal.matrix import row_labels
from gpt.view.words import counted

SCHEMA = 2  # 2: "after_filters" (probabilities after temperature and filters) replaces "drawn"
LONGEST = 32  # cells of a bar
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GONE, _LEFT = "red", "cyan"


def bars(
    found: Following, characters: str, config: SampleConfig, most: int, page: Page
) -> list[Text]:
    """The `most` likeliest characters; bars show what the model expects, removed ones are red.

    Columns beside the bars have what the GPT and counting expect alone, of a model with counting,
    and the probabilities after temperature and filters, if these change any.
    """
    order = np.argsort(-found.expected, kind="stable")
    shown = order[:most].tolist()
    changed = found.changed
    names = [label(characters[token], page.ascii_only) for token in shown]
    second, *notes = _beside(found, shown, page)
    widest = max(map(cell_len, names))
    aside = max(map(len, [*notes, second]))
    longest = LONGEST
    digits = page.precision + 2
    if page.width is not None:
        longest = max(4, min(LONGEST, page.width - widest - digits - aside - 5))
    lines = styled(_settings(config, changed), page, BOLD)
    heading = f"{'':{widest + 2}}{'expected':{longest + digits + 2}}{second}"
    lines.append(Text(heading.rstrip(), DIM))
    largest = float(found.expected[order[0]])
    for token, name, note in zip(shown, names, notes, strict=True):
        chance = float(found.expected[token])
        gone = found.removed[token] >= 0
        line = Text(f"{pad(name, widest)}  {number(chance, page)} ")
        line.append(_bar(chance / largest, longest, page), _GONE if gone else _LEFT)
        line.append(f" {note}", DIM if gone else "")
        line.rstrip()
        lines.append(line)
    rest = order[most:]
    if rest.size:
        left_over = number(float(found.expected[rest].sum()), page)
        texts = [f"rest: {counted(rest.size, 'character')} {left_over} expected"]
        if changed:
            texts.append(f"{number(float(found.filtered[rest].sum()), page)} after")
        lines += styled(texts, page, DIM)
    before, after = found.entropies
    facts = [f"the longest bar is {number(largest, page)}", f"{before:.2f} bits expected"]
    if found.experts is not None:
        gpt, counting = found.experts.weights.tolist()
        facts.append(f"GPT to the power {gpt:.2f} × counting to the power {counting:.2f}")
    if changed:
        left = int((found.filtered > 0).sum())
        facts += [f"{after:.2f} bits after", f"{left} of {len(characters)} characters left"]
    return lines + styled(facts, page, DIM)


def following_record(
    found: Following, characters: str, config: SampleConfig, origin: dict[str, Any]
) -> dict[str, Any]:
    """For programs: every character, the likeliest first."""
    before, after = found.entropies
    return {
        "schema": SCHEMA,
        **origin,
        **picked(config, *SHAPING),
        "bits": {"expected": before, "after_filters": after},
        "weights": None if found.experts is None else rounded(found.experts.weights),
        "characters": [
            {
                "character": characters[token],
                "id": token,
                "expected": rounded(found.expected[token]),
                **_alone(found, token),
                "after_filters": rounded(found.filtered[token]),
                "removed_by": SHAPING[found.removed[token]] if found.removed[token] >= 0 else None,
            }
            for token in np.argsort(-found.expected, kind="stable").tolist()
        ],
    }


def _alone(found: Following, token: int) -> dict[str, Any]:
    """What the GPT and counting expect alone, of a model with counting."""
    experts = found.experts
    if experts is None:
        return {}
    return {"gpt": rounded(experts.gpt[token]), "counting": rounded(experts.counting[token])}


def _settings(config: SampleConfig, changed: bool) -> list[str]:
    """ "after: temperature 0.8", "top-k 5"; "temperature 1", "no change"."""
    given = [(name, getattr(config, name)) for name in SHAPING]
    words = [f"{flag_of(name)[2:]} {value:g}" for name, value in given if value is not None]
    return [f"after: {words[0]}", *words[1:]] if changed else [*words, "no change"]


def _beside(found: Following, shown: list[int], page: Page) -> list[str]:
    """The columns beside the bars: a heading, then a line for each character shown."""
    columns = []
    if found.experts is not None:
        for name, chances in (("GPT", found.experts.gpt), ("counting", found.experts.counting)):
            columns.append([name, *(number(float(chances[token]), page) for token in shown)])
    if found.changed:
        columns.append(["after", *(_note(found, token, page) for token in shown)])
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True) if columns else [()] * (1 + len(shown))
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _note(found: Following, token: int, page: Page) -> str:
    """A character's probability after temperature and filters, or the filter that removed it."""
    if found.removed[token] >= 0:
        return f"removed by {flag_of(SHAPING[found.removed[token]])[2:]}"
    return number(float(found.filtered[token]), page)


def _bar(share: float, longest: int, page: Page) -> str:
    """A bar, `share` (0 … 1) of the longest one, in eighths of a cell; in ASCII in whole cells."""
    if page.ascii_only:
        return pad("#" * round(share * longest), longest)
    eighths = round(share * longest * 8)
    return pad("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip(), longest)


def lens_lines(selection: Selection, lens: Lens, characters: str, page: Page) -> list[Text]:
    """A row for each position, a column for each depth: the likeliest next character there, bold if
    the text continues with it.
    """
    attention, depths = selection.attention, range(len(lens.ids))
    title = ["logit lens", "rows = position, columns = depth", "each its likeliest next character"]
    lines = styled([*title, "a heuristic; the last column is the model"], page, BOLD)
    following = [*attention.ids[1:], -1]
    rows: list[Row] = [("", ["embedded", *(f"layer {layer}" for layer in depths[:-1])], "")]
    for row, query in zip(row_labels(selection, page), selection.queries, strict=True):
        cells = []
        for depth in depths:
            token, chance = lens.ids[depth, query, 0], float(lens.probabilities[depth, query, 0])
            text = f"{label(characters[token], page.ascii_only)} {number(chance, page)}"
            cells.append(Text(text, BOLD if token == following[query] else DIM))
        rows.append((row, cells, ""))
    width = max(cell_len(str(cell)) for _, cells, _ in rows for cell in cells) + 2
    lines += [Text(), *grid(rows, [width] * len(depths), page), Text()]
    return [*lines, *meanings(attention.text, page), *checks(attention.checks, page)]


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
