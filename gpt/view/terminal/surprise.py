"""Shows how much each character of a text surprised the model, and what a sample copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt.characters import cut, label, pad, quoted
from gpt.reading.novelty import Novelty
from gpt.reading.score import Surprises
from gpt.view.records import rounded
from gpt.view.terminal.lines import BOLD, DIM, Page, number, shade, styled
from gpt.words import bits

FULL = 8.0  # bits at and above which characters have the ramp's last colour
BEFORE, AFTER = 20, 8  # characters of context beside a surprise
LONGEST = 60  # cells of a copied piece that are shown


def coloured(text: str, found: Surprises, page: Page, digits: bool) -> list[Text]:
    """The text in lines that fit. digits: shows each character's bits, rounded, below it.

    The model does not predict the first character. A newline is shown and ends the line; 9 means
    nine bits or more.
    """
    width = math.inf if page.width is None else max(2, page.width)
    rows: list[tuple[Text, Text]] = []  # characters, and the digits below them
    before = "\n"
    for character, surprise in zip(text, [math.nan, *bits(found.nats).tolist()], strict=True):
        shown, known = _flat(character, page), not math.isnan(surprise)
        size = cell_len(shown)
        if before == "\n" or rows[-1][0].cell_len + size > width:
            rows.append((Text(), Text(style=DIM)))
        line, below = rows[-1]
        line.append(shown, shade(surprise / FULL) if known else DIM)
        below.append(pad(str(min(9, round(surprise))) if known else "", size))
        before = character
    for _, below in rows:
        below.rstrip()
    return [line for row in rows for line in row[: 1 + digits]]


def scale(page: Page, digits: bool) -> list[Text]:
    """The meaning of colours or digits."""
    if digits:
        return styled(["digits: bits of surprise", "9: nine or more"], page, DIM)
    line = Text().append("bits of surprise: ", DIM)
    for whole in range(int(FULL) + 1):
        line.append(f" {whole}{'+' if whole == FULL else ''} ", shade(whole / FULL))
    return [line]


def worst(
    text: str,
    characters: str,
    found: Surprises,
    most: int,
    page: Page,
    places: Sequence[int] | None = None,
) -> list[Text]:
    """The largest surprises: bits, character, position, expected character, context.

    places: the characters' positions in the file, if other characters were left out.
    """
    order = np.argsort(-found.nats, kind="stable")[:most].tolist()
    lines = styled(["most surprising"], page, BOLD) if order else []
    for place in order:
        at = place + 1
        before, after = text[max(0, at - BEFORE) : at], text[at + 1 : at + 1 + AFTER]
        expected = quoted(characters[found.likeliest[place]], page.ascii_only)
        facts = [
            f"{number(bits(float(found.nats[place])), page):>5} bits",
            f"{quoted(text[at], page.ascii_only)} at {at if places is None else places[at]:,}",
            f"expected {expected} {number(float(found.chances[place]), page)}",
            f"{_flat(before, page)}[{label(text[at], page.ascii_only)}]{_flat(after, page)}",
        ]
        lines += styled(facts, page)
    return lines


def surprise_record(
    text: str, characters: str, found: Surprises, places: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """For programs: every character after the first. places: as for `worst`."""
    columns = (found.nats, found.likeliest, found.chances)
    return [
        {
            "position": at if places is None else places[at],
            "character": character,
            "bits": rounded(bits(nats)),
            "expected": characters[likeliest],
            "probability": rounded(chance),
        }
        for at, (character, nats, likeliest, chance) in enumerate(
            zip(text[1:], *(each.tolist() for each in columns), strict=True), start=1
        )
    ]


def _flat(text: str, page: Page) -> str:
    """A piece of the text on one line; spaces are not marked."""
    return "".join(each if each == " " else label(each, page.ascii_only) for each in text)


def novelty_line(found: Novelty) -> str:
    """The longest copy, its position, and the usual length of copies."""
    copy = found.longest
    shown = "".join(label(each) if each in "\n\t\r" else each for each in copy.text)
    times = "once" if copy.times == 1 else f"{copy.times:,} times"
    where = f" ({times}, first at {copy.at:,}): “{cut(shown, LONGEST)}”" if copy.text else ""
    return (
        f"novelty: longest copy from the training text: {len(copy)} of {found.characters} "
        f"characters{where} · in the validation text: {found.median} (median) to {found.largest}"
    )


def novelty_record(found: Novelty, prompt: int = 0) -> dict[str, Any]:
    """For programs; positions in characters.

    start: of the copy in prompt plus sample; at: in the training text.
    """
    copy = found.longest
    return {
        "characters": found.characters,
        "copied": len(copy),
        "text": copy.text,
        "start": prompt + copy.start,
        "at": copy.at,
        "times": copy.times,
        "validation": {"median": found.median, "largest": found.largest},
    }
