"""A text whose every character shows how much it surprised the model, and where it did most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt.reading.score import Surprises
from gpt.view.characters import label, pad, quoted
from gpt.view.records import rounded
from gpt.view.terminal.lines import BOLD, DIM, Page, number, own_words, shade, styled
from gpt.view.words import bits

FULL = 8.0  # bits that have the ramp's last colour
BEFORE, AFTER = 20, 8  # characters of context beside a surprise
PLAIN = {" ": " "}  # what reads better as itself than by its label


def coloured(text: str, found: Surprises, page: Page, digits: bool) -> list[Text]:
    """The text in lines that fit; `digits`: under each line the whole bits of its characters.

    The first character is context, of which the model said nothing. A newline is shown and ends the
    line; 9 means nine bits or more.
    """
    surprises = [math.nan, *bits(found.nats).tolist()]
    width = math.inf if page.width is None else max(2, page.width)
    lines: list[Text] = []
    line, below = Text(), ""
    for character, surprise in zip(text, surprises, strict=True):
        shown = PLAIN.get(character) or label(character, page.ascii_only)
        if line.cell_len + cell_len(shown) > width:
            lines += _finished(line, below, digits)
            line, below = Text(), ""
        known = not math.isnan(surprise)
        line.append(shown, shade(surprise / FULL) if known else DIM)
        below += pad(str(min(9, round(surprise))) if known else "", cell_len(shown))
        if character == "\n":
            lines += _finished(line, below, digits)
            line, below = Text(), ""
    return lines + (_finished(line, below, digits) if line else [])


def scale(page: Page, digits: bool) -> list[Text]:
    """What colours or digits mean."""
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
    """The largest surprises: bits, character, position, what was expected, what stands around.

    places: where each character of the text stands in its file, if some were left out.
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
        lines += [Text(line) for line in own_words(facts, page)]
    return lines


def surprise_record(
    text: str, characters: str, found: Surprises, places: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """For programs: every character after the first. places: as for `worst`."""
    return [
        {
            "position": at if places is None else places[at],
            "character": character,
            "bits": rounded(bits(nats)),
            "expected": characters[likeliest],
            "probability": rounded(chance),
        }
        for at, (character, nats, likeliest, chance) in enumerate(
            zip(
                text[1:],
                found.nats.tolist(),
                found.likeliest.tolist(),
                found.chances.tolist(),
                strict=True,
            ),
            start=1,
        )
    ]


def _finished(line: Text, below: str, digits: bool) -> list[Text]:
    return [line, Text(below.rstrip(), DIM)] if digits else [line]


def _flat(text: str, page: Page) -> str:
    """A piece of the text on one line."""
    return "".join(PLAIN.get(each) or label(each, page.ascii_only) for each in text)
