"""The next character: its distribution as bars, and the logit lens at every depth.

Bars show it before and after temperature and filters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt.characters import label, pad
from gpt.config import SampleConfig
from gpt.config.fields import flag_of
from gpt.config.sample import SHAPING
from gpt.heads.next_character import Experts, Following, Lens
from gpt.view.records import picked, rounded
from gpt.view.selection import Selection
from gpt.view.terminal.attention import meanings
from gpt.view.terminal.lines import BOLD, DIM, Page, Row, checks, grid, number, styled
from gpt.view.terminal.matrix import row_labels
from gpt.words import counted

SCHEMA = 1
LONGEST = 32  # cells of a bar
LEAST = 3  # even if a line becomes too long
SHORTEST = 6  # if all bars of a line have fewer cells, only the first column has bars
NARROW = 56  # cells: narrower pages with three columns name a filter without "removed by"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GONE, _LEFT, _ALONE = "red", "cyan", "dim cyan"


def bars(
    found: Following, characters: str, config: SampleConfig, most: int, page: Page
) -> list[Text]:
    """The `most` likeliest characters; bars show what the model expects, removed ones are red.

    Columns beside it have what the GPT and counting expect alone, of a model with counting, and the
    probabilities after temperature and filters, if these change any.
    """
    order = np.argsort(-found.expected, kind="stable")
    shown = order[:most].tolist()
    changed = found.changed
    names = [label(characters[token], page.ascii_only) for token in shown]
    narrow = found.experts is not None and page.width is not None and page.width < NARROW
    notes = [_note(found, token, page, narrow) for token in shown] if changed else []
    widest = max(map(cell_len, names))
    after = max((2 + len(note) for note in notes), default=0)
    room = None if page.width is None else page.width - widest - after
    columns = _columns(found, shown, room, page)
    lines = styled(_settings(config, changed), page, BOLD)
    if found.experts is not None:
        mixed, *history = _mixed(found.experts, page)
        lines += styled([mixed], page, DIM) + styled(history, page, DIM)
    headings = [pad(column.title, column.width) for column in columns]
    heading = "  ".join([" " * widest, *headings, *(["after"] if changed else [])])
    lines.append(Text(heading.rstrip(), DIM))
    for row, (token, name) in enumerate(zip(shown, names, strict=True)):
        gone = bool(found.removed[token] >= 0)
        line = Text(pad(name, widest))
        for column in columns:
            line.append("  " + column.numbers[row])
            colour = _ALONE if column is not columns[0] else _GONE if gone else _LEFT
            bar = _bar(column.chances[row], column.cells, page)
            line.append(" " * bool(column.cells) + bar, colour)
            line.append(" " * (column.width - column.used))
        if changed:
            line.append(f"  {notes[row]}", DIM if gone else "")
        line.rstrip()
        lines.append(line)
    rest = order[most:]
    if rest.size:
        left_over = number(float(found.expected[rest].sum()), page)
        texts = [f"rest: {counted(rest.size, 'character')} {left_over} expected"]
        if changed:
            texts.append(f"{number(float(found.filtered[rest].sum()), page)} after")
        lines += styled(texts, page, DIM)
    before, after_filters = found.entropies
    facts = ["a bar of full width is 1", f"{before:.2f} bits expected"]
    if changed:
        left = int((found.filtered > 0).sum())
        facts.append(f"{after_filters:.2f} bits after")
        facts.append(f"{left} of {len(characters)} characters left")
    return lines + styled(facts, page, DIM)


@dataclass(frozen=True)
class Column:
    """The probabilities of the characters shown, as numbers, with bars of at most `cells` cells."""

    title: str
    chances: list[float]
    numbers: list[str]  # of one width
    cells: int

    @property
    def used(self) -> int:
        """Cells of a line."""
        return len(self.numbers[0]) + (self.cells and 1 + self.cells)

    @property
    def width(self) -> int:
        """Cells of a line or of the title."""
        return max(len(self.title), self.used)


def _columns(found: Following, shown: list[int], room: int | None, page: Page) -> list[Column]:
    """The columns for so many cells (None = unlimited).

    If bars in all of them would be too short, only the first column has bars.
    """
    chances = {"expected": found.expected[shown].tolist()}
    if found.experts is not None:
        chances["GPT"] = found.experts.gpt[shown].tolist()
        chances["counting"] = found.experts.counting[shown].tolist()
    columns = []
    for title, each in chances.items():
        numbers = [number(chance, page) for chance in each]
        widest = max(map(len, numbers))
        columns.append(Column(title, each, [text.rjust(widest) for text in numbers], 0))
    if room is None:
        longest = LONGEST
    else:
        # A column has two spaces, a number, a space and a bar.
        longest = (room - sum(3 + column.used for column in columns)) // len(columns)
    if len(columns) > 1 and longest < SHORTEST and room is not None:
        longest = room - 3 - columns[0].used - sum(2 + column.width for column in columns[1:])
        columns[0] = replace(columns[0], cells=max(LEAST, min(LONGEST, longest)))
    else:
        columns = [replace(each, cells=max(LEAST, min(LONGEST, longest))) for each in columns]
    return columns


def _mixed(experts: Experts, page: Page) -> list[str]:
    """How the gate mixed the GPT and counting, and which history counting used."""
    gpt, counting = (f"{weight:.2f}".removeprefix("0") for weight in experts.weights.tolist())
    times = "*" if page.ascii_only else "×"
    length, total = int(experts.lengths), f"{int(experts.totals):,}"
    history = f"the last {counted(length, 'character')}" if length > 1 else "the last character"
    pairs = f"between {counted(total, 'different pair')} of characters (one before, one after)"
    kinds = int(experts.kinds)
    followed = f"{kinds} different characters" if kinds > 1 else "always the same character"
    mixed = f"expected = GPT^{gpt} {times} counting^{counting}, scaled to sum 1"
    if not length:
        return [mixed, "counting used no character before it: only how common each character is"]
    return [
        mixed,
        f"counting used {history}, seen {pairs if experts.pairs else counted(total, 'time')}",
        f"{followed} followed",
    ]


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
        "history": None if found.experts is None else _history(found.experts),
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


def _history(experts: Experts) -> dict[str, int]:
    """The longest history that counting knows; see Experts."""
    numbers = {"length": experts.lengths, "counted": experts.totals, "kinds": experts.kinds}
    return {name: int(each) for name, each in numbers.items()}


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


def _note(found: Following, token: int, page: Page, narrow: bool) -> str:
    """A character's probability after temperature and filters, or the filter that removed it."""
    if found.removed[token] >= 0:
        return ("" if narrow else "removed by ") + flag_of(SHAPING[found.removed[token]])[2:]
    return number(float(found.filtered[token]), page)


def _bar(share: float, longest: int, page: Page) -> str:
    """A bar of `share` (0 … 1) × longest cells, in eighths of a cell; in ASCII in whole cells."""
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
